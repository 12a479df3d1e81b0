"""Opaque values of the blob cache."""
