"""The command line: click and rich live here only. Installed as the package taskc_cli."""
