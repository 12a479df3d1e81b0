"""Functions of complex numbers: C's Annex G where it says what becomes of zeros, infinities and NaN.

Each is computed in f64, also for numbers whose parts are f32: their squares and products are exact there, and
nothing in between overflows. A part of the result is a separate function; what both need is computed once.
"""

from kcache_compiler.passes.math.complex.table import COMPLEX, ComplexFunction

__all__ = ["COMPLEX", "ComplexFunction"]
