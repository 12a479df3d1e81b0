"""Benchmarks: kcache against named rivals, side by side in one run. `make bench` runs them all."""
