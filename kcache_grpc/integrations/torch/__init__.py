"""Eager kernels for PyTorch. The public names are those of ``kcache_grpc.torch``."""
