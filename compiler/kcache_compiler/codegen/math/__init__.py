"""The math library: elementary and special functions as MLIR, without a libm, bit-identical everywhere.

`expand` replaces the math operations of a module by inlined bodies. Accuracy is in
docs/math-accuracy.md.
"""

from .complex import COMPLEX
from .expand import expand
from .table import MathFunction, functions

#: In the compiler fingerprint: rises whenever the bits of a result change.
VERSION = "6"

__all__ = ["COMPLEX", "VERSION", "MathFunction", "expand", "functions"]
