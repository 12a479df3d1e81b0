"""Constructors and readers of attributes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, TypeAlias, TypedDict

from torch_mlir import ir
from torch_mlir._mlir_libs import _stablehlo

from kcache_compiler.mlir.types import AffineExpr, AffineMap, Attribute, Op, Type, type_of

#: The structure of an affine expression: its kind and what it is made of.
AffineParts: TypeAlias = (
    tuple[()] | tuple[Literal["constant", "dim"], int] | tuple[Literal["add", "mul"], AffineExpr, AffineExpr]
)


class Dimensions(TypedDict):
    """The dimension numbers of a ``stablehlo.convolution``."""

    input_batch: int
    input_feature: int
    input_spatial: list[int]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: list[int]
    output_batch: int
    output_feature: int
    output_spatial: list[int]


class ScatterDimensions(TypedDict):
    """The dimension numbers of a ``stablehlo.scatter``."""

    update_window_dims: list[int]
    inserted_window_dims: list[int]
    input_batching_dims: list[int]
    scatter_indices_batching_dims: list[int]
    scatter_dims_to_operand_dims: list[int]
    index_vector_dim: int


class GatherDimensions(TypedDict):
    """The dimension numbers of a ``stablehlo.gather``."""

    offset_dims: list[int]
    collapsed_slice_dims: list[int]
    operand_batching_dims: list[int]
    start_indices_batching_dims: list[int]
    start_index_map: list[int]
    index_vector_dim: int


def attribute(text: str) -> Attribute:
    return ir.Attribute.parse(text)


def string_attr(text: str) -> Attribute:
    return ir.StringAttr.get(text)


def type_attr(wrapped: Type) -> Attribute:
    return ir.TypeAttr.get(wrapped)


def unit_attr() -> Attribute:
    return ir.UnitAttr.get()


def int_attr(number: int, kind: str = "i64") -> Attribute:
    return ir.IntegerAttr.get(type_of(kind), number)


def map_attrs(maps: Sequence[AffineMap]) -> Attribute:
    return ir.ArrayAttr.get([ir.AffineMapAttr.get(entry) for entry in maps])


def int_of(literal: Attribute) -> int:
    return ir.IntegerAttr(literal).value


def string_of(literal: Attribute) -> str:
    return ir.StringAttr(literal).value


def float_of(literal: Attribute) -> float:
    return ir.FloatAttr(literal).value


def elements(array: Attribute) -> list[Attribute]:
    """The attributes in an array attribute."""
    return list(ir.ArrayAttr(array))


def integers(array: Attribute) -> list[int]:
    """The numbers in a dense array of integers or booleans."""
    assert isinstance(array, (ir.DenseI64ArrayAttr, ir.DenseI32ArrayAttr, ir.DenseBoolArrayAttr))
    return [int(number) for number in array]


def integers_of(operation: Op) -> list[int]:
    """The elements of a constant of integers."""
    return [int(number) for number in ir.DenseIntElementsAttr(operation.attributes["value"])]


def integer_pairs(operation: Op, name: str) -> list[tuple[int, int]]:
    """The rows of a dense attribute of two columns; empty if the attribute is absent."""
    if name not in operation.attributes:
        return []
    literal = operation.attributes[name]
    numbers = [int(number) for number in ir.DenseIntElementsAttr(literal)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def attributes_of(operation: Op) -> dict[str, Attribute]:
    attributes = operation.operation.attributes
    return {name: attributes[name] for name in attributes}


def attributes_text(operation: Op) -> str:
    """All attributes, comparable between operations."""
    attributes = operation.operation.attributes
    entries = [attributes[index] for index in range(len(attributes))]
    return ", ".join(f"{entry.name} = {entry.attr}" for entry in entries)


def symbol_of(operation: Op) -> str:
    return ir.StringAttr(operation.attributes["sym_name"]).value


def map_of(dims: int, results: Sequence[AffineExpr]) -> AffineMap:
    """The map from this many loops to ``results``."""
    return ir.AffineMap.get(dims, 0, list(results))


def indexing_maps(operation: Op) -> list[AffineMap]:
    """The indexing maps of a structured operation, one per operand."""
    return [ir.AffineMapAttr(entry).value for entry in ir.ArrayAttr(operation.attributes["indexing_maps"])]


def iterator_types(operation: Op) -> list[str]:
    """The iterator type of each dimension of a structured operation, as text."""
    return list(_elements_of_text(str(operation.attributes["iterator_types"])))


@functools.cache
def _elements_of_text(array: str) -> tuple[str, ...]:
    """The elements, which have no commas, of an array attribute; one text is faster than one per element."""
    return tuple(array[1:-1].split(", ")) if len(array) > len("[]") else ()


def input_count(operation: Op) -> int:
    """The number of inputs of a structured operation, which its destinations follow."""
    return int(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"])[0])


def groups_of(view: Op) -> list[list[int]]:
    """The axes that a reshaping view collapses into one, group by group."""
    groups = ir.ArrayAttr(view.attributes["reassociation"])
    return [[int_of(axis) for axis in ir.ArrayAttr(group)] for group in groups]


def kernel_spatial_dimensions(convolution: Op) -> list[int]:
    numbers = _stablehlo.ConvDimensionNumbers(convolution.attributes["dimension_numbers"])
    return list(numbers.kernel_spatial_dimensions)


def convolution_dimensions(convolution: Op) -> Dimensions:
    """The dimension numbers of a convolution by name."""
    numbers = _stablehlo.ConvDimensionNumbers(convolution.attributes["dimension_numbers"])
    return {
        "input_batch": int(numbers.input_batch_dimension),
        "input_feature": int(numbers.input_feature_dimension),
        "input_spatial": list(numbers.input_spatial_dimensions),
        "kernel_input_feature": int(numbers.kernel_input_feature_dimension),
        "kernel_output_feature": int(numbers.kernel_output_feature_dimension),
        "kernel_spatial": list(numbers.kernel_spatial_dimensions),
        "output_batch": int(numbers.output_batch_dimension),
        "output_feature": int(numbers.output_feature_dimension),
        "output_spatial": list(numbers.output_spatial_dimensions),
    }


def scatter_dimensions(operation: Op) -> ScatterDimensions:
    """The dimension numbers of a scatter by name."""
    numbers = _stablehlo.ScatterDimensionNumbers(operation.attributes["scatter_dimension_numbers"])
    return {
        "update_window_dims": list(numbers.update_window_dims),
        "inserted_window_dims": list(numbers.inserted_window_dims),
        "input_batching_dims": list(numbers.input_batching_dims),
        "scatter_indices_batching_dims": list(numbers.scatter_indices_batching_dims),
        "scatter_dims_to_operand_dims": list(numbers.scattered_dims_to_operand_dims),
        "index_vector_dim": int(numbers.index_vector_dim),
    }


def gather_dimensions(operation: Op) -> GatherDimensions:
    """The dimension numbers of a gather by name."""
    numbers = _stablehlo.GatherDimensionNumbers(operation.attributes["dimension_numbers"])
    return {
        "offset_dims": list(numbers.offset_dims),
        "collapsed_slice_dims": list(numbers.collapsed_slice_dims),
        "operand_batching_dims": list(numbers.operand_batching_dims),
        "start_indices_batching_dims": list(numbers.start_indices_batching_dims),
        "start_index_map": list(numbers.start_index_map),
        "index_vector_dim": int(numbers.index_vector_dim),
    }


def equal_axes(product: Op) -> list[tuple[int, int]]:
    """The pairs of axes of the operands of a ``dot_general`` that have the same size."""
    numbers = _stablehlo.DotDimensionNumbers(product.attributes["dot_dimension_numbers"])
    left = [*numbers.lhs_batching_dimensions, *numbers.lhs_contracting_dimensions]
    right = [*numbers.rhs_batching_dimensions, *numbers.rhs_contracting_dimensions]
    return list(zip(left, right, strict=True))


def product_dimensions(product: Op) -> list[tuple[list[int], list[int]]]:
    """The batching and the contracting axes of each operand of a ``dot_general``."""
    numbers = _stablehlo.DotDimensionNumbers(product.attributes["dot_dimension_numbers"])
    return [
        (list(numbers.lhs_batching_dimensions), list(numbers.lhs_contracting_dimensions)),
        (list(numbers.rhs_batching_dimensions), list(numbers.rhs_contracting_dimensions)),
    ]


def exchanged_operands(product: Op) -> dict[str, Attribute]:
    """The attributes of a ``dot_general`` without an algorithm, for its operands in the other order."""
    numbers = _stablehlo.DotDimensionNumbers(product.attributes["dot_dimension_numbers"])
    roles = (
        ("lhs_batching", numbers.rhs_batching_dimensions),
        ("rhs_batching", numbers.lhs_batching_dimensions),
        ("lhs_contracting", numbers.rhs_contracting_dimensions),
        ("rhs_contracting", numbers.lhs_contracting_dimensions),
    )
    text = ", ".join(f"{role}_dimensions = {list(axes)}" for role, axes in roles)
    attributes = attributes_of(product)
    attributes["dot_dimension_numbers"] = attribute(f"#stablehlo.dot<{text}>")
    if "precision_config" in attributes:
        precisions = ir.ArrayAttr(attributes["precision_config"])
        attributes["precision_config"] = ir.ArrayAttr.get(list(reversed(list(precisions))))
    return attributes


def constant_extent(operation: Op) -> tuple[bool, int]:
    """Whether a constant is a splat, and the approximate size of its elements in bytes."""
    kind = operation.results[0].type
    assert isinstance(kind, ir.RankedTensorType)
    if isinstance(kind.element_type, ir.ComplexType):
        return False, 0  # the bindings cannot read such an attribute
    elements = 8
    for size in kind.shape:
        elements *= size
    text = str(operation.attributes["value"])
    return text.startswith("dense<") and not text.startswith(("dense<[", 'dense<"', "dense<>")), elements


def plain_dim(expression: AffineExpr) -> int | None:
    """The position of an affine expression that is just a dimension, else None."""
    return expression.position if isinstance(expression, ir.AffineDimExpr) else None


def constant_of(expression: AffineExpr) -> int:
    """The value of a constant affine expression."""
    return ir.AffineConstantExpr(expression).value


def is_identity(index_map: AffineMap) -> bool:
    return index_map.n_dims == len(index_map.results) and all(
        plain_dim(result) == axis for axis, result in enumerate(index_map.results)
    )


def is_permutation(index_map: AffineMap) -> bool:
    """Whether every dimension appears once, so that each element is read exactly once."""
    axes = [plain_dim(result) for result in index_map.results]
    return None not in axes and sorted(axis for axis in axes if axis is not None) == list(
        range(index_map.n_dims)
    )


def compose(outer: AffineMap, inner: AffineMap) -> AffineMap:
    """The map ``outer(inner(dims))``."""
    return ir.AffineMap.get(inner.n_dims, 0, [result.compose(inner) for result in outer.results])


def affine_parts(expression: AffineExpr) -> AffineParts:
    """``("constant", n)``, ``("dim", axis)``, ``("add" | "mul", left, right)``, or ``()`` for other kinds."""
    match expression:
        case ir.AffineConstantExpr():
            return "constant", expression.value
        case ir.AffineDimExpr():
            return "dim", expression.position
        case ir.AffineAddExpr():
            return "add", expression.lhs, expression.rhs
        case ir.AffineMulExpr():
            return "mul", expression.lhs, expression.rhs
        case _:
            return ()
