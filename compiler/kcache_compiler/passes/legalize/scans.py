"""Recognizes scans (prefix sums, products, maxima and similar) in window reductions.

``reduce_window`` with a window as long as its axis and padding on one side of it computes ``init + x[0] +
... + x[i]`` for each ``i``: O(n * n) operations if every window is reduced separately, O(n) if each
continues from the one before it. The scan is a ``linalg.generic`` with two results along its axis: the
carried total, and the elements.

A forward scan has the order of additions of the windows. A backward scan adds from the other end, so that
sums and products of floats are not rewritten under ``strict`` numerics.
"""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.builders import inline_body
from kcache_compiler.passes.generic import build_generic, identity
from kcache_compiler.types import CompileOptions

#: Elements that change nothing, as their attributes are written, by the operation that combines.
_ZERO_OR_MINUS = ("0.000000e+00", "-0.000000e+00")
_NEUTRAL: dict[str, tuple[str, ...]] = {
    "arith.addf": _ZERO_OR_MINUS,
    "arith.mulf": ("1.000000e+00",),
    "arith.addi": ("0", "false"),
    "arith.muli": ("1",),
    "arith.ori": ("0", "false"),
    "arith.xori": ("0", "false"),
    "arith.andi": ("-1", "true"),
}
#: Combiners that take any start any number of times: ``max(a, max(a, b))`` is ``max(a, b)``.
_IDEMPOTENT = (
    "arith.maximumf",
    "arith.minimumf",
    "arith.maxsi",
    "arith.minsi",
    "arith.maxui",
    "arith.minui",
    "arith.andi",
    "arith.ori",
)
#: Combiners for which the order of the elements matters to the last bit.
_ROUNDS = ("arith.addf", "arith.mulf")


@dataclass(frozen=True)
class _Scan:
    """``source`` scanned along loop ``axis`` of ``size`` steps, from its end when ``backward``."""

    source: mlir.Value
    axis: int
    window: int
    size: int
    backward: bool


def raise_scans(module: mlir.Module, options: CompileOptions) -> None:
    """Rewrite every window of ``main`` that is a scan."""
    for generic in mlir.named(mlir.main_function(module), "linalg.generic"):
        scan = _read(generic)
        if scan is None:
            continue
        name = mlir.name_of(mlir.operations(mlir.block_of(generic))[0])
        if scan.backward and name in _ROUNDS and options.numerics == "strict":
            continue
        _rewrite(generic, scan)


def _read(generic: mlir.Op) -> _Scan | None:
    """Return the scan that a windowed reduction over a padded operand computes; None if it is not a scan."""
    kinds = ["parallel" in kind for kind in mlir.iterator_types(generic)]
    operands = list(generic.operands)
    if kinds.count(False) != 1 or len(operands) != 3 or len(generic.results) != 1:
        return None
    window = kinds.index(False)
    maps = mlir.indexing_maps(generic)
    axis = _grows(maps[0], window)
    count = len(kinds)
    if axis is None or [mlir.plain_dim(result) for result in maps[1].results] != [window]:
        return None
    if [mlir.plain_dim(result) for result in maps[2].results] != [d for d in range(count) if d != window]:
        return None
    pad = mlir.defining(operands[0])
    if pad is None or mlir.name_of(pad) != "tensor.pad" or not _combines(generic, pad):
        return None
    plain = [mlir.plain_dim(result) for result in maps[0].results]
    position = plain.index(None)
    size = mlir.sizes_of(pad.operands[0].type)[position]
    low, high = (mlir.integers(pad.attributes[f"static_{side}"]) for side in ("low", "high"))
    if (
        size is None
        or size < 2
        or None in mlir.sizes_of(generic.results[0].type)
        or len(pad.operands) != 1
        or any(n < 0 for n in (*low, *high))
    ):
        return None
    padding = low.pop(position), high.pop(position)
    if any((*low, *high)) or padding not in ((size - 1, 0), (0, size - 1)):
        return None
    if mlir.sizes_of(operands[1].type) != [size]:
        return None
    return _Scan(pad.operands[0], axis, window, size, padding[0] == 0)


def _grows(index_map: mlir.AffineMap, window: int) -> int | None:
    """The loop that the window moves along: one index is their sum, the others are loops, in order."""
    axis: int | None = None
    for place, result in enumerate(index_map.results):
        expected = place if place < window else place + 1
        match mlir.affine_parts(result):
            case ("add", left, right):
                dims = {mlir.plain_dim(left), mlir.plain_dim(right)}
                if axis is not None or dims != {expected, window}:
                    return None
                axis = expected
            case ("dim", position) if position == expected:
                continue
            case _:
                return None
    return axis


