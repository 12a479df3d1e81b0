"""Attention as one launch: scores by tiles, their softmax as it streams by, products with the values."""
