"""Runs kernels in this process: loading, argument checks, memory, threads."""

from kcache_grpc.runtime.kernel import Kernel

__all__ = ["Kernel"]
