"""Moves transposes of products behind the elementwise operations and reductions that read them.

The canonical form orders the axes of an elementwise operation by those of its first operand. A bias
``[heads, queries, keys]`` plus a mask ``[windows, queries, keys]`` is ``[heads, queries, keys, windows]``,
and so are the scores that both are added to: weights of an attention would not be contiguous along the keys.
What is broadcast from smaller tensors is computed anew in the order of the product; the transpose vanishes in
the next product, whose dimension numbers are changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.llvm.target import Device, Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound import build
from kcache_compiler.types import CompileOptions

_ELEMENTWISE = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "compare", "select", "and"),
        *("or", "not", "negate", "abs", "exponential", "log", "logistic", "tanh", "sqrt", "rsqrt", "convert"),
    )
)
_TRANSPOSE, _BROADCAST, _CONSTANT = (
    f"stablehlo.{name}" for name in ("transpose", "broadcast_in_dim", "constant")
)
_PRODUCT, _REDUCE = "stablehlo.dot_general", "stablehlo.reduce"
_ERASED = _ELEMENTWISE | {_TRANSPOSE, _BROADCAST, _CONSTANT, _REDUCE, _PRODUCT}
#: Operations between a broadcast and the value that is computed in another order, at most.
_DEPTH = 4

Order = list[int]


def sink_transposes(module: mlir.Module, target: Target, options: CompileOptions) -> None:
    """Rewrite ``main``, if its sizes are static, for CPUs. Not under ``strict``."""
    if options.numerics == "strict" or isinstance(target, Device):
        return
    rewrite_transposes(module)


def rewrite_transposes(module: mlir.Module) -> None:
    """Rewrite the operations of ``main``, in order, and erase those that nothing reads any more."""
    body = mlir.block_of(mlir.main_function(module))
    if not any(mlir.name_of(op) == _TRANSPOSE for op in mlir.operations(body)):
        return
    products: set[mlir.Value] = set()
    for op in mlir.operations(body):
        if len(op.results) == 1 and mlir.name_of(op).startswith("stablehlo.") and build.is_static(op):
            _Rewrite(op, products).apply()
    for op in reversed(mlir.operations(body)):
        if mlir.name_of(op) in _ERASED and not any(list(result.uses) for result in op.results):
            op.erase()


class _Rewrite:
    """The rewrite of one operation; ``products`` are products, and what is computed from one elementwise."""

    def __init__(self, op: mlir.Op, products: set[mlir.Value]) -> None:
        self.op, self.products = op, products
        self.name = mlir.name_of(op)

    def apply(self) -> None:
        with mlir.before(self.op), mlir.at_location(self.op):
            if self.name == _TRANSPOSE:
                self._transpose()
            elif self.name in _ELEMENTWISE:
                self._elementwise()
            elif self.name == _REDUCE:
                self._reduce()
            elif self.name == _BROADCAST:
                self._broadcast()
            elif self.name == _PRODUCT:
                self._product()
                self.products.add(self.op.results[0])

    def _replace(self, value: mlir.Value) -> None:
        self.op.results[0].replace_all_uses_with(value)

    def _sunk(self, value: mlir.Value) -> tuple[mlir.Value, Order] | None:
        """The product that ``value`` is a transpose of, and the permutation."""
        owner = mlir.defining(value)
        if owner is None or mlir.name_of(owner) != _TRANSPOSE or owner.operands[0] not in self.products:
            return None
        return owner.operands[0], mlir.integers(owner.attributes["permutation"])

    def _transpose(self) -> None:
        source, order = self.op.operands[0], mlir.integers(self.op.attributes["permutation"])
        inner = self._sunk(source)
        if inner is not None:
            product, first = inner
            self._replace(build.transpose(product, [first[axis] for axis in order]))
        elif _is_elementwise(source) and _is_cheap(source):
            self._replace(_ordered(source, order))

    def _elementwise(self) -> None:
        """``f(transpose(product), others)`` as ``transpose(f(product, others in its order))``."""
        op, shape = self.op, mlir.sizes_of(self.op.results[0].type)
        operands = list(op.operands)
        if any(mlir.sizes_of(value.type) != shape for value in operands):
            return
        moved = [pair for value in operands if (pair := self._sunk(value)) is not None]
        if not moved:
            self._add_product(operands)
            return
        order = moved[0][1]
        back = _inverse(order)
        ordered: list[mlir.Value] = []
        for value in operands:
            pair = self._sunk(value)
            if pair is not None and pair[1] == order:
                ordered.append(pair[0])
            elif _is_cheap(value):
                ordered.append(_ordered(value, back))
            else:
                return
        result = _computed(op, ordered)
        self.products.add(result)
        self._replace(build.transpose(result, order))

    def _add_product(self, operands: Sequence[mlir.Value]) -> None:
        is_product = [value in self.products for value in operands]
        if any(is_product) and all(
            known or _is_cheap(value) for known, value in zip(is_product, operands, strict=True)
        ):
            self.products.add(self.op.results[0])

    def _reduce(self) -> None:
        """A reduction along one axis: its results are transposed."""
        op = self.op
        axes = mlir.integers(op.attributes["dimensions"])
        pair = self._sunk(op.operands[0])
        if pair is None or len(axes) != 1 or len(op.operands) != 2:
            if pair is None and op.operands[0] in self.products and len(op.operands) == 2:
                self.products.add(op.results[0])
            return
        product, order = pair
        axis = order[axes[0]]
        kept = [each for each in order if each != axis]
        left = sorted(kept)
        copy = mlir.clone(op)
        copy.operands[0] = product
        copy.attributes["dimensions"] = build.int_array([axis])
        sizes = build.static_sizes(product)
        element = mlir.element_type(op.results[0].type)
        copy.results[0].set_type(build.tensor_type([sizes[each] for each in left], element))
        self.products.add(copy.results[0])
        self._replace(build.transpose(copy.results[0], [left.index(each) for each in kept]))

    def _broadcast(self) -> None:
        """A transposed operand is read in the order of its product."""
        pair = self._sunk(self.op.operands[0])
        if pair is None:
            return
        product, order = pair
        dims = mlir.integers(self.op.attributes["broadcast_dimensions"])
        places = [dims[order.index(axis)] for axis in range(len(order))]
        self._replace(build.broadcast(product, build.static_sizes(self.op.results[0]), places))

    def _product(self) -> None:
        """Read transposed operands where that changes only the dimension numbers."""
        pairs = [self._sunk(operand) for operand in self.op.operands]
        rewritten = [self._read(number, *pair) for number, pair in enumerate(pairs) if pair is not None]
        if any(rewritten):
            self._order_batches()

    def _order_batches(self) -> None:
        """Have the batching axes in the order of the left operand; the result is transposed."""
        op, numbers = self.op, mlir.product_dimensions(self.op)
        left, right = (batching for batching, _ in numbers)
        by_axis = sorted(range(len(left)), key=left.__getitem__)
        sizes = build.static_sizes(op.results[0])
        order = [*by_axis, *range(len(left), len(sizes))]
        if order == sorted(order):
            return
        for position, batching in enumerate((left, right)):
            numbers[position] = [batching[each] for each in by_axis], numbers[position][1]
        kind = build.tensor_type([sizes[axis] for axis in order], mlir.element_type(op.results[0].type))
        attributes = {**mlir.attributes_of(op), "dot_dimension_numbers": _dimension_numbers(numbers)}
        result = mlir.create(_PRODUCT, list(op.operands), [kind], attributes).results[0]
        self.products.add(result)
        self._replace(build.transpose(result, _inverse(order)))

    def _read(self, number: int, product: mlir.Value, order: Order) -> bool:
        numbers = mlir.product_dimensions(self.op)
        fixed = {axis for axes in numbers[number] for axis in axes}
        free = [axis for position, axis in enumerate(order) if position not in fixed]
        if free != sorted(free):
            return False
        batching, contracting = ([order[axis] for axis in axes] for axes in numbers[number])
        numbers[number] = batching, contracting
        self.op.operands[number] = product
        self.op.attributes["dot_dimension_numbers"] = _dimension_numbers(numbers)
        return True


def _dimension_numbers(numbers: Sequence[tuple[Order, Order]]) -> mlir.Attribute:
    fields = [
        f"{side}_{kind}_dimensions = {axes[position]}"
        for position, kind in enumerate(("batching", "contracting"))
        for side, axes in zip(("lhs", "rhs"), numbers, strict=True)
    ]
    return mlir.attribute(f"#stablehlo.dot<{', '.join(fields)}>")


def _inverse(order: Order) -> Order:
    return [order.index(axis) for axis in range(len(order))]


def _is_elementwise(value: mlir.Value) -> bool:
    owner = mlir.defining(value)
    return owner is not None and mlir.name_of(owner) in _ELEMENTWISE


def _is_cheap(value: mlir.Value, depth: int = _DEPTH) -> bool:
    """Whether ``value`` is computed elementwise from broadcasts of smaller tensors, for one reader."""
    owner = mlir.defining(value)
    if owner is None:
        return False
    name = mlir.name_of(owner)
    if name == _CONSTANT:
        return mlir.constant_extent(owner)[0]
    if name == _BROADCAST:
        return mlir.sizes_of(owner.operands[0].type) != mlir.sizes_of(value.type)
    if name not in _ELEMENTWISE or not depth or mlir.used_more_than_once(value):
        return False
    return all(_is_cheap(operand, depth - 1) for operand in owner.operands)


def _ordered(value: mlir.Value, order: Order) -> mlir.Value:
    """The cheap ``value`` with axis ``order[i]`` as axis ``i``."""
    owner = mlir.definition(value)
    name = mlir.name_of(owner)
    if name == _CONSTANT:
        sizes = build.static_sizes(value)
        kind = build.tensor_type([sizes[axis] for axis in order], mlir.element_type(value.type))
        return mlir.value(_CONSTANT, (), kind, value=_splat(owner, kind))
    if name == _BROADCAST:
        sizes, dims = build.static_sizes(value), mlir.integers(owner.attributes["broadcast_dimensions"])
        source, places = owner.operands[0], [order.index(axis) for axis in dims]
        inner = mlir.defining(source)
        if inner is not None and mlir.name_of(inner) == _TRANSPOSE:
            permutation = mlir.integers(inner.attributes["permutation"])
            source, places = inner.operands[0], [places[axis] for axis in _inverse(permutation)]
        return build.broadcast(source, [sizes[axis] for axis in order], places)
    return _computed(owner, [_ordered(operand, order) for operand in owner.operands])


def _computed(op: mlir.Op, operands: Sequence[mlir.Value]) -> mlir.Value:
    """What the elementwise ``op`` computes of ``operands``, which are of another shape than its own."""
    kind = build.tensor_type(build.static_sizes(operands[0]), mlir.element_type(op.results[0].type))
    return mlir.create(mlir.name_of(op), operands, [kind], mlir.attributes_of(op)).results[0]


def _splat(op: mlir.Op, kind: mlir.Type) -> mlir.Attribute:
    """The value of a constant of equal elements, for another shape."""
    text = str(op.attributes["value"])
    return mlir.attribute(f"{text[: text.rindex(':')]}: {kind}")
