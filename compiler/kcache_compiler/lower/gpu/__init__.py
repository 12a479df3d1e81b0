"""GPU kernels: launches planned as for a CPU, each written as a separate kernel and emitted as PTX."""
