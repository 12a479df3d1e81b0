"""Contractions: matrix products and convolutions by packed panels and register tiles."""
