"""Elementwise fusion of ``linalg.generic`` operations on tensors."""
