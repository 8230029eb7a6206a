"""Benchmarks: one file per promise. Each measures ratios within one run, on real servers."""
