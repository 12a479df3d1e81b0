"""Checks constraints of the StableHLO specification that the toolchain's verifier does not check."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from torch_mlir.ir import WalkResult

    from kcache_compiler.mlir.types import Module, Op

#: Algorithm of random bits -> allowed sizes of its state; the default algorithm is Philox.
_STATE_SIZES = {"THREE_FRY": (2,), "PHILOX": (2, 3), "DEFAULT": (2, 3)}


def check_constraints(module: Module, names: set[str]) -> None:
    """Raise ``InvalidProgram`` for the first operation that violates a constraint.

    ``names`` are the names of the operations in the module.
    """
    if not names & _CHECKS.keys():
        return
    ir = mlir.native_ir()
    violations: list[str] = []

    def visit(operation: Op) -> WalkResult:
        check = _CHECKS.get(operation.name)
        reason = check(operation) if check is not None else ""
        if not reason:
            return ir.WalkResult.ADVANCE
        location = mlir.describe_location(operation.location)
        violations.append(f"{operation.name}{' at ' + location if location else ''}: {reason}")
        return ir.WalkResult.INTERRUPT

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    if violations:
        raise InvalidProgram(violations[0])


def _check_rng_state(operation: Op) -> str:
    """Return the violated constraint on the size of the state, or an empty string."""
    algorithm = str(operation.attributes["rng_algorithm"]).rstrip(">").rpartition(" ")[2]
    sizes = list(lazy.tensor_of(operation.operands[0]).shape)
    allowed = _STATE_SIZES.get(algorithm, ())
    if len(sizes) == 1 and sizes[0] in allowed:
        return ""
    counts = " or ".join(map(str, allowed))
    return f"initial_state must have {counts} elements for {algorithm}, not the shape {sizes}"


def _check_einsum(operation: Op) -> str:
    """Check that each letter has one size, and that the result's letters are distinct and known."""
    config = lazy.string(operation.attributes["einsum_config"])
    inputs, arrow, result = config.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not arrow or len(terms) != len(operation.operands):
        return f'einsum_config "{config}" must name each operand and the result'
    if "." in config:  # an ellipsis, which code generation rejects
        return ""
    if len(set(result)) != len(result) or not set(result) <= set("".join(terms)):
        return f'the result of einsum_config "{config}" must use letters of the operands, each once'
    sizes: dict[str, int] = {}
    for letters, value in zip([*terms, result], [*operation.operands, operation.results[0]], strict=True):
        shape = list(lazy.tensor_of(value).shape)
        if len(shape) != len(letters):
            return f'einsum_config "{config}" has {len(letters)} letters for the type {value.type}'
        for axis, (letter, size) in enumerate(zip(letters, shape, strict=True)):
            if not lazy.tensor_of(value).is_dynamic_dim(axis) and sizes.setdefault(letter, size) != size:
                return f'"{letter}" of einsum_config "{config}" has the sizes {sizes[letter]} and {size}'
    return ""


def _check_scatter(operation: Op) -> str:
    """Check that updates have the element types of their inputs."""
    types = [str(lazy.tensor_of(value).element_type) for value in operation.operands]
    count = len(types) // 2
    for input, update in zip(types[:count], types[count + 1 :], strict=True):
        if input != update and "!" not in input + update:
            return f"updates must have the element type of their inputs: {update} is scattered into {input}"
    return ""


def _check_top_k(operation: Op) -> str:
    """Check that k is between 0 and the size of the last dimension."""
    type, k = lazy.tensor_of(operation.operands[0]), lazy.integer(operation.attributes["k"])
    if k < 0:
        return f"k must be at least 0, not {k}"
    last_dim = type.rank - 1
    if last_dim >= 0 and not type.is_dynamic_dim(last_dim) and k > type.shape[last_dim]:
        return f"k must be at most the size of the last dimension, {type.shape[last_dim]}, not {k}"
    return ""


_CHECKS: dict[str, Callable[[Op], str]] = {
    "chlo.top_k": _check_top_k,
    "stablehlo.einsum": _check_einsum,
    "stablehlo.rng_bit_generator": _check_rng_state,
    "stablehlo.scatter": _check_scatter,
    "stablehlo.unary_einsum": _check_einsum,
}
