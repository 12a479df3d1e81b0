"""The incomplete gamma function, in f64: a series of positive terms, for large parameters a quadrature.

The series ends after as many terms as any parameter up to ``_LARGE`` needs; where it would need more the
function is 1. The quadrature is that of Gauss and Legendre from ``x`` to where the integrand vanishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

_LARGE = 100.0
_TERMS = 512
#: Of a parameter up to ``_LARGE`` the function is 1 from here on, up to rounding in f64.
_END = 300.0
_NODES = 32


def decompositions() -> dict[Any, Any]:
    """ATen operation -> what it is replaced by."""
    aten: Any = import_module("torch").ops.aten
    return {aten.igamma.default: _igamma}


def _igamma(a: Any, x: Any) -> Any:
    """``P(a, x)``, the regularized lower one. Outside of its domain NaN, as in eager mode."""
    torch: Any = import_module("torch")
    dtype = torch.result_type(a, x)
    a, x = torch.broadcast_tensors(a.to(torch.float64), x.to(torch.float64))
    result = torch.where(a > _LARGE, _by_quadrature(a, x), _by_series(a, x))
    result = torch.where(torch.isinf(a), 0.0, torch.where(torch.isinf(x), 1.0, result))
    result = torch.where(x == 0, 0.0, torch.where(a == 0, 1.0, result))
    outside = (a < 0) | (x < 0) | ((a == 0) & (x == 0)) | (torch.isinf(a) & torch.isinf(x))
    result = torch.where(outside | torch.isnan(a) | torch.isnan(x), float("nan"), result)
    return result.to(dtype)


def _by_series(a: Any, x: Any) -> Any:
    """``x^a e^-x / gamma(a + 1)`` times ``1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + ...``."""
    torch: Any = import_module("torch")
    parameter, number = a.clamp(0.0, _LARGE), x.clamp(0.0, _END)
    steps = torch.arange(1, _TERMS, dtype=torch.float64)
    terms = (number.unsqueeze(-1) / (parameter.unsqueeze(-1) + steps)).cumprod(-1)
    power = torch.where(number > 0, number, 1.0).log() * parameter
    first = torch.exp(power - number - torch.lgamma(parameter + 1))
    return torch.where(x >= _END, 1.0, (first * (1 + terms.sum(-1))).clamp(max=1.0))


def _constants(numbers: Sequence[float]) -> Any:
    """A vector that is computed: programs that are taken apart take no tensors from outside."""
    torch: Any = import_module("torch")
    return torch.cat([torch.full((1,), number, dtype=torch.float64) for number in numbers])


def _by_quadrature(a: Any, x: Any) -> Any:
    torch: Any = import_module("torch")
    peak = a.clamp(_LARGE, 1e300) - 1
    width = peak.sqrt()
    above = x > peak
    far = torch.maximum(peak + 11.5 * width, x + 6 * width)
    near = torch.minimum(peak - 7.5 * width, x - 8 * width).clamp(min=0.0)
    end = torch.where(above, far, near)
    nodes, weights = (_constants(part.tolist()) for part in np.polynomial.legendre.leggauss(_NODES))
    length = end - x
    points = x.unsqueeze(-1) + length.unsqueeze(-1) * ((nodes + 1) / 2)
    relative = points / peak.unsqueeze(-1)
    # With the logarithm of the integrand at its peak taken out: it is that of a normal density there.
    exponent = peak.unsqueeze(-1) * (relative.log() - (relative - 1))
    area = (torch.exp(exponent) * (weights / 2)).sum(-1) * length
    scale = torch.exp(peak * (peak.log() - 1) - torch.lgamma(peak + 1))
    rest = area * scale
    return torch.where(above, 1 - rest, -rest).clamp(0.0, 1.0)
