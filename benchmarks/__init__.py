"""Measurements behind docs/results.md: one file a benchmark, ``python -m benchmarks`` runs them."""
