"""Ranks and chooses schedules."""
