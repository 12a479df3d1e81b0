"""Values of a program that are computed with channels last, and conversions between layouts.

Conversions are made where an operation needs them, once a value, and are charged to the region of the value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build
from kcache_compiler.passes.bound.channels_last.forms import Form, converted, plain
from kcache_compiler.spec.graph.operations import ELEMENTWISE

#: Element types of the convolutions whose layout changes.
FLOATS = frozenset({"bf16", "f32", "f64"})
#: Those of them whose sums round in this type.
WIDE = FLOATS - {"bf16"}
#: Operations whose results are computed anew in another layout.
_FREE = frozenset({"stablehlo.constant", "stablehlo.broadcast_in_dim"})


#: Elementwise operations, one after another, that are computed in another layout than the program's, at most.
DEPTH = 8


@dataclass
class Region:
    """Connected values with channels last: ``convolutions`` by their positions in the program, the bytes that
    they read and write, and the bytes of values that are converted at its boundary.
    """

    convolutions: list[int] = field(default_factory=list[int])
    accessed: int = 0
    converted: int = 0
    merged: Region | None = None

    def root(self) -> Region:
        """The region that this one was merged into."""
        region = self
        while region.merged is not None:
            region = region.merged
        return region

    def merge(self, other: Region) -> None:
        """Make one region of both."""
        into, absorbed = self.root(), other.root()
        if into is not absorbed:
            absorbed.merged = into
            into.convolutions += absorbed.convolutions
            into.accessed += absorbed.accessed
            into.converted += absorbed.converted


@dataclass(frozen=True)
class Laid:
    """A value that is computed as ``tensor`` in another ``form``."""

    tensor: mlir.Value
    form: Form
    region: Region


class Layouts:
    """The layouts of a program's values, while it is rewritten in order."""

    def __init__(self, bound: set[mlir.Value]) -> None:
        self.bound = bound
        self.laid: dict[mlir.Value, Laid] = {}
        self.regions: list[Region] = []
        #: Of concatenated values the tensors whose first channels they are.
        self.longer: dict[mlir.Value, mlir.Value] = {}
        self._others: dict[tuple[mlir.Value, Form], mlir.Value] = {}

    def set(self, value: mlir.Value, tensor: mlir.Value, form: Form, region: Region) -> None:
        """``tensor`` of ``form`` is computed instead of ``value``."""
        sizes = build.static_sizes(value)
        if form.order(sizes) == sorted(form.order(sizes)):
            value.replace_all_uses_with(build.reshape(tensor, sizes))
        else:
            self.laid[value] = Laid(tensor, form, region)

    def plain(self, value: mlir.Value) -> mlir.Value:
        """``value`` as the program has it."""
        laid = self.laid.get(value)
        return value if laid is None else self.tensor(value, plain(mlir.rank_of(value.type)), laid.region)

    def tensor(self, value: mlir.Value, form: Form, region: Region, depth: int = DEPTH) -> mlir.Value:
        """``value`` in ``form``, for an operation of ``region``."""
        laid = self.laid.get(value)
        if laid is not None and laid.form != plain(mlir.rank_of(value.type)):
            region.merge(laid.region)
        if form == self._form(value):
            return value if laid is None else laid.tensor
        if (value, form) not in self._others:
            moved, owner = self._cheapest(value, form, depth)
            if owner is not None:
                self._others[value, form] = self._again(owner, form, region, depth - 1)
            else:
                region.root().converted += moved
                self._others[value, form] = self._made(value, form)
        return self._others[value, form]

    def cost(self, value: mlir.Value, form: Form) -> int:
        """The bytes that ``tensor`` would move: none for values that are computed anew, that depend on bound
        arguments alone, or whose elements keep their order.
        """
        return self._cheapest(value, form, DEPTH)[0]

    def _cheapest(self, value: mlir.Value, form: Form, depth: int) -> tuple[int, mlir.Op | None]:
        """The bytes that are moved, and the elementwise operation that is computed in ``form`` instead, if
        ``value`` has no other reader and its operands have no more bytes to move.
        """
        moved = self._moved(value, form)
        owner = mlir.defining(value)
        if not moved or owner is None or depth == 0 or value in self.laid or mlir.used_more_than_once(value):
            return moved, None
        if mlir.name_of(owner) not in ELEMENTWISE or not build.is_static(owner):
            return moved, None
        operands = sum(self._cheapest(operand, form, depth - 1)[0] for operand in _full(owner))
        return (operands, owner) if operands <= moved else (moved, None)

    def _moved(self, value: mlir.Value, form: Form) -> int:
        """The bytes that a conversion of ``value`` moves."""
        sizes = build.static_sizes(value)
        if (value, form) in self._others or value in self.bound:
            return 0
        owner = mlir.defining(value)
        source = self._form(value)
        if owner is not None and mlir.name_of(owner) == "stablehlo.transpose" and value not in self.laid:
            source = Form(tuple(mlir.integers(owner.attributes["permutation"])), len(sizes))
        if form.order(sizes) == source.order(sizes):
            return 0
        return build.bytes_of(value) if owner is None or mlir.name_of(owner) not in _FREE else 0

    def _again(self, op: mlir.Op, form: Form, region: Region, depth: int) -> mlir.Value:
        """The elementwise operation ``op`` on operands in ``form``."""
        full = _full(op)
        operands = [
            self.tensor(operand, form, region, depth) if operand in full else operand
            for operand in op.operands
        ]
        kind = form.type(op.results[0].type)
        return mlir.create(mlir.name_of(op), operands, [kind], mlir.attributes_of(op)).results[0]

    def _form(self, value: mlir.Value) -> Form:
        laid = self.laid.get(value)
        return plain(mlir.rank_of(value.type)) if laid is None else laid.form

    def _made(self, value: mlir.Value, form: Form) -> mlir.Value:
        """``value`` in another form: constants and broadcasts are made anew, others are converted."""
        sizes = build.static_sizes(value)
        laid = self.laid.get(value)
        if laid is not None:
            return converted(laid.tensor, sizes, laid.form, form)
        owner = mlir.defining(value)
        name = "" if owner is None else mlir.name_of(owner)
        if owner is not None and name == "stablehlo.constant" and mlir.constant_extent(owner)[0]:
            return build.broadcast(mlir.splat_scalar(owner), form.sizes(sizes), [])
        if owner is not None and name == "stablehlo.broadcast_in_dim":
            source = self.plain(owner.operands[0])
            places = [form.places[dim] for dim in mlir.integers(owner.attributes["broadcast_dimensions"])]
            ascending = sorted(range(len(places)), key=lambda axis: places[axis])
            return build.broadcast(build.transpose(source, ascending), form.sizes(sizes), sorted(places))
        if owner is not None and name == "stablehlo.transpose":
            permutation = mlir.integers(owner.attributes["permutation"])
            return converted(self.plain(owner.operands[0]), sizes, Form(tuple(permutation), len(sizes)), form)
        return converted(value, sizes, plain(len(sizes)), form)


def _full(op: mlir.Op) -> list[mlir.Value]:
    """The operands of an elementwise operation, without scalars if the result is larger."""
    rank = mlir.rank_of(op.results[0].type)
    return [operand for operand in op.operands if mlir.rank_of(operand.type) == rank]
