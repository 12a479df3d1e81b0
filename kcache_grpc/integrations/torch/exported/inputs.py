"""What an exported program accepts: dtypes, devices and sizes of its inputs, and the guards on its sizes."""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from kcache_grpc.errors import ArgumentError
from kcache_grpc.integrations.torch.dynamo.aot.guard_text import is_guard_text, size_count

torch: Any = import_module("torch")

_DTYPES = {str(value): value for name in dir(torch) if isinstance(value := getattr(torch, name), torch.dtype)}
_SIZE = re.compile(r"\bL_t([0-9]+)\b")
_READABLE = re.compile(r"L\['t([0-9]+)'\]")
#: The lower bound of every dynamic size, which modules of torch.export do not check.
_LEAST = 2


@dataclass(frozen=True)
class TensorInput:
    """``sizes``: ``None`` for a dynamic size."""

    name: str
    dtype: Any
    device: str
    sizes: tuple[int | None, ...]


@dataclass(frozen=True)
class ScalarInput:
    """``dynamic``: any integer, else only ``value``."""

    name: str
    value: Any
    dynamic: bool


Input = TensorInput | ScalarInput


@dataclass(frozen=True)
class Inputs:
    """The leaves of a call's arguments, in order.

    ``guards``: expressions of the dynamic sizes, numbered in order: ``L['t0']`` is the first.
    """

    inputs: tuple[Input, ...]
    guards: tuple[str, ...]

    def check(self, leaves: Sequence[Any]) -> None:
        """Raise ``ArgumentError`` for leaves that the program was not exported for."""
        sizes: list[int] = []
        for spec, value in zip(self.inputs, leaves, strict=True):
            if isinstance(spec, TensorInput):
                _check_tensor(spec, value, sizes)
            else:
                _check_scalar(spec, value, sizes)
        for guard, holds in zip(self.guards, self._predicates, strict=True):
            if not holds(sizes):
                raise ArgumentError(
                    f"the sizes of the inputs do not satisfy a guard of the exported program: "
                    f"{self._readable(guard)}"
                )

    @functools.cached_property
    def _predicates(self) -> tuple[Callable[[Sequence[int]], bool], ...]:
        return tuple(map(_predicate, self.guards))

    def _readable(self, guard: str) -> str:
        names: list[str] = []
        for spec in self.inputs:
            if isinstance(spec, ScalarInput):
                names += [spec.name] if spec.dynamic else []
            else:
                names += [
                    f"{spec.name}.shape[{axis}]" for axis, size in enumerate(spec.sizes) if size is None
                ]
        return _READABLE.sub(lambda match: names[int(match.group(1))], guard)


def _check_tensor(spec: TensorInput, value: Any, sizes: list[int]) -> None:
    if not isinstance(value, torch.Tensor):
        raise ArgumentError(
            f"input {spec.name} is a {type(value).__name__}, not a tensor", argument=spec.name
        )
    if value.dtype is not spec.dtype:
        raise ArgumentError(
            f"input {spec.name} has dtype {value.dtype}, and the program was exported for {spec.dtype}",
            argument=spec.name,
        )
    if str(value.device) != spec.device:
        raise ArgumentError(
            f"input {spec.name} is on {value.device}, and the program was exported for {spec.device}",
            argument=spec.name,
        )
    shape = value.shape
    expected = [size is None or size == actual for size, actual in zip(spec.sizes, shape, strict=False)]
    if len(shape) != len(spec.sizes) or not all(expected):
        text = ", ".join("*" if size is None else str(size) for size in spec.sizes)
        raise ArgumentError(
            f"input {spec.name} has shape {tuple(shape)}, and the program was exported for ({text})",
            argument=spec.name,
        )
    sizes += [actual for size, actual in zip(spec.sizes, shape, strict=True) if size is None]


def _check_scalar(spec: ScalarInput, value: Any, sizes: list[int]) -> None:
    if spec.dynamic:
        if type(value) is not int:
            raise ArgumentError(
                f"input {spec.name} is {value!r}, and the program takes an integer", argument=spec.name
            )
        sizes.append(value)
        return
    both_nan = isinstance(value, float) and math.isnan(value) and spec.value != spec.value
    if type(value) is not type(spec.value) or not (value == spec.value or both_nan):
        raise ArgumentError(
            f"input {spec.name} is {value!r}, and the program was exported for {spec.value!r} only: "
            "export it again for another value",
            argument=spec.name,
        )


def _predicate(guard: str) -> Callable[[Sequence[int]], bool]:
    """The function of a guard whose text was verified."""
    tree: Any = ast.fix_missing_locations(ast.parse(guard, mode="eval"))
    code = compile(tree, "<guard>", "eval")
    names: dict[str, Any] = {"__builtins__": {}, "math": math, "torch": torch}
    names |= {"abs": abs, "max": max, "min": min, "int": int, "float": float, "bool": bool}

    def holds(sizes: Sequence[int]) -> bool:
        scope = {"L": {f"t{index}": size for index, size in enumerate(sizes)}}
        return bool(eval(code, names, scope))  # noqa: S307 - is_guard_text accepted it

    return holds


# From an exported program.


