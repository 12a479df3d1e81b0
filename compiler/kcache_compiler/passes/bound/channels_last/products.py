"""Products whose operands are computed in another layout."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bound.channels_last.forms import Form, ordered, plain
from kcache_compiler.passes.bound.channels_last.state import Laid, Layouts


def rewrite_product(op: mlir.Op, layouts: Layouts, first: Laid) -> bool:
    """The product of the tensors as they are; rows and columns of its result have their order."""
    forms: list[Form] = []
    tensors: list[mlir.Value] = []
    for operand in op.operands:
        laid = layouts.laid.get(operand)
        forms.append(plain(mlir.rank_of(operand.type)) if laid is None else laid.form.compact)
        tensors.append(layouts.tensor(operand, forms[-1], first.region))
    sides = mlir.product_dimensions(op)
    order = list(range(len(sides[0][0])))
    texts: list[str] = []
    for name, (batch, contracted), form in zip(("lhs", "rhs"), sides, forms, strict=True):
        texts.append(f"{name}_batching_dimensions = {_places(form, batch)}")
        texts.append(f"{name}_contracting_dimensions = {_places(form, contracted)}")
        order += [len(order) + position for position in _order_of_free(form, {*batch, *contracted})]
    attributes = mlir.attributes_of(op)
    attributes["dot_dimension_numbers"] = mlir.attribute(f"#stablehlo.dot<{', '.join(texts)}>")
    result = ordered(order)
    kind = result.type(op.results[0].type)
    product = mlir.create("stablehlo.dot_general", tensors, [kind], attributes).results[0]
    layouts.set(op.results[0], product, result, first.region)
    return True


def _places(form: Form, axes: Sequence[int]) -> list[int]:
    return [form.places[axis] for axis in axes]


def _order_of_free(form: Form, used: set[int]) -> list[int]:
    """The axes that are not ``used``, numbered in the order of the value, in the order of the tensor."""
    free = [axis for axis in range(form.rank) if axis not in used]
    return sorted(range(len(free)), key=lambda position: form.places[free[position]])
