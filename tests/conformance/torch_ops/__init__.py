"""PyTorch's own samples of its operations, exported, compiled and compared with eager mode."""
