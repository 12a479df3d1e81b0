"""Lowers ``aten.scatter_reduce`` to StableHLO's scatter, which combines updates with the existing elements.

The client rewrites means, and reductions that exclude the existing elements, as other ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kcache_compiler.frontends.torch.torch_op import TENSOR, TorchOp, integer_constants
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Value

_COMBINERS = {"sum": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}
_BOOLEAN_COMBINERS = {"sum": "or", "prod": "and", "amax": "or", "amin": "and"}


def _scatter_reduce(op: TorchOp) -> Value | None:
    x, dim, index, source, reduce, include_self = op.operation.operands
    kind = (
        lazy.number(lazy.definition(reduce).attributes["value"])
        if getattr(reduce.owner, "name", "") in _STRING_CONSTANT
        else ""
    )
    axes = integer_constants(dim)
    shapes = [TENSOR.fullmatch(str(value.type)) for value in (x, index, source)]
    if kind not in _COMBINERS or axes is None or integer_constants(include_self) != [1] or None in shapes:
        return None
    sizes = [match[1].split(",") if match and match[1] else [] for match in shapes]
    if not sizes[0] or any("?" in dims for dims in sizes):
        return None
    axis = axes[0] % len(sizes[0])
    value, indices, updates = (op.builtin_tensor(operand) for operand in (x, index, source))
    index_sizes = [int(size) for size in sizes[1]]
    if 0 in index_sizes:
        return x
    updates = _slice(op, updates, index_sizes)
    return op.to_torch(_scatter(op, value, _coordinates(op, indices, index_sizes, axis), updates, kind))


def _slice(op: TorchOp, source: Value, sizes: list[int]) -> Value:
    """Return the leading part of the source that has the shape of the indices."""
    attributes = {
        "start_indices": _array([0] * len(sizes)),
        "limit_indices": _array(sizes),
        "strides": _array([1] * len(sizes)),
    }
    dims = "".join(f"{size}x" for size in sizes)
    return op.create("stablehlo.slice", [source], f"tensor<{dims}{op.element}>", **attributes)


def _coordinates(op: TorchOp, indices: Value, sizes: list[int], axis: int) -> Value:
    """Return the coordinates of each element's target along a last axis."""
    dims = "".join(f"{size}x" for size in sizes)
    type = f"tensor<{dims}1xi64>"
    columns = [
        op.create("stablehlo.reshape", [indices], type)
        if column == axis
        else op.create("stablehlo.iota", (), type, iota_dimension=f"{column} : i64")
        for column in range(len(sizes))
    ]
    if len(columns) == 1:
        return columns[0]
    rank = len(sizes)
    return op.create("stablehlo.concatenate", columns, f"tensor<{dims}{rank}xi64>", dimension=f"{rank} : i64")


def _scatter(op: TorchOp, value: Value, coordinates: Value, updates: Value, kind: str) -> Value:
    """Emit a ``stablehlo.scatter`` of single elements, which combines updates by ``kind``."""
    native = op.native
    rank = lazy.tensor_of(value).rank
    axes = ", ".join(map(str, range(rank)))
    dimension_numbers = (
        f"#stablehlo.scatter<inserted_window_dims = [{axes}], scatter_dims_to_operand_dims = [{axes}], "
        f"index_vector_dim = {rank}>"
    )
    attributes = {
        "scatter_dimension_numbers": native.Attribute.parse(dimension_numbers),
        "indices_are_sorted": native.BoolAttr.get(False),
        "unique_indices": native.BoolAttr.get(False),
    }
    scatter = native.Operation.create(
        "stablehlo.scatter",
        results=[value.type],
        operands=[value, coordinates, updates],
        attributes=attributes,
        regions=1,
    )
    scalar = native.RankedTensorType.get([], lazy.tensor_of(value).element_type)
    block = scatter.regions[0].blocks.append(scalar, scalar, arg_locs=[native.Location.unknown()] * 2)
    name = (_BOOLEAN_COMBINERS if op.element == "i1" else _COMBINERS)[kind]
    with native.InsertionPoint(block):
        combined = native.Operation.create(
            f"stablehlo.{name}", results=[scalar], operands=list(block.arguments)
        )
        native.Operation.create("stablehlo.return", operands=list(combined.results))
    return scatter.results[0]


def _array(numbers: list[int]) -> str:
    return f"array<i64: {', '.join(map(str, numbers))}>"


_STRING_CONSTANT = ("torch.constant.str",)
SCATTER: dict[str, Callable[[TorchOp], Value | None]] = {"torch.aten.scatter_reduce.two": _scatter_reduce}
