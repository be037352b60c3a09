"""Rewrite rules, one a file: before, why_not, after."""
