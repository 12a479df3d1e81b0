"""Calls of operations with the values at the edges of a dtype: NaN, infinities, zeros, greatest numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from tests.conformance.torch_ops.harness.calls import Call
from tests.conformance.torch_ops.harness.mixed import DTYPES

_AT_ONCE = 8
_UNARY = (
    *("abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "deg2rad"),
    *("digamma", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "frac", "isfinite", "isinf"),
    *("isnan", "isneginf", "isposinf", "lgamma", "log", "log10", "log1p", "log2", "logical_not", "logit"),
    *("nan_to_num", "neg", "positive", "rad2deg", "reciprocal", "round", "rsqrt", "sgn", "sigmoid", "sign"),
    *("signbit", "sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "bitwise_not"),
)
_SPECIAL = ("entr", "expit", "i0", "i0e", "i1", "i1e", "log_ndtr", "ndtr", "ndtri", "xlog1py")
_ACTIVATIONS = (
    *("celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu"),
    *("logsigmoid", "mish", "relu", "relu6", "selu", "silu", "softplus", "softshrink", "softsign"),
    *("tanhshrink", "glu"),
)
_BINARY = (
    *("add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "eq", "ne", "lt", "le", "gt", "ge"),
    *("pow", "atan2", "hypot", "copysign", "heaviside", "logaddexp", "logaddexp2", "xlogy", "remainder"),
    *("fmod", "floor_divide", "float_power", "isclose", "clamp_min", "clamp_max", "bitwise_and"),
    *("bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor", "nextafter", "ldexp"),
)
#: Of zeros of both signs they give either.
_CHOOSING = frozenset(
    {
        *("maximum", "minimum", "fmax", "fmin", "clamp", "clamp_min", "clamp_max", "clamp turned", "amax"),
        *(
            "amin",
            "whole max",
            "whole min",
            "softshrink",
            "hardtanh",
            "relu",
            "relu6",
            "topk there",
            "logcumsumexp",
        ),
        "least there",
        *(f"{name} values" for name in ("max", "min", "sort", "descending", "topk", "cummax")),
        *(f"{name} values" for name in ("cummin", "median", "nanmedian", "mode", "kthvalue", "max_pool1d")),
        *(f"norm {size}" for size in (math.inf, -math.inf)),
    }
)
#: Differences of what is nearly equal: compared where they are no smaller than what they are differences of.
_CANCELLING = frozenset({"lerp", "logaddexp", "logaddexp2", "digamma", "lgamma", "xlogy", "xlog1py"})
_NUMBERS = (0, 1, -1, 2, 3, 0.5, -0.5, 2.5, math.inf, -math.inf, math.nan)


def _without_sign(call: Call) -> Call:
    if call.name in _CANCELLING:
        return Call(call.name, lambda *arguments: _without_small(call.function(*arguments)))
    if call.name not in _CHOOSING and not call.name.startswith("clamp m"):
        return call
    return Call(call.name, lambda *arguments: call.function(*arguments) + 0)


def _without_small(x: Any) -> Any:
    return torch.where(x.abs() < 0.02, 0, x)


def _within(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Without what eager mode has no numbers for in f64: ``cosh(710)`` is one, and infinite there."""
    if name in ("cosh", "sinh", "silu"):
        return lambda x: function(torch.where(x.abs() == 710, 1, x) if x.is_floating_point() else x)
    if name == "digamma":  # next to its poles
        return lambda x: function(torch.where((x < 0) & ((x + 1).abs() < 1e-12) & (x != -1), 0.5, x))
    return function


