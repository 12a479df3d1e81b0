"""Garbage collection, quotas and verification of stored kernels."""
