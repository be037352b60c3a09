"""Memory plan, binary tables, the static C runtime, writing the library, the loader."""
