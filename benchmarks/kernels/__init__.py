"""How fast kernels run: kcache beside PyTorch, JAX, NumPy and ONNX Runtime (docs/results/kernel-speed.md)."""
