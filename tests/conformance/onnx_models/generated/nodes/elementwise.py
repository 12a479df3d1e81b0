"""Draws operators that compute element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.onnx_models.generated.draw import (
    NARROW,
    NARROW_FLOATS,
    PLAIN,
    Dims,
    Draw,
    data_type,
    draws,
    dtype_of,
)

#: Operators of one input, and the attributes that some of them have.
_PLAIN = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh", "Erf"),
    *("Exp", "Floor", "HardSwish", "Identity", "IsNaN", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu"),
    *("Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh"),
)
_WITH: dict[str, dict[str, Callable[[Draw], Any]]] = {
    "Celu": {"alpha": lambda d: d.one([0.5, 1.0, 2.0])},
    "Elu": {"alpha": lambda d: d.one([0.5, 1.0, 2.0])},
    "Gelu": {"approximate": lambda d: d.one(["none", "tanh"])},
    "HardSigmoid": {"alpha": lambda d: d.one([0.2, 0.5]), "beta": lambda d: d.one([0.5, 0.25])},
    "IsInf": {"detect_negative": lambda d: d.int(0, 1), "detect_positive": lambda d: d.int(0, 1)},
    "LeakyRelu": {"alpha": lambda d: d.one([0.01, 0.5, 1.5])},
    "Selu": {"alpha": lambda d: d.one([1.0, 1.5]), "gamma": lambda d: d.one([1.0, 0.5])},
    "Shrink": {"lambd": lambda d: d.one([0.5, 1.0]), "bias": lambda d: d.one([0.0, 0.5, 1.0])},
    "Swish": {"alpha": lambda d: d.one([0.5, 1.0, 1.5])},
    "ThresholdedRelu": {"alpha": lambda d: d.one([0.0, 0.5, 1.5])},
}
_BINARY = (
    *("Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Greater", "GreaterOrEqual", "Less"),
    *("LessOrEqual", "Mul", "Or", "Sub", "Xor"),
)


@draws(*_PLAIN, *_WITH)
def unary(d: Draw) -> None:
    first = d.schema.inputs[0].type_str
    low = {"Acosh": 1.0, "Log": 0.1, "Sqrt": 0.0}.get(d.op, -3.0)
    d.tensor(d.dims(), first, low, 1 if d.op in ("Acos", "Asin", "Atanh") else 3)
    d.attributes = {name: draw(d) for name, draw in _WITH.get(d.op, {}).items() if d.coin(0.7)}


def broadcast(d: Draw, count: int) -> list[Dims]:
    """Shapes that broadcast to one."""
    whole = d.dims()
    return [
        tuple(1 if d.coin(0.2) else size for size in whole[d.int(0, len(whole)) if d.coin(0.4) else 0 :])
        for _ in range(count)
    ]


@draws(*_BINARY)
def binary(d: Draw) -> None:
    for dims in broadcast(d, 2):
        d.tensor(dims, d.schema.inputs[0].type_str)


@draws("Div", "Mod")
def quotient(d: Draw) -> None:
    left, right = broadcast(d, 2)
    name = d.type()
    d.tensor(left)
    divisors = d.array(name, right)
    if dtype_of(name).kind in "iu":
        divisors = np.where((divisors == 0) | (divisors == -1), divisors.dtype.type(2), divisors)
    d.add(divisors)
    if d.op == "Mod":
        d.attributes["fmod"] = int(dtype_of(name).kind not in "iu" or d.coin())


@draws("Pow")
def power(d: Draw) -> None:
    left, right = broadcast(d, 2)
    second = d.schema.inputs[1].type_str
    whole = dtype_of(d.type()).kind in "iu" or dtype_of(d.type(second)).kind in "iu"
    d.special = d.special and not whole
    d.tensor(left, "T", 0.3, 3)
    d.add(d.array(d.type(second), right, 0 if whole else -2, 2))


@draws("BitShift")
def shift(d: Draw) -> None:
    left, right = broadcast(d, 2)
    d.tensor(left)
    d.add(d.array(d.type(), right, 0, 7))
    d.attributes["direction"] = d.one(["LEFT", "RIGHT"])


@draws("PRelu")
def prelu(d: Draw) -> None:
    dims = d.dims()
    d.tensor(dims)
    d.tensor(tuple(1 if d.coin(0.3) else size for size in dims[d.int(0, len(dims)) :]))


@draws("Max", "Min", "Sum", "Mean")
def variadic(d: Draw) -> None:
    for dims in broadcast(d, d.int(1, 4)):
        d.tensor(dims)


@draws("Where")
def where(d: Draw) -> None:
    condition, left, right = broadcast(d, 3)
    d.add(d.random.random(condition) < 0.5)
    d.tensor(left)
    d.tensor(right)


@draws("Clip")
def clip(d: Draw) -> None:
    d.tensor(d.dims())
    low, high = (d.int(0, 1), d.int(1, 3))
    if d.version < 11:
        bounds = {"min": float(low), "max": float(high)}
        d.attributes = {name: bound for name, bound in bounds.items() if d.coin(0.7)}
        return
    for bound in (low, high):
        if d.coin(0.7):
            d.add(np.asarray(bound).astype(dtype_of(d.type())))
        else:
            d.skip()


@draws("Cast", "CastLike")
def cast(d: Draw) -> None:
    first, second = d.schema.inputs[0].type_str, "T2"
    target = d.type(second, (*PLAIN, *NARROW) if d.coin() else PLAIN)
    source = d.type(first, (*PLAIN, *NARROW) if d.coin(0.3) else PLAIN)
    kind = dtype_of(target).kind
    floats = target.startswith("float") or kind == "f"
    whole = dtype_of(source).kind in "iu"
    d.special = d.special and floats and not whole and source not in NARROW
    x = d.array(source, d.dims(), 0 if target[0] == "u" or source[0] == "u" else -3, 3)
    if d.special and target in NARROW_FLOATS:
        edges = [448, 464, 465, 500, 57344, 61440, 65000, 240, 248, 6, 7, 2**-7, 2**-10, 1.5 * 2**-10, 3e-6]
        edges = d.random.choice(np.array([*edges, *(-edge for edge in edges)]), x.shape)
        x = np.where(d.random.random(x.shape) < 0.4, edges, x.astype(np.float64)).astype(x.dtype)
    d.add(x)
    if d.op == "Cast":
        d.attributes["to"] = data_type(target)
        d.bind(second, target)
    else:
        d.add(np.zeros(d.dims(), dtype_of(target)))
    if target.startswith("float8") and "saturate" in d.schema.attributes and d.coin():
        d.attributes["saturate"] = d.int(0, 1)
    if target == "float8e8m0" and d.coin():
        d.attributes["round_mode"] = d.one(["up", "down", "nearest"])


@draws("BitCast")
def bit_cast(d: Draw) -> None:
    x = d.tensor(d.dims(), "T1")
    same = [name for name in PLAIN if dtype_of(name).itemsize == x.dtype.itemsize and name != "bool"]
    target = d.one(same) if x.dtype != np.bool_ else "bool"
    d.attributes["to"] = data_type(target)
    d.bind("T2", target)


@draws("Dropout")
def dropout(d: Draw) -> None:
    d.tensor(d.dims())
    d.outputs = d.int(1, 2)
    if d.version >= 12:
        if d.coin():
            d.add(np.asarray(0.5).astype(dtype_of(d.type("T1", ("float", "float16", "double")))), True)
            if d.coin():
                d.add(np.asarray(False), d.coin(0.8))
        return
    d.attributes["ratio"] = 0.5
