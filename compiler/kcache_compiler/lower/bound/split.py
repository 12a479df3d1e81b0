"""Splits a program by what depends on bound arguments only.

``main`` of the *prepare* program takes the bound arguments and returns the prepared values; ``main`` of the
*run* program takes the other arguments, then the prepared values. Operations that depend on no argument are
in both. An operation on bound arguments only stays in the run program if its result is much larger than what
it is computed from: a broadcast costs more to read than to compute. A conversion of half-precision elements
stays there too, as products widen these elements themselves.

A program with symbolic sizes is split at samples of these: operations that differ between the samples, and
what is computed with them, stay in the run program.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kcache_compiler.errors import CompileFailed
from kcache_compiler.lower.bound.weights_right import move_weights_right
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import func
from kcache_compiler.passes.bound.dependence import erase_unused, read_values, sources_of
from kcache_compiler.passes.bufferization.signature import dtype_of
from kcache_compiler.types import DTYPE_BYTES

#: Bytes of a prepared value for each byte of the arguments that it depends on, at most: of an operation that
#: computes each element from few others, and of any other one.
GROWTH, MOST_GROWTH = 4, 64
#: Elements that products read as they are, and widen themselves.
NARROW = ("bf16", "f16")
EXPENSIVE = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("cholesky", "composite", "convolution", "custom_call", "dot", "dot_general", "fft", "gather"),
        *("batch_norm_inference", "rng_bit_generator", "triangular_solve"),
    )
)


@dataclass(frozen=True)
class Prepared:
    """A value of ``main``: result ``index`` of operation ``operation``, or argument ``index`` (-1)."""

    operation: int
    index: int

    @property
    def argument(self) -> int | None:
        """The argument that it is; None for a result."""
        return self.index if self.operation < 0 else None


@dataclass(frozen=True)
class Split:
    """A program, the positions of its bound arguments, and the values that are prepared, with their shapes.

    ``extents`` of the last arguments stay the last ones of the run program.
    """

    source: str
    bound: tuple[int, ...]
    values: tuple[Prepared, ...]
    shapes: tuple[tuple[int, ...], ...]
    extents: int = 0

    def prepare_text(self, values: Sequence[Prepared]) -> str:
        """The program that takes the bound arguments and returns ``values``."""
        module = mlir.parse(self.source)
        main = mlir.main_function(module)
        body = mlir.block_of(main)
        results = _values(body, values)
        _return(body, results)
        erase_unused(body, impure=True)
        _set_arguments(main, [index for index in range(len(body.arguments)) if index not in self.bound])
        return mlir.whole_text(module)

    def run_text(self) -> str:
        """The program that takes the other arguments, then ``values``, then extents."""
        module = mlir.parse(self.source)
        main = mlir.main_function(module)
        body = mlir.block_of(main)
        count = len(body.arguments)
        last = range(count - self.extents, count)
        added: list[mlir.Value] = []
        for value in _values(body, self.values):
            added.append(body.add_argument(value.type, mlir.unknown_location()))
            value.replace_all_uses_with(added[-1])
        erase_unused(body)
        move_weights_right(body, added)
        for argument in [body.arguments[index] for index in last]:
            moved = body.add_argument(argument.type, mlir.unknown_location())
            argument.replace_all_uses_with(moved)
        _set_arguments(main, {*self.bound, *last})
        return mlir.whole_text(module)


def split(source: str, bound: Collection[int], samples: Sequence[str] = (), extents: int = 0) -> Split:
    """Split the module ``source`` by the positions of its bound arguments. All sizes are static.

    ``samples``: the module at other values of its symbolic sizes. Raises ``CompileFailed`` if the operations
    of these are not the same.
    """
    module = mlir.parse(source)
    body = mlir.block_of(mlir.main_function(module))
    ops = mlir.operations(body)
    sources = sources_of(body, bound, _varying(ops, samples))
    prepared: set[Prepared] = set()
    needed: set[mlir.Value] = set()
    for number, op in reversed(list(enumerate(ops))):
        results = [index for index, result in enumerate(op.results) if result in needed]
        depends = sources[number]
        if depends and results and _is_prepared(op, depends, body):
            prepared.update(Prepared(number, index) for index in results)
        elif depends is None or (depends and results):
            needed.update(read_values(op))
    prepared.update(Prepared(-1, index) for index in bound if body.arguments[index] in needed)
    if not prepared:  # of a program that uses no bound argument
        smallest = min(bound, key=lambda index: _bytes(body.arguments[index].type))
        prepared.add(Prepared(-1, smallest))
    ordered = sorted(prepared, key=lambda value: (value.operation, value.index))
    shapes = [[size or 0 for size in mlir.sizes_of(value.type)] for value in _values(body, ordered)]
    return Split(source, tuple(sorted(bound)), tuple(ordered), tuple(map(tuple, shapes)), extents)


def _varying(ops: Sequence[mlir.Op], samples: Sequence[str]) -> set[int]:
    """The positions of operations whose types or attributes have symbolic sizes."""
    varying: set[int] = set()
    for sample in samples:
        module = mlir.parse(sample)
        others = mlir.operations(mlir.block_of(mlir.main_function(module)))
        if list(map(mlir.name_of, others)) != list(map(mlir.name_of, ops)):
            raise CompileFailed("sizes", "rewrites of the program depend on a size")
        pairs = enumerate(zip(ops, others, strict=True))
        varying.update(number for number, pair in pairs if len(set(map(mlir.local_text, pair))) > 1)
    return varying


def _is_prepared(op: mlir.Op, sources: frozenset[int], body: mlir.Block) -> bool:
    """Whether results are small enough compared with the arguments that they are computed from."""
    if _widens(op):
        return False
    expensive = mlir.name_of(op) in EXPENSIVE or mlir.has_regions(op)
    read = sum(_bytes(body.arguments[index].type) for index in sources)
    written = sum(_bytes(result.type) for result in op.results)
    return written <= read * (MOST_GROWTH if expensive else GROWTH)


def _widens(op: mlir.Op) -> bool:
    """Whether an operation only widens half-precision elements, which products read as they are."""
    if mlir.name_of(op) != "stablehlo.convert":
        return False
    return dtype_of(mlir.element_type(op.operands[0].type)) in NARROW


def _bytes(kind: mlir.Type) -> int:
    total = DTYPE_BYTES[dtype_of(mlir.element_type(kind))]
    for size in mlir.sizes_of(kind):
        total *= size or 0
    return total


def _values(body: mlir.Block, values: Sequence[Prepared]) -> list[mlir.Value]:
    ops, arguments = mlir.operations(body), body.arguments
    return [
        ops[value.operation].results[value.index] if value.argument is None else arguments[value.argument]
        for value in values
    ]


def _return(body: mlir.Block, results: Sequence[mlir.Value]) -> None:
    returned = mlir.last(body)
    with mlir.before(returned):
        func.return_(results)
    returned.erase()


def _set_arguments(main: mlir.Op, erased: Collection[int]) -> None:
    """Erase arguments without uses, and set the type of ``main`` to those of its arguments and results."""
    body = mlir.block_of(main)
    for index in sorted(erased, reverse=True):
        body.erase_argument(index)
    arguments = [argument.type for argument in body.arguments]
    results = [operand.type for operand in mlir.last(body).operands]
    main.attributes["function_type"] = mlir.type_attr(mlir.function_type(arguments, results))
    for name in ("arg_attrs", "res_attrs"):
        if name in main.attributes:
            del main.attributes[name]
