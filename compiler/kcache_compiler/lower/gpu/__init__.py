"""GPU kernels: launches planned as for a CPU, each written as a kernel of its own and emitted as PTX."""
