"""Architectures and training loops by ``torch.compile(backend="kcache")``, compared with eager mode."""
