"""Attention among structured operations on tensors, found and marked."""
