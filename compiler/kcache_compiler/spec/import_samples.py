"""Dynamic axes of programs that are imported at sample sizes: axes on which the spec does not depend.

Importers of ONNX and Torch models fold sizes that the program computes, so a program with dynamic axes is
imported at several sizes. If the specs are equal, the axes are symbols of unknown size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.types import ArgSpec, Canonical, Dim, TensorType

_SYMBOL = re.compile(r"s(\d+)")


def with_dynamic_axes(
    canonical: Canonical, other: Canonical, axes: Mapping[tuple[int, int], str], format: str
) -> Canonical:
    """Return ``canonical`` with symbols of unknown size for ``axes``, which are named by (argument, axis).

    ``other`` is the same program, of ``format``, at other sizes of the axes. Raises ``UnsupportedOp`` if the
    spec depends on one.
    """
    for (arg, axis), name in axes.items():
        if isinstance(canonical.symbolic_args[arg].dims[axis], int):
            raise _fixed_axes([name], format)
    if canonical.spec_text != other.spec_text:
        raise _fixed_axes(sorted(set(axes.values())), format)
    unknown: set[int] = set()
    args: list[TensorType] = []
    for arg, (kind, erased) in enumerate(zip(canonical.arg_spec.args, canonical.symbolic_args, strict=True)):
        dims: list[Dim] = list(kind.dims)
        for axis, dim in enumerate(erased.dims):
            if (arg, axis) in axes:
                dims[axis] = dim
                unknown.update(int(index) for index in _SYMBOL.findall(str(dim)))
        args.append(TensorType(kind.dtype, tuple(dims)))
    values = tuple(-1 if i in unknown else value for i, value in enumerate(canonical.symbol_values))
    results = tuple(_common_type(a, b) for a, b in zip(canonical.results, other.results, strict=True))
    return replace(canonical, arg_spec=ArgSpec(tuple(args)), symbol_values=values, results=results)


def _common_type(first: TensorType, second: TensorType) -> TensorType:
    """A result type with ``?`` for sizes that depend on a dynamic axis."""
    dims = tuple(a if a == b else "?" for a, b in zip(first.dims, second.dims, strict=True))
    return TensorType(first.dtype, dims)


#: Format -> the name of a dynamic axis there, and how to make it static.
_ADVICE = {
    "graph": ("kcache.v1.Graph", "give the axis a size"),
    "onnx": ("onnx.dim_param", "give the model a size for it, as onnx.tools.update_model_dims does"),
    "torch": ("torch.sym_size", "export it without dynamic_shapes, once for each size"),
}


def _fixed_axes(names: list[str], format: str) -> UnsupportedOp:
    dims = ", ".join(map(repr, names))
    op, advice = _ADVICE[format]
    reason = f"the program computes with the size of {dims}, or requires a static size, of a dynamic axis"
    return UnsupportedOp(op, f"{reason}: {advice}")
