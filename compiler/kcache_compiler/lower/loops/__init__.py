"""Loop nests of a launch on a CPU: vectorization, reductions, stores."""
