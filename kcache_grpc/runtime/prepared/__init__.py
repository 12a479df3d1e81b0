"""Kernels whose bound arguments have values, and the file in which processes share prepared ones."""
