"""Programs whose open sizes the importer chose: the same spec at other sizes, and the sizes forgotten."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.types import ArgSpec, Canonical, Dim, TensorType

_SYMBOL = re.compile(r"s(\d+)")


def opened(
    made: Canonical, other: Canonical, open_axes: Mapping[tuple[int, int], str], format: str
) -> Canonical:
    """Return ``made`` with its open axes as symbols of unknown size.

    ``other`` is the same program, of ``format``, at other sizes. Raises ``UnsupportedOp`` where the spec
    depends on one.
    """
    for (arg, axis), name in open_axes.items():
        if isinstance(made.symbolic_args[arg].dims[axis], int):
            raise _fixed([name], format)
    if made.spec_text != other.spec_text:
        raise _fixed(sorted(set(open_axes.values())), format)
    unknown: set[int] = set()
    args: list[TensorType] = []
    for arg, (type, erased) in enumerate(zip(made.arg_spec.args, made.symbolic_args, strict=True)):
        dims: list[Dim] = list(type.dims)
        for axis, dim in enumerate(erased.dims):
            if (arg, axis) in open_axes:
                dims[axis] = dim
                unknown.update(int(index) for index in _SYMBOL.findall(str(dim)))
        args.append(TensorType(type.dtype, tuple(dims)))
    values = tuple(-1 if i in unknown else value for i, value in enumerate(made.symbol_values))
    results = tuple(_common(a, b) for a, b in zip(made.results, other.results, strict=True))
    return replace(made, arg_spec=ArgSpec(tuple(args)), symbol_values=values, results=results)


def _common(one: TensorType, other: TensorType) -> TensorType:
    """Return a result's type with ``?`` where its size depends on an open one."""
    dims = tuple(a if a == b else "?" for a, b in zip(one.dims, other.dims, strict=True))
    return TensorType(one.dtype, dims)


#: Format -> what an open size is there, and how to give it a value.
_ADVICE = {
    "graph": ("kcache.v1.Graph", "give the axis a size"),
    "onnx": ("onnx.dim_param", "give the model a size for it, as onnx.tools.update_model_dims does"),
    "torch": ("torch.sym_size", "export it without dynamic_shapes, once for each size"),
}


def _fixed(names: list[str], format: str) -> UnsupportedOp:
    dims = ", ".join(map(repr, names))
    op, advice = _ADVICE[format]
    return UnsupportedOp(
        op, f"the program computes with the size of {dims}, or fixes it, and leaves it open: {advice}"
    )
