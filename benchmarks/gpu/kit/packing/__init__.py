"""Compiles the cases of a pack and writes it."""
