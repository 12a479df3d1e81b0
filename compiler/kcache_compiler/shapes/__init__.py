"""Symbolic sizes: formulas, polynomials and monomials over symbols, and formulas inferred from samples."""
