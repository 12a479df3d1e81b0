"""JAX's own cases of its primitives, of which StableHLO's published test programs were made."""
