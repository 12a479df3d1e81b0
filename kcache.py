"""The name of the log of ``torch.compile``'s backend: PyTorch takes names of modules, as in ``TORCH_LOGS="kcache"``.

The package is ``kcache_grpc``.
"""
