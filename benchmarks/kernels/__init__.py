"""How fast kernels run: kcache beside PyTorch, JAX, NumPy and ONNX Runtime (docs/kernel-speed.md)."""
