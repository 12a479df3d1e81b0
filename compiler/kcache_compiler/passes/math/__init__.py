"""The math library: elementary and special functions as MLIR, without a libm, bit-identical everywhere.

``passes.inline_math_functions`` replaces the math operations of a module by inlined bodies. Accuracy is in
docs/results/math-accuracy.md.
"""

from kcache_compiler.passes.math.complex import COMPLEX
from kcache_compiler.passes.math.table import MathFunction, functions

#: In the compiler fingerprint: rises whenever the bits of a result change.
VERSION = "6"

__all__ = ["COMPLEX", "VERSION", "MathFunction", "functions"]
