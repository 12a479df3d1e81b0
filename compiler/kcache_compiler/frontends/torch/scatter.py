"""``aten.scatter_reduce`` as StableHLO's scatter: products, extremes and sums with what is there.

Where the tensor itself is left out, or a mean is wanted, the client writes it in other operations.
"""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.frontends.torch.site import TENSOR, Site, whole_numbers
from kcache_compiler.mlir.context import Native

_COMBINERS = {"sum": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}
_TRUTHS = {"sum": "or", "prod": "and", "amax": "or", "amin": "and"}


def _scatter_reduce(site: Site) -> Native | None:
    x, dim, index, source, reduce, itself = site.operation.operands
    kind = reduce.owner.attributes["value"].value if getattr(reduce.owner, "name", "") in _TEXTS else ""
    axes = whole_numbers(dim)
    shapes = [TENSOR.fullmatch(str(value.type)) for value in (x, index, source)]
    if kind not in _COMBINERS or axes is None or whole_numbers(itself) != [1] or None in shapes:
        return None
    sizes = [match[1].split(",") if match and match[1] else [] for match in shapes]
    if not sizes[0] or any("?" in one for one in sizes):
        return None
    axis = axes[0] % len(sizes[0])
    value, places, updates = (site.whole(one) for one in (x, index, source))
    rows = [int(size) for size in sizes[1]]
    if 0 in rows:
        return x
    updates = _cut(site, updates, rows)
    return site.result(_scattered(site, value, _coordinates(site, places, rows, axis), updates, kind))


def _cut(site: Site, source: Native, sizes: list[int]) -> Native:
    """As much of the source as there are places."""
    texts = {
        "start_indices": _array([0] * len(sizes)),
        "limit_indices": _array(sizes),
        "strides": _array([1] * len(sizes)),
    }
    dims = "".join(f"{size}x" for size in sizes)
    return site.op("stablehlo.slice", [source], f"tensor<{dims}{site.element}>", **texts)


def _coordinates(site: Site, places: Native, sizes: list[int], axis: int) -> Native:
    """Where each element goes, along a last axis."""
    dims = "".join(f"{size}x" for size in sizes)
    type = f"tensor<{dims}1xi64>"
    parts = [
        site.op("stablehlo.reshape", [places], type)
        if number == axis
        else site.op("stablehlo.iota", (), type, iota_dimension=f"{number} : i64")
        for number in range(len(sizes))
    ]
    if len(parts) == 1:
        return parts[0]
    rank = len(sizes)
    return site.op("stablehlo.concatenate", parts, f"tensor<{dims}{rank}xi64>", dimension=f"{rank} : i64")


def _scattered(site: Site, value: Native, places: Native, updates: Native, kind: str) -> Native:
    native = site.native
    rank = value.type.rank
    axes = ", ".join(map(str, range(rank)))
    numbers = (
        f"#stablehlo.scatter<inserted_window_dims = [{axes}], scatter_dims_to_operand_dims = [{axes}], "
        f"index_vector_dim = {rank}>"
    )
    attributes = {
        "scatter_dimension_numbers": native.Attribute.parse(numbers),
        "indices_are_sorted": native.BoolAttr.get(False),
        "unique_indices": native.BoolAttr.get(False),
    }
    made = native.Operation.create(
        "stablehlo.scatter",
        results=[value.type],
        operands=[value, places, updates],
        attributes=attributes,
        regions=1,
    )
    scalar = native.RankedTensorType.get([], value.type.element_type)
    block = made.regions[0].blocks.append(scalar, scalar, arg_locs=[native.Location.unknown()] * 2)
    name = (_TRUTHS if site.element == "i1" else _COMBINERS)[kind]
    with native.InsertionPoint(block):
        total = native.Operation.create(f"stablehlo.{name}", results=[scalar], operands=list(block.arguments))
        native.Operation.create("stablehlo.return", operands=list(total.results))
    return made.results[0]


def _array(numbers: list[int]) -> str:
    return f"array<i64: {', '.join(map(str, numbers))}>"


_TEXTS = ("torch.constant.str",)
SCATTER: dict[str, Callable[[Site], Native | None]] = {"torch.aten.scatter_reduce.two": _scatter_reduce}
