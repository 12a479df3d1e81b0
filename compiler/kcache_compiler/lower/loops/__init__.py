"""Loop nests of a launch: vectorization, reductions, stores; elements and addresses for GPU kernels too."""
