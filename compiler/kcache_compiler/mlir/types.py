"""Names of the native classes, and queries of types."""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

Op = ir.Operation
Value = ir.Value
Type = ir.Type
Block = ir.Block
Module = ir.Module
Attribute = ir.Attribute
AffineExpr = ir.AffineExpr
AffineMap = ir.AffineMap
Location = ir.Location
InsertionPoint = ir.InsertionPoint


def type_of(text: str) -> Type:
    return ir.Type.parse(text)


def function_type(inputs: Sequence[Type], results: Sequence[Type]) -> ir.FunctionType:
    return ir.FunctionType.get(list(inputs), list(results))


def index_type() -> Type:
    return ir.IndexType.get()


def is_memref(type: Type) -> bool:
    return isinstance(type, ir.MemRefType)


def is_tensor(type: Type) -> bool:
    return isinstance(type, ir.RankedTensorType)


def sizes_of(type: Type) -> list[int | None]:
    """The dimensions of a shaped type, None where one is dynamic."""
    assert isinstance(type, ir.ShapedType)
    return [None if type.is_dynamic_dim(axis) else type.get_dim_size(axis) for axis in range(type.rank)]


def strides_of(memref: Type) -> tuple[list[int | None], int | None]:
    """Strides and offset of a strided memref type, None where one is dynamic."""
    assert isinstance(memref, ir.MemRefType)
    strides, offset = memref.get_strides_and_offset()
    unknown = ir.MemRefType.get_dynamic_stride_or_offset()
    return [None if s == unknown else s for s in strides], None if offset == unknown else offset


def element_of(type: Type) -> Type:
    """The element type of a tensor or memref, or the type itself."""
    return type.element_type if isinstance(type, (ir.RankedTensorType, ir.MemRefType)) else type


def element_type(shaped: Type) -> Type:
    """The element type of a tensor, memref, vector or complex type."""
    assert isinstance(shaped, (ir.ShapedType, ir.ComplexType))
    return shaped.element_type


def rank_of(shaped: Type) -> int:
    """The number of dimensions of a ranked tensor, memref or vector type."""
    assert isinstance(shaped, ir.ShapedType)
    return shaped.rank
