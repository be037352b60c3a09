"""Benchmarks: scripts that write bench/results/*.json. Run them from the repository's root: `python -m bench.latency`."""
