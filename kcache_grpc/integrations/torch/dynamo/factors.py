"""Matrix factors that gradients read: decompositions of determinants return those of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

aten: Any = import_module("torch").ops.aten


def keep_factors(operator: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that factors what ``operator`` factors.

    PyTorch factors the transpose of a real, row-major matrix, and its gradient relies on that.
    """
    if operator not in (aten._linalg_det.default, aten._linalg_slogdet.default):
        return decomposition

    def of_the_transpose(matrix: Any) -> Any:
        transposed = matrix.is_contiguous() and not matrix.is_complex()
        return decomposition(matrix.mT if transposed else matrix)

    return of_the_transpose
