"""Functions of JAX, forward and gradient, exported and run by kcache, compared with JAX itself."""
