"""PyTorch: eager kernels here, ``torch.compile`` in ``dynamo``, exported programs in ``exported``."""
