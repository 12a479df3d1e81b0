"""Contractions: matrix products and convolutions by packed panels and a register tile."""
