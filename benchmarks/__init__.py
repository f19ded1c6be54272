"""Measurements behind docs/benchmarks.md: one file a benchmark, ``python -m benchmarks`` runs them."""
