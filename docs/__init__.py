"""The documentation and what makes its dumps."""
