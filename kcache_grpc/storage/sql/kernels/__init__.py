"""Kernels on SQL: look-ups, publication, quarantine and timings."""
