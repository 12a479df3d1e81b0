"""The backend ``kcache`` of ``torch.compile``."""
