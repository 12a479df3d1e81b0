"""Attention as one launch: tiles of scores, an online softmax, and products with the values."""