def _of_quotients(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Without remainders of quotients that leave the range, for which eager mode has NaN in f64."""
    if name not in ("remainder", "fmod"):
        return function

    def within(x: Any, y: Any) -> Any:
        result = function(x, y)
        if not result.is_floating_point():
            return result
        return torch.where(torch.isinf(x / y) & torch.isfinite(x) & (y != 0), 0, result)

    return within


def _alone(name: str, function: Callable[..., Any]) -> Call:
    return Call(name, lambda x, y: function(x))


def _rows() -> dict[str, Callable[[Any], Any]]:
    """Of rows, along the last axis and as a whole."""
    alone: dict[str, Callable[[Any], Any]] = {
        name: functools.partial(getattr(torch, name), dim=-1)
        for name in (
            *("sum", "prod", "mean", "amax", "amin", "argmax", "argmin", "any", "all", "cumsum", "cumprod"),
            *("var", "std", "nansum", "nanmean", "count_nonzero", "argsort", "softmax", "log_softmax"),
            "logsumexp",
        )
    }
    chosen = ("max", "min", "sort", "cummax", "cummin", "median", "nanmedian", "mode")
    for at, part in enumerate(("values", "indices")):
        for name in chosen:
            alone[f"{name} {part}"] = lambda x, name=name, at=at: getattr(torch, name)(x, -1)[at]
        alone[f"descending {part}"] = lambda x, at=at: torch.sort(x, dim=-1, descending=True, stable=True)[at]
        alone[f"max_pool1d {part}"] = lambda x, at=at: functional.max_pool1d(
            x[None], 3, 2, 1, return_indices=True
        )[at]
    # Of equal elements they give any place, so what is there is compared.
    alone["topk values"] = lambda x: torch.topk(x, 4, -1)[0]
    alone["topk there"] = lambda x: x.gather(-1, torch.topk(x, 4, -1)[1])
    alone["least there"] = lambda x: x.gather(-1, torch.topk(x, 3, -1, largest=False)[1])
    alone["kthvalue values"] = lambda x: torch.kthvalue(x, 2, -1)[0]
    for norm in (0, 1, 2, 3.5, math.inf, -math.inf):
        alone[f"norm {norm}"] = lambda x, norm=norm: torch.linalg.vector_norm(x, norm, -1)
    alone |= {
        "whole sum": torch.sum,
        "whole max": torch.max,
        "whole min": torch.min,
        "whole argmax": torch.argmax,
        "whole prod": torch.prod,
        "avg_pool1d": lambda x: functional.avg_pool1d(x[None], 3, 2, 1),
        "normalize": lambda x: functional.normalize(x, dim=-1),
        "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
        "softmin": lambda x: functional.softmin(x, -1),
        "diff": torch.diff,
        "logcumsumexp": lambda x: torch.logcumsumexp(x, -1),
        "searchsorted": lambda x: torch.searchsorted(torch.sort(x, -1)[0], x),
        "renorm": lambda x: torch.renorm(x, 2, 0, 1.0),
    }
    return alone


def _with_numbers() -> dict[str, Callable[[Any], Any]]:
    """Of a tensor and a number of Python."""
    functions: dict[str, Callable[[Any], Any]] = {}
    for name in ("add", "mul", "div", "pow", "eq", "lt", "ge", "remainder", "fmod", "floor_divide", "sub"):
        for number in _NUMBERS:
            functions[f"{name} {number}"] = lambda x, name=name, number=number: getattr(torch, name)(
                x, number
            )
    for name in (f"{name} {number}" for name in ("fmod", "remainder") for number in (0.5, -0.5)):
        # of the greatest numbers eager mode gives NaN
        functions[name] = lambda x, function=functions[name]: function(x.clamp(-1e4, 1e4))
    for number in _NUMBERS:
        functions[f"{number} pow"] = lambda x, number=number: torch.pow(number, x)
        functions[f"{number} div"] = lambda x, number=number: number / x
        functions[f"{number} sub"] = lambda x, number=number: number - x
        functions[f"clamp min {number}"] = lambda x, number=number: torch.clamp(x, min=number)
        functions[f"clamp max {number}"] = lambda x, number=number: torch.clamp(x, max=number)
        functions[f"where {number}"] = lambda x, number=number: torch.where(x == x, number, x)
    functions["clamp 2 to 1"] = lambda x: torch.clamp(x, 2, 1)
    functions["nan_to_num of numbers"] = lambda x: torch.nan_to_num(x, 1.5, 2.5, -3.5)
    functions["round 2"] = lambda x: torch.round(x, decimals=2)
    functions["round -1"] = lambda x: torch.round(x, decimals=-1)
    functions["threshold"] = lambda x: functional.threshold(x, 0.5, -2)
    return functions


def _conversions() -> dict[str, Callable[[Any], Any]]:
    return {f"to {name}": lambda x, dtype=dtype: _converted(x, dtype) for name, dtype in DTYPES.items()}


def _converted(x: Any, dtype: torch.dtype) -> Any:
    """Floats become integers where that is defined: 0 elsewhere."""
    if x.is_floating_point() and not dtype.is_floating_point and dtype != torch.bool:
        limits = torch.iinfo(dtype)
        inside = (x.abs() < 2.0 ** (limits.bits - 1)) & ((x > -1) | (limits.min < 0))
        x = torch.where(inside, x, 0)
    return x.to(dtype)


def _named() -> Mapping[str, list[Call]]:
    unary = [_alone(name, _within(name, getattr(torch, name))) for name in _UNARY]
    unary += [_alone(name, getattr(torch.special, name)) for name in _SPECIAL if name != "xlog1py"]
    unary += [_alone(name, _within(name, getattr(functional, name))) for name in _ACTIVATIONS]
    unary += [
        _alone("gelu tanh", lambda x: functional.gelu(x, approximate="tanh")),
        _alone("logit eps", lambda x: torch.logit(x, 1e-3)),
        _alone("softplus 2", lambda x: functional.softplus(x, beta=2, threshold=5)),
        _alone("elu 2", lambda x: functional.elu(x, 2.0)),
    ]
    binary = [Call(name, _of_quotients(name, getattr(torch, name))) for name in _BINARY]
    binary += [
        Call("trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc")),
        Call("floor", lambda x, y: torch.div(x, y, rounding_mode="floor")),
        Call("clamp", lambda x, y: torch.clamp(x, y, y + 1)),
        Call("clamp turned", lambda x, y: torch.clamp(x, y, y - 1)),
        Call("xlog1py", torch.special.xlog1py),
        Call("where", lambda x, y: torch.where(x < y, x, y)),
        Call("lerp", lambda x, y: torch.lerp(x, y, 0.3)),
        Call("prelu", lambda x, y: functional.prelu(x[None], y[:1])),
        Call("smooth_l1", lambda x, y: functional.smooth_l1_loss(x + 0 * y, y + 0 * x, reduction="none")),
    ]
    return {
        "unary": unary,
        "binary": binary,
        "numbers": [_alone(name, function) for name, function in _with_numbers().items()],
        "conversions": [_alone(name, function) for name, function in _conversions().items()],
        "rows": [_alone(name, function) for name, function in _rows().items()],
    }


def pairs() -> list[tuple[str, str]]:
    """Group of calls, as ``unary 2``, and dtype."""
    return [
        (f"{group} {first // _AT_ONCE}", dtype)
        for group, calls in _named().items()
        for first in range(0, len(calls), _AT_ONCE)
        for dtype in DTYPES
    ]


def calls(group: str, dtype: str, seed: int) -> tuple[Sequence[Call], Sequence[Any]]:
    """The calls of a group, and the tensors ``x`` and ``y`` that they take."""
    kind, _, number = group.partition(" ")
    first = int(number) * _AT_ONCE
    chosen = [_without_sign(call) for call in _named()[kind][first : first + _AT_ONCE]]
    values = edge_values(DTYPES[dtype])
    if kind == "rows":
        return chosen, (_of_rows(values, seed),) * 2
    if kind == "binary" and not DTYPES[dtype].is_floating_point:
        return chosen, (values[:, None].clone(), _divisors(values))
    return chosen, (values[:, None].clone() if kind == "binary" else values, values.clone())


def _of_rows(values: torch.Tensor, seed: int) -> torch.Tensor:
    """Rows of small numbers with edge values between; none that only cancels."""
    torch.manual_seed(seed)
    if values.is_floating_point():
        small = (0.0, -0.0, 0.5, 2.0, -1.0, math.inf, -math.inf, math.nan)
        values = torch.tensor(small, dtype=values.dtype)
    plain = torch.randint(0, 5, (24, 7)).to(values.dtype)
    return torch.where(torch.rand(24, 7) < 0.3, values[torch.randint(0, len(values), (24, 7))], plain)


def _divisors(values: torch.Tensor) -> torch.Tensor:
    """Eager mode divides by no 0, and ends the process where the least number is divided by -1."""
    return values if values.dtype == torch.bool else values[(values != 0) & (values != -1)]


def edge_values(dtype: torch.dtype) -> torch.Tensor:
    """Numbers at the edges of a dtype, and some between."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        ends = [limits.min, limits.min + 1, limits.max, limits.max - 1, limits.max // 2 + 1]
        small = [0, 1, 2, 3, 5, 7, 63, 64, 100, *([] if limits.min == 0 else [-1, -2, -3, -64])]
        return torch.tensor([*ends, *small], dtype=dtype)
    limits = torch.finfo(dtype)
    sizes = [
        *(
            0.0,
            1.0,
            0.5,
            1.5,
            2.5,
            3.5,
            2.0,
            1 / 3,
            math.pi / 2,
            math.e,
            10.0,
            20.0,
            88.0,
            89.5,
            104.0,
            710.0,
        ),
        *(limits.max, limits.tiny, limits.smallest_normal / 4, limits.eps, limits.max / 2, math.inf),
        *(limits.max**0.5, limits.tiny**0.5, 1 - limits.eps, 1 + limits.eps, 1e-4, 1e4, 2.0**24 + 2),
    ]
    values = torch.tensor([*sizes, *(-size for size in sizes), math.nan], dtype=torch.float64)
    return values.to(dtype)
