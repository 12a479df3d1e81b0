"""Finds stored kernels and their artifacts for requests."""
