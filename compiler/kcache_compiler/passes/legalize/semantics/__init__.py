"""Rewrites of operations whose toolchain lowering does not preserve StableHLO's semantics."""
