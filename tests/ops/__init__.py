"""Differential tests of single ops against the StableHLO reference interpreter."""
