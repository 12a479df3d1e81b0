"""Calls of operations with operands of two dtypes: tensors, tensors of one number, and numbers of Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from tests.conformance.torch_ops.harness.calls import Call

DTYPES = {
    "i1": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}
#: A number of Python for the dtype that Python has.
_NUMBERS: dict[str, bool | int | float] = {"i1": True, "i64": 3, "f64": 2.7}

_Pair = Callable[[Any, Any], Any]
_MASK = torch.tensor([True, False, True, True])


def _written(x: Any, y: Any) -> Any:
    return x.clone().add_(y)


def _put(x: Any, y: Any) -> Any:
    return x.clone().copy_(y) if isinstance(y, torch.Tensor) else x.masked_fill(_MASK, y)


_FAMILIES: dict[str, dict[str, _Pair]] = {
    "sums": {
        "add": torch.add,
        "sub": torch.sub,
        "add twice": lambda x, y: torch.add(x, y, alpha=2),
        "sub twice": lambda x, y: torch.sub(x, y, alpha=3),
        "rsub": torch.rsub,
        "add_": _written,
        "copy_": _put,
    },
    "products": {
        "mul": torch.mul,
        "div": torch.div,
        "square": lambda x, y: x * x * y,
        "addcmul": lambda x, y: torch.addcmul(x, x, y, value=2),
        "addcdiv": lambda x, y: torch.addcdiv(x, x, y),
        "lerp": lambda x, y: torch.lerp(x, x, y),
        "mul_": lambda x, y: x.clone().mul_(y),
    },
    "quotients": {
        "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
        "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        "floor_divide": torch.floor_divide,
        "remainder": torch.remainder,
        "fmod": torch.fmod,
    },
    "order": {
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        "fmax": torch.fmax,
        "fmin": torch.fmin,
        "clamp": lambda x, y: torch.clamp(x, y, y + y),
        "clamp_min": torch.clamp_min,
        "clamp_max": torch.clamp_max,
        "heaviside": torch.heaviside,
        **{name: getattr(torch, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    },
    "bits": {
        "and": torch.bitwise_and,
        "or": torch.bitwise_or,
        "xor": torch.bitwise_xor,
        "logical_and": torch.logical_and,
        "logical_or": torch.logical_or,
        "logical_xor": torch.logical_xor,
        "left": torch.bitwise_left_shift,
        "right": torch.bitwise_right_shift,
    },
    "choices": {
        "where": lambda x, y: torch.where(_MASK, x, y),
        "cat": lambda x, y: torch.cat([torch.atleast_1d(x).flatten(), torch.atleast_1d(y).flatten()]),
        "stack": lambda x, y: torch.stack([x, y]),
        "masked_fill": lambda x, y: torch.masked_fill(x, _MASK, y),
        "full_like": lambda x, y: torch.full_like(x, y if isinstance(y, (int, float)) else 1),
        "pad": lambda x, y: functional.pad(x, (1, 2), value=2 if isinstance(y, torch.Tensor) else y),
        "threshold": lambda x, y: functional.threshold(x, 1, 2 if isinstance(y, torch.Tensor) else y),
        "isclose": torch.isclose,
    },
    "powers": {
        "pow": torch.pow,
        "float_power": torch.float_power,
        "atan2": torch.atan2,
        "hypot": torch.hypot,
        "copysign": torch.copysign,
        "logaddexp": torch.logaddexp,
        "xlogy": torch.xlogy,
        "ldexp": torch.ldexp,
    },
    "dtypes": {
        "to": lambda x, y: x.to(y.dtype),
        "sum": lambda x, y: torch.sum(x, dtype=y.dtype),
        "prod": lambda x, y: torch.prod(x, dtype=y.dtype),
        "mean": lambda x, y: torch.mean(x, dtype=y.dtype),
        "cumsum": lambda x, y: torch.cumsum(x, -1, dtype=y.dtype),
        "softmax": lambda x, y: torch.softmax(x, -1, dtype=y.dtype),
        "log_softmax": lambda x, y: torch.log_softmax(x, -1, dtype=y.dtype),
        "ones_like": lambda x, y: torch.ones_like(x, dtype=y.dtype) + x,
        "type_as": lambda x, y: x.type_as(y) + y,
        "linspace": lambda x, y: torch.linspace(0, 5, 7, dtype=y.dtype) * x.flatten()[0],
        "arange": lambda x, y: torch.arange(1, 5, dtype=y.dtype) + x,
    },
}


def pairs() -> list[tuple[str, str]]:
    """Family of operations, and two dtypes, as ``f32+i64``."""
    return [
        (family, f"{left}+{right}")
        for family in _FAMILIES
        for left, right in itertools.product(DTYPES, DTYPES)
    ]


def calls(family: str, dtypes: str, seed: int) -> tuple[Sequence[Call], Sequence[Any]]:
    """Each operation of a family on each form of its operands, and the tensors: ``x`` of 3 by 4, ``y`` of 4,
    and one number of each dtype.
    """
    left, right = dtypes.split("+")
    torch.manual_seed(seed)
    x, y, scalar, other = (
        _drawn(dtype, shape) for dtype, shape in ((left, (3, 4)), (right, (4,)), (left, ()), (right, ()))
    )
    if (
        right == "u8" and family == "dtypes" and x.is_floating_point()
    ):  # what a negative float is in bytes is not defined
        x, scalar = x.abs(), scalar.abs()
    forms: dict[str, Callable[[_Pair], Callable[..., Any]]] = {
        "x, y": lambda f: lambda x, y, scalar, other: f(x, y),
        "x, 0-d": lambda f: lambda x, y, scalar, other: f(x, other),
        "0-d, y": lambda f: lambda x, y, scalar, other: f(scalar, y),
        "0-d, 0-d": lambda f: lambda x, y, scalar, other: f(scalar, other),
    }
    if right in _NUMBERS:
        number = _NUMBERS[right]
        forms["x, number"] = lambda f: lambda x, y, scalar, other: f(x, number)
        forms["0-d, number"] = lambda f: lambda x, y, scalar, other: f(scalar, number)
    if left in _NUMBERS:
        first = _NUMBERS[left]
        forms["number, y"] = lambda f: lambda x, y, scalar, other: f(first, y)
    variants = [
        Call(f"{name}({form})", call(function))
        for name, function in _FAMILIES[family].items()
        for form, call in forms.items()
    ]
    return variants, (x, y, scalar, other)


def _drawn(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Small numbers, none of them 0 but ``False``; not whole in floats."""
    kind = DTYPES[dtype]
    if kind == torch.bool:
        return torch.rand(shape) < 0.6
    sign = 1 if kind == torch.uint8 else torch.where(torch.rand(shape) < 0.4, -1, 1)
    whole = torch.randint(1, 8, shape) * sign
    return (whole + torch.randint(0, 4, shape) * 0.25 if kind.is_floating_point else whole).to(kind)
