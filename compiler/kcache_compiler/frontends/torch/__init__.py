"""Programs in the Torch dialect, with the semantics of PyTorch's eager mode."""
