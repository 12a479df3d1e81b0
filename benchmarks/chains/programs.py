"""The programs: a chain of operations of one kind, or of all kinds of plain f32 in turn; networks."""

from __future__ import annotations

from benchmarks.chains.elementwise import ELEMENTWISE
from benchmarks.chains.kind import Kind
from benchmarks.chains.networks import NETWORKS
from benchmarks.chains.open_sizes import OPEN_SIZES
from benchmarks.chains.plain import PLAIN
from benchmarks.chains.structured import STRUCTURED

KINDS: dict[str, Kind] = {
    **{name: Kind(step) for name, step in PLAIN.items()},
    **ELEMENTWISE,
    **STRUCTURED,
    **OPEN_SIZES,
}
#: All kinds of ``PLAIN`` in turn.
MIXED = "mixed"
_GIVEN = "%k: tensor<3x8x8xf32>, %j: tensor<8xi32>, %i: tensor<i32>, %t: tensor<i32>"


def program(kind: str, count: int) -> str:
    """The program of a kind, of ``mixed``, or of a network, which has its own number of operations."""
    return NETWORKS[kind]() if kind in NETWORKS else chain(kind, count)


def chain(kind: str, count: int) -> str:
    """A program of ``count`` operations, each of which takes what the one before gave."""
    kinds = [KINDS[name] for name in PLAIN] if kind == MIXED else [KINDS[kind]]
    value = kinds[0].value
    steps = [
        kinds[number % len(kinds)].step.format(
            x=f"%v{number}" if number else "%x", y=f"%v{number + 1}", n=number, odd=number % 2
        )
        for number in range(count)
    ]
    arguments = ", ".join(
        [
            f"%x: {value}, %w: {value}, {_GIVEN}",
            *dict.fromkeys(member.given for member in kinds if member.given),
        ]
    )
    body = "\n".join(["%z = stablehlo.constant dense<0.0> : tensor<f32>", *steps])
    functions = "".join(dict.fromkeys(member.functions for member in kinds))
    return f"{functions}func.func @main({arguments}) -> {value} {{\n{body}\nreturn %v{count} : {value}\n}}\n"


__all__ = ["KINDS", "MIXED", "NETWORKS", "chain", "program"]
