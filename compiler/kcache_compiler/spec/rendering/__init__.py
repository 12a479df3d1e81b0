"""Rendering of a canonical graph as StableHLO or linalg."""
