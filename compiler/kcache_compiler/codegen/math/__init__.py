"""The math library: elementary and special functions as MLIR, without a libm, bit-identical everywhere.

`expand` replaces the math operations of a module by inlined bodies. Accuracy is in
docs/math-accuracy.md.
"""

from .expand import expand
from .table import MathFunction, functions

#: In the compiler fingerprint: rises whenever the bits of a result change.
VERSION = "4"

__all__ = ["VERSION", "MathFunction", "expand", "functions"]