def inputs_of(placeholders: Sequence[Any], constants: Mapping[str, Any], ranges: Mapping[Any, Any]) -> Inputs:
    """The inputs of an exported program.

    ``placeholders``: nodes of the user's inputs, in order. ``constants``: values of those that are no
    tensors, by name. ``ranges``: symbol -> its limits. Raises ``ArgumentError`` for a guard without a text.
    """
    sizes: list[Any] = []
    inputs: list[Input] = []
    for node in placeholders:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            dynamic = [size for size in value.shape if not isinstance(size, int)]
            shape = tuple(size if isinstance(size, int) else None for size in value.shape)
            inputs.append(TensorInput(node.name, value.dtype, str(value.device), shape))
            sizes += dynamic
        elif isinstance(value, torch.SymInt):
            inputs.append(ScalarInput(node.name, None, True))
            sizes.append(value)
        elif node.name in constants:
            inputs.append(ScalarInput(node.name, constants[node.name], False))
        else:
            raise ArgumentError(
                f"input {node.name} of the exported program is a {type(value).__name__}; kcache takes "
                "tensors, integers and constants"
            )
    return Inputs(tuple(inputs), _guards(sizes, ranges))


def _guards(sizes: Sequence[Any], ranges: Mapping[Any, Any]) -> tuple[str, ...]:
    """Relations between the sizes, their ranges, and the guards of the export."""
    if not sizes:
        return ()
    sympy: Any = import_module("sympy")
    names = [sympy.Symbol(f"L_t{index}", integer=True) for index in range(len(sizes))]
    solutions = _solutions(sizes, names)
    conditions: list[Any] = []
    for size, name in zip(sizes, names, strict=True):
        formula = size.node.expr
        if formula.free_symbols <= set(solutions):
            conditions.append(sympy.Eq(name, formula.xreplace(solutions)))
    for symbol, limits in ranges.items():
        if symbol in solutions:
            conditions += _limits(solutions[symbol], limits)
    for guard in sizes[0].node.shape_env.guards:
        if getattr(guard.expr, "free_symbols", None) and guard.expr.free_symbols <= set(solutions):
            conditions.append(guard.expr.xreplace(solutions))
    texts = [_text(condition) for condition in conditions if condition not in (True, sympy.true)]
    return tuple(dict.fromkeys(texts))


def _solutions(sizes: Sequence[Any], names: Sequence[Any]) -> dict[Any, Any]:
    """Symbol -> its value, as a formula of the sizes that show it."""
    functions: Any = import_module("torch.utils._sympy.functions")
    solutions: dict[Any, Any] = {}
    for size, name in zip(sizes, names, strict=True):
        if size.node.expr.is_Symbol:
            solutions.setdefault(size.node.expr, name)
    for size, name in zip(sizes, names, strict=True):
        formula = size.node.expr
        if len(formula.free_symbols) != 1:
            continue
        (symbol,) = formula.free_symbols
        offset = formula.subs(symbol, 0)
        factor = formula.subs(symbol, 1) - offset
        if symbol not in solutions and factor != 0 and (formula - factor * symbol - offset).expand() == 0:
            solutions[symbol] = functions.FloorDiv(name - offset, factor)
    return solutions


def _limits(formula: Any, limits: Any) -> list[Any]:
    sympy: Any = import_module("sympy")
    conditions: list[Any] = []
    if limits.lower.is_Integer and int(limits.lower) > _LEAST:
        conditions.append(sympy.Ge(formula, limits.lower))
    if limits.upper.is_Integer and int(limits.upper) < 1 << 62:
        conditions.append(sympy.Le(formula, limits.upper))
    return conditions


def _text(condition: Any) -> str:
    printers: Any = import_module("torch.utils._sympy.printers")
    text = _SIZE.sub(r"L['t\1']", printers.PythonPrinter().doprint(condition))
    if not is_guard_text(text):
        raise ArgumentError(f"the exported program has a guard that kcache cannot evaluate: {condition}")
    return text


# JSON.


def dtype_named(name: str) -> Any:
    """A dtype by its text, such as ``torch.float32``. Raises ``KeyError``."""
    return _DTYPES[name]


def encode_inputs(inputs: Inputs) -> dict[str, Any]:
    """The inputs as JSON values. Raises ``ArgumentError`` for constants that JSON does not have."""
    return {"inputs": [_encode_input(each) for each in inputs.inputs], "guards": list(inputs.guards)}


def _encode_input(spec: Input) -> list[Any]:
    if isinstance(spec, TensorInput):
        return ["tensor", spec.name, str(spec.dtype), spec.device, list(spec.sizes)]
    value = {"float": spec.value.hex()} if type(spec.value) is float else spec.value
    if spec.value is not None and type(spec.value) not in (bool, int, float, str):
        raise ArgumentError(f"input {spec.name} is the constant {spec.value!r}, which JSON does not have")
    return ["integer", spec.name] if spec.dynamic else ["constant", spec.name, value]


def decode_inputs(data: Any) -> Inputs:
    """Raises ``ValueError``, ``KeyError`` or ``TypeError`` for other JSON values."""
    inputs = Inputs(tuple(map(_decode_input, data["inputs"])), tuple(map(str, data["guards"])))
    dynamic = sum(
        each.sizes.count(None) if isinstance(each, TensorInput) else each.dynamic for each in inputs.inputs
    )
    if not all(is_guard_text(guard) and size_count(guard) <= dynamic for guard in inputs.guards):
        raise ValueError("a guard is no expression of the sizes")
    return inputs


def _decode_input(data: Any) -> Input:
    match data:
        case ["tensor", str() as name, str() as dtype, str() as device, sizes]:
            shape = tuple(cast("list[int | None]", sizes))
            if not all(size is None or (type(size) is int and size >= 0) for size in shape):
                raise ValueError("a size of an input is no integer")
            return TensorInput(name, dtype_named(dtype), device, shape)
        case ["integer", str() as name]:
            return ScalarInput(name, None, True)
        case ["constant", str() as name, {"float": str() as value}]:
            return ScalarInput(name, float.fromhex(value), False)
        case ["constant", str() as name, None | bool() | int() | str() as value]:
            return ScalarInput(name, value, False)
        case _:
            raise ValueError("an input is not described")
