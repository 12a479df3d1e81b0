"""Kernels on SQL: lookups, publication, quarantine and timings."""
