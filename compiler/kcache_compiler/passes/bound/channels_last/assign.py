"""Computes regions around convolutions channels-last where that is faster, if weights are bound."""

from __future__ import annotations

from collections.abc import Collection

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build
from kcache_compiler.passes.bound.channels_last.convolution import is_movable, move
from kcache_compiler.passes.bound.channels_last.grouped import split_groups
from kcache_compiler.passes.bound.channels_last.operations import REWRITES
from kcache_compiler.passes.bound.channels_last.state import Layouts, Region
from kcache_compiler.passes.bound.dependence import bound_values, erase_unused, read_values

#: Bytes that are converted at the boundary of a region for each byte that its convolutions access, at most.
MOST_CONVERTED = 0.5


def assign_layouts(source: str, bound: Collection[int]) -> str:
    """The module ``source`` with channels last in the regions in which that pays."""
    kept: set[int] = set()
    while True:
        module = mlir.parse(source)
        body = mlir.block_of(mlir.main_function(module))
        regions = _rewrite(body, bound, kept)
        rejected = [region for region in regions if region.converted > MOST_CONVERTED * region.accessed]
        if not rejected:
            return mlir.whole_text(module) if split_groups(body) or regions else source
        kept.update(number for region in rejected for number in region.convolutions)


def _rewrite(body: mlir.Block, bound: Collection[int], kept: Collection[int]) -> list[Region]:
    """Compute convolutions with channels last, but not those at the positions ``kept``; returns regions."""
    layouts = Layouts(bound_values(body, bound))
    for number, op in enumerate(mlir.operations(body)):
        with mlir.before(op), mlir.at_location(op):
            if number not in kept and is_movable(op, layouts.bound):
                region = Region(
                    [number], sum(build.bytes_of(value) for value in (op.operands[0], op.results[0]))
                )
                layouts.regions.append(region)
                move(op, layouts, region)
                continue
            laid = [layouts.laid[value] for value in op.operands if value in layouts.laid]
            rewrite = REWRITES.get(mlir.name_of(op)) if laid and build.is_static(op) else None
            if rewrite is None or not rewrite(op, layouts, laid[0]):
                _keep(op, body, layouts)
    erase_unused(body)
    return list({id(region.root()): region.root() for region in layouts.regions}.values())


def _keep(op: mlir.Op, body: mlir.Block, layouts: Layouts) -> None:
    """Let ``op`` and operations in its regions read values as the program has them."""
    for value in read_values(op):
        if value in layouts.laid:
            plain = layouts.plain(value)
            for reader, position in list(mlir.uses(value)):
                if mlir.within_block(reader, body) == op:
                    reader.operands[position] = plain
