"""Passes that only the GPU pipeline has."""
