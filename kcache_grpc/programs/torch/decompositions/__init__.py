"""Decompositions of ATen operations that torch-mlir does not lower, or lowers with other semantics."""
