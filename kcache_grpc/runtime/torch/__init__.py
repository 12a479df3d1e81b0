"""Calls of kernels with PyTorch's tensors, for `torch.compile`: no checks that its guards made."""
