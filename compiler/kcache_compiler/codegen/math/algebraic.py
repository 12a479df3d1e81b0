"""sqrt, rsqrt, cbrt."""

from __future__ import annotations

from .build import Expr
from .build import sqrt as _sqrt


def sqrt(x: Expr) -> Expr:
    return _sqrt(x)


def rsqrt(x: Expr) -> Expr:
    """Two correctly rounded operations; subnormals and -0 come out right by themselves."""
    return 1.0 / _sqrt(x)
