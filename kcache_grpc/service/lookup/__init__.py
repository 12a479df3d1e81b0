"""Finds stored kernels for requests, and explains hits and misses."""