def _combines(generic: mlir.Op, pad: mlir.Op) -> bool:
    """One operation on the old value and the element, which padding and start leave as they are."""
    body = mlir.operations(mlir.block_of(generic))
    arguments = list(mlir.block_of(generic).arguments)
    if len(body) != 2 or list(body[1].operands) != [body[0].results[0]]:
        return False
    combiner = body[0]
    if list(combiner.operands) not in ([arguments[2], arguments[0]], [arguments[0], arguments[2]]):
        return False
    name = mlir.name_of(combiner)
    if name not in (*_IDEMPOTENT, *_NEUTRAL):
        return False
    padding, start = _constant(mlir.last(mlir.block_of(pad)).operands[0]), _start(generic)
    if padding is None or padding != start:
        return False
    return name in _IDEMPOTENT or padding in _NEUTRAL.get(name, ())


def _start(generic: mlir.Op) -> str | None:
    """The constant that the result is filled with."""
    fill = mlir.defining(generic.operands[2])
    if fill is None or mlir.name_of(fill) not in ("linalg.fill", "linalg.generic"):
        return None
    yielded = mlir.last(mlir.block_of(fill)).operands[0]
    arguments = list(mlir.block_of(fill).arguments)
    return _constant(fill.operands[arguments.index(yielded)] if yielded in arguments else yielded)


def _constant(value: mlir.Value) -> str | None:
    """The number of a constant, or the one that a constant tensor repeats, as text."""
    owner = mlir.defining(value)
    if owner is None or mlir.name_of(owner) != "arith.constant":
        return None
    text = str(owner.attributes["value"])
    if text.startswith("dense<"):
        return text[len("dense<") : text.index(">")]
    return text.split(" : ")[0]


def _rewrite(generic: mlir.Op, scan: _Scan) -> None:
    """Replace a windowed reduction by a loop that carries the total along the scanned axis."""
    rank = len(mlir.sizes_of(generic.results[0].type))
    axis = scan.axis - (scan.window < scan.axis)
    dims = [f"d{number}" for number in range(rank)]
    walked = list(dims)
    if scan.backward:
        walked[axis] = f"-d{axis} + {scan.size - 1}"
    totals = [dim for number, dim in enumerate(dims) if number != axis]
    maps = [f"({', '.join(dims)}) -> ({', '.join(results)})" for results in (walked, totals, walked)]
    if scan.backward:  # every loop has an operand that it walks alone
        maps.append(f"({', '.join(dims)}) -> (d{axis})")
    kinds = ["reduction" if number == axis else "parallel" for number in range(rank)]
    body = mlir.block_of(generic)
    element, _, total = list(body.arguments)

    def step(scalars: list[mlir.Value]) -> list[mlir.Value]:
        return inline_body(body, {element: scalars[0], total: scalars[-2]}, None) * 2

    with mlir.before(generic):
        outputs = [_started(generic, axis), mlir.empty_tensor(generic.results[0].type)]
        inputs = [scan.source]
        if scan.backward:
            inputs.append(generic.operands[1])
            maps.insert(1, maps.pop())
        scanned = build_generic(inputs, outputs, maps, kinds, step)
    generic.results[0].replace_all_uses_with(scanned.results[1])
    generic.erase()


def _started(generic: mlir.Op, axis: int) -> mlir.Value:
    """The totals before the first step: what the result of ``generic`` is filled with, without its axis."""
    kind = generic.results[0].type
    sizes = [size for number, size in enumerate(mlir.sizes_of(kind)) if number != axis]
    shape = "".join(f"{size}x" for size in sizes)
    pad = mlir.defining(generic.operands[0])
    assert pad is not None
    constant = mlir.defining(mlir.last(mlir.block_of(pad)).operands[0])
    assert constant is not None
    start = mlir.clone(constant).results[0]
    empty = mlir.empty_tensor(mlir.type_of(f"tensor<{shape}{mlir.element_type(kind)}>"))
    rank = len(sizes)
    filled = build_generic([start], [empty], [_scalar(rank), identity(rank)], ["parallel"] * rank, _first)
    return filled.results[0]


def _scalar(rank: int) -> str:
    return identity(rank).partition("->")[0] + "-> ()"


def _first(scalars: list[mlir.Value]) -> list[mlir.Value]:
    return scalars[:1]
