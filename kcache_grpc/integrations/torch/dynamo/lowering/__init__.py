"""ATen graphs to plans: islands that become kernels, and steps that PyTorch runs."""
