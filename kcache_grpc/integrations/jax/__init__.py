"""Kernels of kcache for functions of JAX."""
