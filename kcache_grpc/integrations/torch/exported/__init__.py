"""Exported programs as callable modules: ``kcache_grpc.torch.load`` and ``package``."""
