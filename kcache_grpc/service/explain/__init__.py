"""Explanations of hits and misses: which step decided, and what the nearest kernels have instead."""
