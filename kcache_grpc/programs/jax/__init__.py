"""Programs of JAX: exported, lowered and jitted functions."""
