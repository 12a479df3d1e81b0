"""Constraints of the specification that the toolchain's verifier does not check."""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.frontends import context as mlir
from kcache_compiler.frontends.context import Native

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


_TABLE: dict[str, Callable[[Native], str]] = {"stablehlo.rng_bit_generator": _state}
