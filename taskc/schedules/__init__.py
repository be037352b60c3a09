"""Schedule templates, one a file."""
