"""Programs of JAX at real size: kcache beside ``jax.jit``."""
