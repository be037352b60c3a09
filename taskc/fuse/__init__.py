"""Partition (Graph -> Groups) and stitching (Program, Group -> Program)."""
