"""Constraints of the specification that the toolchain's verifier does not check."""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

#: Elements of the state of each algorithm of random bits; the default is Philox here.
_STATES = {"THREE_FRY": (2,), "PHILOX": (2, 3), "DEFAULT": (2, 3)}


def check_constraints(module: Native, names: set[str]) -> None:
    """Raise ``InvalidProgram`` for the first operation that breaks one; ``names`` are those that occur."""
    if not names & _TABLE.keys():
        return
    ir = mlir.native_ir()
    broken: list[str] = []

    def visit(operation: Native) -> Native:
        check = _TABLE.get(operation.name)
        reason = check(operation) if check is not None else ""
        if not reason:
            return ir.WalkResult.ADVANCE
        where = mlir.describe_location(operation.location)
        broken.append(f"{operation.name}{' at ' + where if where else ''}: {reason}")
        return ir.WalkResult.INTERRUPT

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    if broken:
        raise InvalidProgram(broken[0])


def _state(operation: Native) -> str:
    algorithm = str(operation.attributes["rng_algorithm"]).rstrip(">").rpartition(" ")[2]
    sizes = list(operation.operands[0].type.shape)
    wanted = _STATES.get(algorithm, ())
    if len(sizes) == 1 and sizes[0] in wanted:
        return ""
    counts = " or ".join(map(str, wanted))
    return f"initial_state has {counts} elements for {algorithm}, and {sizes} here"


def _einsum(operation: Native) -> str:
    """Each letter is an axis of one size; the result has some of them once."""
    config = operation.attributes["einsum_config"].value
    given, arrow, result = config.replace(" ", "").partition("->")
    terms = given.split(",")
    if not arrow or len(terms) != len(operation.operands):
        return f'einsum_config names each operand and the result, and is "{config}"'
    if "." in config:  # any number of axes, which code generation refuses
        return ""
    if len(set(result)) != len(result) or not set(result) <= set("".join(terms)):
        return f'the result of einsum_config "{config}" has letters of the operands, each once'
    sizes: dict[str, int] = {}
    for letters, value in zip([*terms, result], [*operation.operands, operation.results[0]], strict=True):
        shape = list(value.type.shape)
        if len(shape) != len(letters):
            return f'einsum_config "{config}" has {len(letters)} letters for {value.type}'
        for axis, (letter, size) in enumerate(zip(letters, shape, strict=True)):
            if not value.type.is_dynamic_dim(axis) and sizes.setdefault(letter, size) != size:
                return f'"{letter}" of einsum_config "{config}" is {sizes[letter]} and {size}'
    return ""


def _scatter(operation: Native) -> str:
    """Updates have the elements of what they go into."""
    types = [str(value.type.element_type) for value in operation.operands]
    count = len(types) // 2
    for into, update in zip(types[:count], types[count + 1 :], strict=True):
        if into != update and "!" not in into + update:
            return f"updates have the elements of their inputs, and {update} goes into {into} here"
    return ""


def _top_k(operation: Native) -> str:
    """No more than there are, and none is less than none."""
    kind, count = operation.operands[0].type, operation.attributes["k"].value
    if count < 0:
        return f"k is at least 0, and {count} here"
    last = kind.rank - 1
    if last >= 0 and not kind.is_dynamic_dim(last) and count > kind.shape[last]:
        return f"k is at most the size of the last axis, {kind.shape[last]}, and {count} here"
    return ""


_TABLE: dict[str, Callable[[Native], str]] = {
    "chlo.top_k": _top_k,
    "stablehlo.einsum": _einsum,
    "stablehlo.rng_bit_generator": _state,
    "stablehlo.scatter": _scatter,
    "stablehlo.unary_einsum": _einsum,
}
