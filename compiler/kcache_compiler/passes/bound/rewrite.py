"""All rewrites of a program with bound arguments, in order."""

from __future__ import annotations

from collections.abc import Collection

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound.affine_chains import shorten_chains
from kcache_compiler.passes.bound.channels_last.assign import assign_layouts
from kcache_compiler.passes.bound.channels_last.convolution import is_movable
from kcache_compiler.passes.bound.dependence import bound_values, erase_unused
from kcache_compiler.passes.bound.fold_scales import fold_scales
from kcache_compiler.passes.bound.split_axes import merge_split_axes
from kcache_compiler.passes.bound.transposed_convolutions import split_phases
from kcache_compiler.passes.sink_transposes import rewrite_transposes
from kcache_compiler.types import CompileOptions


def rewrite_bound(source: str, bound: Collection[int], options: CompileOptions) -> str:
    """The module ``source`` rewritten for the positions of its bound arguments; under ``strict`` as it is."""
    if options.numerics == "strict":
        return source
    module = mlir.parse(source)
    rewrite_transposes(module)
    body = mlir.block_of(mlir.main_function(module))
    fold_scales(body, bound_values(body, bound))
    split_phases(body, bound_values(body, bound))
    known = bound_values(body, bound)
    if any(is_movable(op, known) for op in mlir.operations(body)):
        merge_split_axes(body, known)
        shorten_chains(body, bound_values(body, bound))
        erase_unused(body)
    return assign_layouts(mlir.whole_text(module), bound)
