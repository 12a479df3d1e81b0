"""Checks the dimensions that ops of the Torch dialect name, and rewrites rank 0 as rank 1.

PyTorch treats a tensor of rank 0 as one of rank 1 and size 1 where an op names a dimension. torch-mlir does
not: for a dimension that the tensor does not have it crashes (sums, variances, ``select``), does not
terminate (softmax), or computes something else. So every named dimension is checked before torch-mlir reads
the program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.torch.torch_op import integer_constants
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Module, Op, Type, Value

_DIM_OPERANDS = (
    *("dim", "dims", "dim0", "dim1", "dim2", "dimension", "dimensions", "start_dim", "end_dim"),
    *("source", "destination", "axis"),
)
#: Ops whose ``dims`` or ``source`` are not dimensions.
_NOT_DIMENSIONS = re.compile(r"torch\.aten\.(tile|masked_scatter_?)$")
#: Ops whose dimensions are those of the result, which has one more.
_ADDS_DIMENSION = re.compile(r"torch\.aten\.(unsqueeze(_copy)?|stack|diag_embed)$")
#: The op that may name a dimension twice.
_ALLOWS_REPEATED = "torch.aten.roll"
#: Ops that torch-mlir lowers correctly at rank 0.
_SUPPORTS_RANK_0 = re.compile(r"torch\.aten\.(unsqueeze|stack|squeeze\.dim|flatten\.using_ints|size\.int)$")
#: Reductions without the operand ``keepdim``.
_REDUCTIONS = frozenset({"torch.prims.sum", "torch.prims.prod", "torch.prims.var"})
#: Ops whose results have the shape of an operand.
_SHAPE_PRESERVING = re.compile(
    r"torch\.aten\.((log_|_log_|_|_safe_)?softmax(\.int|_backward_data)?|_log_softmax_backward_data|softmin|"
    r"cum(sum|prod)|logcumsumexp|argsort|sort|topk|flip|gather|index_select|scatter(_add|\.src|\.value|"
    r"_reduce\.two)|transpose\.int)$"
)
_TENSOR = re.compile(r"!torch\.vtensor<\[([^\]]*)\],")


def normalize_dims(module: Module) -> None:
    """Check named dimensions, and rewrite ops on tensors of rank 0 in place.

    Raises ``InvalidProgram`` for dimensions that are out of range, and ``UnsupportedOp`` for those that are
    not constant and for ops that are not supported at rank 0.
    """
    with module.context:
        for operation in mlir.all_operations(module.operation):
            if not operation.name.startswith("torch.") or _NOT_DIMENSIONS.match(operation.name):
                continue
            view = operation.opview
            operands = [(name, getattr(view, name)) for name in _DIM_OPERANDS if hasattr(view, name)]
            if not operands:
                continue
            rank = _rank(operation)
            named_dims = [(name, dims) for name, value in operands if (dims := _dims(operation, name, value))]
            for name, dims in named_dims:
                _check(operation, name, dims, rank)
            if (
                rank == 0
                and (named_dims or hasattr(view, "keepdim"))
                and not _SUPPORTS_RANK_0.match(operation.name)
            ):
                with mlir.native_ir().InsertionPoint(operation), operation.location:
                    _compute_at_rank_1(operation)


def _rank(operation: Op) -> int:
    """Return the rank of the tensor, or of the first of a list, whose dimensions an op names."""
    value = operation.operands[0]
    if getattr(value.owner, "name", "") == "torch.prim.ListConstruct" and len(
        lazy.definition(value).operands
    ):
        value = lazy.definition(value).operands[0]
    match = _TENSOR.match(str(value.type))
    if match is None:
        reason = f"it names a dimension of a value of type {value.type}: tensors need a rank"
        raise UnsupportedOp(operation.name, reason, mlir.describe_location(operation.location))
    return len(match[1].split(",")) if match[1] else 0


def _dims(operation: Op, name: str, value: Value) -> list[int]:
    """Return the dimensions that an operand names, none for ``None``."""
    while getattr(value.owner, "name", "") == "torch.derefine":
        value = lazy.definition(value).operands[0]
    if getattr(value.owner, "name", "") == "torch.constant.none":
        return []
    dims = integer_constants(value)
    if dims is None:
        reason = f"its operand {name} must be a constant, as it names dimensions"
        raise UnsupportedOp(operation.name, reason, mlir.describe_location(operation.location))
    return dims


def _check(operation: Op, name: str, dims: Sequence[int], rank: int) -> None:
    """Raise ``InvalidProgram`` for a dimension that is out of range or repeated."""
    count = rank + 1 if _ADDS_DIMENSION.match(operation.name) else max(rank, 1)
    location = mlir.describe_location(operation.location)
    prefix = f"{operation.name}{f' at {location}' if location else ''}: {name}"
    for dim in dims:
        if not -count <= dim < count:
            raise InvalidProgram(
                f"{prefix} is {dim}, but must be from {-count} to {count - 1} for a tensor of rank {rank}"
            )
    if len({dim % count for dim in dims}) < len(dims) and operation.name != _ALLOWS_REPEATED:
        raise InvalidProgram(f"{prefix} contains a dimension twice: {list(dims)}")


def _compute_at_rank_1(operation: Op) -> None:
    """Rewrite an op to compute on tensors of rank 1 and size 1."""
    is_reduction = hasattr(operation.opview, "keepdim") or operation.name in _REDUCTIONS
    if not is_reduction and not _SHAPE_PRESERVING.match(operation.name):
        reason = "it names a dimension of a tensor of rank 0: reshape the tensor to rank 1 first"
        raise UnsupportedOp(operation.name, reason, mlir.describe_location(operation.location))
    operands = [_unsqueeze(operand) for operand in operation.operands]
    if hasattr(operation.opview, "keepdim"):
        keepdim: Value = getattr(operation.opview, "keepdim")  # noqa: B009 - an operand that only some classes have
        false = mlir.native_torch().constant_bool(False)
        operands = [false if operand == keepdim else operand for operand in operands]
    native = mlir.native_ir()
    types = [result.type if is_reduction else _rank_1_type(result.type) for result in operation.results]
    attributes = {name: operation.attributes[name] for name in operation.attributes}
    new_operation = native.Operation.create(
        operation.name, results=types, operands=operands, attributes=attributes
    )
    for old, new in zip(operation.results, new_operation.results, strict=True):
        old.replace_all_uses_with(new if old.type == new.type else _squeeze(new, old.type))
    operation.erase()


def _rank_1_type(type: Type) -> Type:
    """Return the type of a tensor, with rank 1 instead of rank 0."""
    text = str(type)
    match = _TENSOR.match(text)
    return mlir.native_ir().Type.parse(text.replace("<[],", "<[1],", 1)) if match and not match[1] else type


def _unsqueeze(value: Value) -> Value:
    type = _rank_1_type(value.type)
    torch = mlir.native_torch()
    return value if type == value.type else torch.aten_unsqueeze(type, value, torch.constant_int(0))


def _squeeze(value: Value, type: Type) -> Value:
    torch = mlir.native_torch()
    return torch.aten_squeeze_dim(type, value, torch.constant_int(0))
