"""The name of the backend's log: PyTorch takes names of modules, as in ``TORCH_LOGS="kcache"``.

The package is ``kcache_grpc``.
"""
