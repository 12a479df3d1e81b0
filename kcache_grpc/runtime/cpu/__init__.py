"""Loads and calls kernels on the CPU: the C ABI, memory and threads."""
