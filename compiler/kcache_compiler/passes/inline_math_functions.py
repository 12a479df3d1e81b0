"""Replace math operations by the bodies of the library's functions, in place.

Operations are cloned one by one before the operation that they replace: no pass runs, so nothing
else in the module changes, and the bodies may stand in `linalg.generic`, loops or functions alike.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.math.table import function

PREFIX = "kcm_"

#: Operations whose name differs from that of their function.
_NAMES = {"math.powf": "pow"}
#: Operations on integers that every target has, and those that are one IEEE operation in f32 and f64.
_KEPT_ALWAYS = frozenset({"math.absi", "math.ctlz", "math.cttz", "math.ctpop"})
_KEPT_FLOAT = frozenset(
    f"math.{n}" for n in ["fma", "sqrt", "absf", "copysign", "floor", "ceil", "trunc", "roundeven"]
)

_TYPE = re.compile(r"^(?:vector<((?:\d+x)+)(\w+)>|(\w+))$")


@dataclass(frozen=True)
class Call:
    """One use of a function: of element type ``dtype``, scalar or over a vector ``shape``."""

    name: str
    dtype: str
    shape: str | None = None
    integer: str | None = None
    scales: bool = False
    fast: bool = False

    @property
    def symbol(self) -> str:
        suffix = f"_v{self.shape}" if self.shape else ""
        suffix += f"_{self.integer}" if self.integer else ""
        return f"{PREFIX}{self.name}_{self.dtype}{suffix}"


@functools.cache
def text_of(call: Call) -> str:
    """The MLIR text of the function of ``call``."""
    return function(call.name, call.dtype, call.integer, call.scales, call.fast).text(call.symbol, call.shape)


def inline_math_functions(
    module: mlir.Module, scales: bool = False, fast: bool = False, least: int = 0
) -> None:
    """Replace, in place, every float operation of `math`, `arith.remf`, and every call of
    ``@kcm_<name>_<dtype>`` in ``module`` by operations that need no math library. ``scales``: the target
    multiplies f32 by powers of two in one instruction; results have the same bits. ``fast``: numerics are.
    Where all would take more than ``least`` operations, and that is not 0, calls of functions without
    loops stay calls, but for those of narrow floats.

    Raises UnsupportedOp, naming operation and location, for a function or type that the library
    does not have; the module is then partly expanded and of no further use.
    """
    results = [(op, call) for op in mlir.walk(module) if (call := _call_of(op)) is not None]
    uses = [(op, replace(call, scales=scales, fast=fast)) for op, call in results]
    if least and sum(_cost(call) for _, call in uses) > least:
        uses = [(op, call) for op, call in uses if not _may_stay(op, call)]
    if not uses:
        return
    templates = _templates(module, sorted({call for _, call in uses}, key=lambda call: call.symbol))
    for op, call in uses:
        _inline(op.operation, templates[1][call.symbol])
    if len(uses) == len(results):
        _drop_declarations(module)


def calls_library(module: mlir.Module) -> bool:
    """Whether ``inline_math_functions`` left calls of the math library in a module."""
    declared = any(_is_declaration(op) for op in mlir.operations(module.body))
    calls = mlir.named(module, "func.call") if declared else []
    return any(str(call.attributes["callee"]).startswith(f"@{PREFIX}") for call in calls)


def operation_cost(op: mlir.Op) -> int:
    """How many operations ``op`` stands for: many where it calls a function of the library."""
    if mlir.name_of(op) != "func.call":
        return 1
    call = _call_of(op)
    return 1 if call is None else _cost(call)


@functools.cache
def _cost(call: Call) -> int:
    return text_of(call).count("\n") - 2


def _may_stay(op: mlir.Op, call: Call) -> bool:
    plain = call.dtype not in ("f16", "bf16") and call.shape is None
    return plain and mlir.name_of(op) == "func.call" and "scf." not in text_of(call)


def _call_of(op: mlir.Op) -> Call | None:
    name: str = mlir.name_of(op)
    if name == "func.call":
        callee = str(op.operation.attributes["callee"]).removeprefix("@")
        return _checked(op, callee.removeprefix(PREFIX)) if callee.startswith(PREFIX) else None
    if name == "arith.remf":
        return _checked(op, "rem")
    if not name.startswith("math.") or name in _KEPT_ALWAYS:
        return None
    if name in _KEPT_FLOAT and _element(op, 0)[0] in ("f32", "f64"):
        return None
    return _checked(op, _NAMES.get(name, name.removeprefix("math.")))


def _checked(op: mlir.Op, name: str) -> Call:
    """The call that ``op`` stands for; ``name`` may end in the types of the operands."""
    dtype, shape = _element(op, 0)
    base = name.split(f"_{dtype}")[0]
    integer = _element(op, 1)[0] if base == "fpowi" else None
    call = Call(base, dtype, shape, integer)
    try:
        text_of(call)
    except UnsupportedOp as error:
        raise UnsupportedOp(error.op, error.reason, mlir.location_of(op)) from None
    return call


def _element(op: mlir.Op, index: int) -> tuple[str, str | None]:
    type_ = str(op.operation.operands[index].type)
    match = _TYPE.match(type_)
    if match is None:
        raise UnsupportedOp(mlir.name_of(op), f"operand of type {type_}", mlir.location_of(op))
    return (match[2], match[1]) if match[1] else (match[3], None)


def _templates(module: mlir.Module, calls: list[Call]) -> tuple[mlir.Module, dict[str, mlir.Op]]:
    """The parsed functions by symbol, and the module that owns them."""
    with module.operation.context:
        owner = mlir.parse("\n".join(text_of(call) for call in calls))
    results = {str(f.operation.attributes["sym_name"]).strip('"'): f.operation for f in owner.body.operations}
    return owner, results


def _inline(op: mlir.Op, template: mlir.Op) -> None:
    block = template.regions[0].blocks[0]
    values = dict(zip(block.arguments, op.operands, strict=True))
    at = mlir.before(op)
    for source in block.operations:
        source = source.operation
        if source.name == "func.return":
            op.results[0].replace_all_uses_with(values[source.operands[0]])
            break
        clone = source.clone(at)
        clone.operation.location = op.location  # pyright: ignore[reportAttributeAccessIssue] - its stub has no setter
        _remap(clone.operation, values)
        values.update(zip(source.results, clone.operation.results, strict=True))
    op.erase()


def _remap(clone: mlir.Op, values: dict[mlir.Value, mlir.Value]) -> None:
    nested = mlir.walk(clone) if len(clone.regions) else [clone]
    for inner in nested:
        operands = inner.operation.operands
        for i, operand in enumerate(operands):
            if operand in values:
                operands[i] = values[operand]


def _drop_declarations(module: mlir.Module) -> None:
    for op in mlir.operations(module.body):
        if _is_declaration(op):
            op.erase()


def _is_declaration(op: mlir.Op) -> bool:
    """A function of the math library, without its body."""
    name = mlir.symbol_of(op) if "sym_name" in op.attributes else ""
    return name.startswith(PREFIX) and not len(op.regions[0].blocks)
