"""CPU kernels: outlined launches, the entry function, workspace and thread pool."""
