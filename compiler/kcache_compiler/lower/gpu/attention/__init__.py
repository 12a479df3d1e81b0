"""GPU kernels of attention."""
