"""CPU kernels: fusion groups, outlined launches, the entry function, workspace and thread pool."""
