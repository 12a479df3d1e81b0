"""GPU kernels of loop nests: elementwise, rows, transposes, while loops."""
