"""Lowering of bufferized programs to launches.

Loops, matrix products, attention, sorts, for CPUs and GPUs.
"""
