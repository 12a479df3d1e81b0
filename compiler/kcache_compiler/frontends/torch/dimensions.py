"""Dimensions that operations of the Torch dialect name: checked, and rank 0 taken to rank 1.

PyTorch takes a tensor of rank 0 for one of rank 1 and size 1 where an operation names a dimension. torch-mlir
does not: over a dimension that the tensor does not have it crashes (sums, variances, ``select``), never ends
(softmax), or computes something. So every named dimension is checked before torch-mlir sees the program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.torch.site import whole_numbers
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

_NAMES = (
    *("dim", "dims", "dim0", "dim1", "dim2", "dimension", "dimensions", "start_dim", "end_dim"),
    *("source", "destination", "axis"),
)
#: Their ``dims`` or ``source`` are no dimensions.
_OTHER_MEANING = re.compile(r"torch\.aten\.(tile|masked_scatter_?)$")
#: The result has one dimension more, or two less one.
_MORE = re.compile(r"torch\.aten\.(unsqueeze(_copy)?|stack|diag_embed)$")
#: A dimension may be named twice.
_REPEATED = "torch.aten.roll"
#: Of rank 0 torch-mlir lowers them as PyTorch has them.
_OF_SCALARS = re.compile(r"torch\.aten\.(unsqueeze|stack|squeeze\.dim|flatten\.using_ints|size\.int)$")
#: Without the operand ``keepdim``, and without the dimension in their results.
_REDUCED = frozenset({"torch.prims.sum", "torch.prims.prod", "torch.prims.var"})
#: Results of the shape of an operand.
_SHAPED = re.compile(
    r"torch\.aten\.((log_|_log_|_|_safe_)?softmax(\.int|_backward_data)?|_log_softmax_backward_data|softmin|"
    r"cum(sum|prod)|logcumsumexp|argsort|sort|topk|flip|gather|index_select|scatter(_add|\.src|\.value|"
    r"_reduce\.two)|transpose\.int)$"
)
_TENSOR = re.compile(r"!torch\.vtensor<\[([^\]]*)\],")


def settle_dims(module: Native) -> None:
    """Check named dimensions, and rewrite operations of tensors of rank 0 in place.

    Raises ``InvalidProgram`` for dimensions that a tensor does not have, ``UnsupportedOp`` for those that are
    not constant, and for operations that are not rewritten for rank 0.
    """
    with module.context:
        for operation in mlir.all_operations(module.operation):
            if not operation.name.startswith("torch.") or _OTHER_MEANING.match(operation.name):
                continue
            view = operation.opview
            operands = [(name, getattr(view, name)) for name in _NAMES if hasattr(view, name)]
            if not operands:
                continue
            rank = _rank(operation)
            named = [
                (name, numbers) for name, value in operands if (numbers := _dims(operation, name, value))
            ]
            for name, dims in named:
                _check(operation, name, dims, rank)
            if rank == 0 and (named or hasattr(view, "keepdim")) and not _OF_SCALARS.match(operation.name):
                with mlir.native_ir().InsertionPoint(operation), operation.location:
                    _raise_rank(operation)


def _rank(operation: Native) -> int:
    """The rank of the tensor, or of the first of a list, whose dimensions an operation names."""
    value = operation.operands[0]
    if getattr(value.owner, "name", "") == "torch.prim.ListConstruct" and len(value.owner.operands):
        value = value.owner.operands[0]
    match = _TENSOR.match(str(value.type))
    if match is None:
        reason = f"it names a dimension of a value of type {value.type}; tensors need a known rank"
        raise UnsupportedOp(operation.name, reason, mlir.describe_location(operation.location))
    return len(match[1].split(",")) if match[1] else 0


def _dims(operation: Native, name: str, value: Native) -> list[int]:
    """The dimensions that an operand names; none where it is ``None``."""
    while getattr(value.owner, "name", "") == "torch.derefine":
        value = value.owner.operands[0]
    if getattr(value.owner, "name", "") == "torch.constant.none":
        return []
    dims = whole_numbers(value)
    if dims is None:
        reason = f"its operand {name} is not a constant, and the dimensions of an operation have to be"
        raise UnsupportedOp(operation.name, reason, mlir.describe_location(operation.location))
    return dims


def _check(operation: Native, name: str, dims: Sequence[int], rank: int) -> None:
    """Raise ``InvalidProgram`` for a dimension that is out of range, or named twice."""
    count = rank + 1 if _MORE.match(operation.name) else max(rank, 1)
    where = mlir.describe_location(operation.location)
    place = f"{operation.name}{f' at {where}' if where else ''}: {name}"
    for dim in dims:
        if not -count <= dim < count:
            raise InvalidProgram(
                f"{place} is {dim}; for a tensor of rank {rank} it is from {-count} to {count - 1}"
            )
    if len({dim % count for dim in dims}) < len(dims) and operation.name != _REPEATED:
        raise InvalidProgram(f"{place} names a dimension twice: {list(dims)}")


def _raise_rank(operation: Native) -> None:
    """Let an operation compute on tensors of rank 1 and size 1."""
    reduced = hasattr(operation.opview, "keepdim") or operation.name in _REDUCED
    if not reduced and not _SHAPED.match(operation.name):
        reason = "it names a dimension of a tensor of rank 0: reshape the tensor to rank 1 first"
        raise UnsupportedOp(operation.name, reason, mlir.describe_location(operation.location))
    operands = [_unsqueezed(operand) for operand in operation.operands]
    if hasattr(operation.opview, "keepdim"):
        keepdim = operation.opview.keepdim
        operands = [_false() if operand == keepdim else operand for operand in operands]
    native = mlir.native_ir()
    types = [result.type if reduced else _with_dim(result.type) for result in operation.results]
    attributes = {name: operation.attributes[name] for name in operation.attributes}
    made = native.Operation.create(operation.name, results=types, operands=operands, attributes=attributes)
    for old, new in zip(operation.results, made.results, strict=True):
        old.replace_all_uses_with(new if old.type == new.type else _squeezed(new, old.type))
    operation.erase()


def _with_dim(type: Native) -> Native:
    """A tensor's type, of rank 1 if it has rank 0."""
    text = str(type)
    match = _TENSOR.match(text)
    return mlir.native_ir().Type.parse(text.replace("<[],", "<[1],", 1)) if match and not match[1] else type


def _unsqueezed(value: Native) -> Native:
    type = _with_dim(value.type)
    return value if type == value.type else _made("torch.aten.unsqueeze", type, value, _zero())


def _squeezed(value: Native, type: Native) -> Native:
    return _made("torch.aten.squeeze.dim", type, value, _zero())


def _zero() -> Native:
    native = mlir.native_ir()
    return _made("torch.constant.int", native.Type.parse("!torch.int"), value="0 : i64")


def _false() -> Native:
    native = mlir.native_ir()
    return _made("torch.constant.bool", native.Type.parse("!torch.bool"), value="false")


def _made(name: str, type: Native, *operands: Native, **attributes: str) -> Native:
    native = mlir.native_ir()
    parsed = {key: native.Attribute.parse(text) for key, text in attributes.items()}
    return native.Operation.create(name, results=[type], operands=list(operands), attributes=parsed).result
