"""Simplifies StableHLO that was lowered from the Torch dialect to the form of other frontends.

Every rewrite is exact and holds for all sizes: constants are folded, ops that change no value are removed,
powers with small constants become what PyTorch computes, and dynamic ops with static results become static.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kcache_compiler.frontends.torch.constant_folding import ConstantFolder
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from torch_mlir.ir import RankedTensorType

    from kcache_compiler.mlir.types import Attribute, Module, Op, Value

#: Op -> its identity element as the right operand.
_IDENTITY = {"multiply": 1, "add": 0, "subtract": 0, "divide": 1, "power": 1}
_COMMUTATIVE = frozenset({"multiply", "add"})
#: Broadcasting CHLO ops with a StableHLO op of the same name and attributes.
_BROADCASTING = frozenset(
    f"chlo.broadcast_{op}"
    for op in [
        "add",
        "and",
        "atan2",
        "compare",
        "complex",
        "divide",
        "maximum",
        "minimum",
        "multiply",
        "or",
        "power",
        "remainder",
        "select",
        "subtract",
        "xor",
    ]
)
_ELEMENTWISE = ("stablehlo.", "chlo.broadcast_")


def simplify(module: Module) -> None:
    """Simplify a module that was lowered to StableHLO, in place."""
    folder = ConstantFolder()
    folder.fold(module)
    with module.context:
        for operation in mlir.all_operations(module.operation):
            _STATIC_FORMS.get(operation.name, _keep)(operation, folder)
        for operation in mlir.all_operations(module.operation):
            if operation.name.startswith(_ELEMENTWISE) and len(operation.operands) == 2:
                _remove_identity(operation, folder)
        for operation in mlir.all_operations(module.operation):
            if operation.name in _BROADCASTING:
                _make_broadcasts_explicit(operation)
    mlir.run_passes(module, "builtin.module(func.func(trivial-dce))")


def _keep(_: Op, __: ConstantFolder) -> None:
    """Leave an operation unchanged."""


def _remove_identity(operation: Op, folder: ConstantFolder) -> None:
    """Remove an op whose operand is its identity element; expand powers."""
    op = operation.name.removeprefix("stablehlo.").removeprefix("chlo.broadcast_")
    if op not in _IDENTITY:
        return
    (result,) = operation.results
    pairs = [tuple(operation.operands), tuple(operation.operands)[::-1]][: 2 if op in _COMMUTATIVE else 1]
    for kept, constant in pairs:
        value = folder.scalar(constant)
        if (
            value == _IDENTITY[op]
            and kept.type == result.type
            and _is_exact_identity(op, lazy.tensor_of(result))
        ):
            result.replace_all_uses_with(kept)
            operation.erase()
            return
    if op == "power":
        _expand_power(operation, folder.scalar(operation.operands[1]))


def _is_exact_identity(op: str, type: RankedTensorType) -> bool:
    """Return whether the identity element leaves every value unchanged: ``-0.0 + 0.0`` is ``0.0``."""
    is_integer = str(type.element_type).startswith("i")
    return is_integer or op not in ("add", "subtract")


def _expand_power(operation: Op, exponent: float | None) -> None:
    """Rewrite powers that PyTorch computes by other ops, for every element type."""
    x, result = operation.operands[0], operation.results[0]
    if exponent is None or x.type != result.type:
        return
    if exponent in (2, 3):
        value = _create_like("stablehlo.multiply", [x, x], operation)
        if exponent == 3:
            value = _create_like("stablehlo.multiply", [value, x], operation)
    elif exponent in (0.5, -0.5) and not str(lazy.tensor_of(x).element_type).startswith("i"):
        value = _create_like("stablehlo.sqrt" if exponent > 0 else "stablehlo.rsqrt", [x], operation)
    else:
        return
    result.replace_all_uses_with(value)
    operation.erase()


def _make_broadcasts_explicit(operation: Op) -> None:
    """Broadcast the operands of a CHLO op with static shapes, as JAX does."""
    result = operation.results[0]
    operands = list(operation.operands)
    if not _is_static(operation) or not all(lazy.tensor_of(operand).has_static_shape for operand in operands):
        return
    if "broadcast_dimensions" in operation.attributes:
        return
    native = mlir.native_ir()
    shape = list(lazy.tensor_of(result).shape)
    broadcasts = [_broadcast(operand, shape, operation) for operand in operands]
    attributes = {
        name: native.Attribute.parse(str(operation.attributes[name]).replace("#chlo<", "#stablehlo<"))
        for name in operation.attributes
    }
    name = "stablehlo." + operation.name.removeprefix("chlo.broadcast_")
    _replace(operation, _create_like(name, broadcasts, operation, **attributes))


def _broadcast(operand: Value, shape: list[int], before: Op) -> Value:
    native = mlir.native_ir()
    dims = list(lazy.tensor_of(operand).shape)
    if dims == shape:
        return operand
    first = len(shape) - len(dims)
    return native.Operation.create(
        "stablehlo.broadcast_in_dim",
        results=[
            native.RankedTensorType.get(shape, lazy.tensor_of(operand).element_type, loc=before.location)
        ],
        operands=[operand],
        attributes={"broadcast_dimensions": native.DenseI64ArrayAttr.get(list(range(first, len(shape))))},
        loc=before.location,
        ip=native.InsertionPoint(before),
    ).result


def _create_like(name: str, operands: list[Value], like: Op, **attributes: Attribute) -> Value:
    """Create an op with the result type of ``like``, before it."""
    native = mlir.native_ir()
    return native.Operation.create(
        name,
        results=[like.results[0].type],
        operands=operands,
        attributes=attributes,
        loc=like.location,
        ip=native.InsertionPoint(like),
    ).result


def _is_static(operation: Op) -> bool:
    type = lazy.ranked(operation.results[0].type)
    return type is not None and type.has_static_shape


def _static_iota(operation: Op, _: ConstantFolder) -> None:
    if _is_static(operation):
        dimension = operation.attributes["iota_dimension"]
        _replace(operation, _create_like("stablehlo.iota", [], operation, iota_dimension=dimension))


def _static_reshape(operation: Op, _: ConstantFolder) -> None:
    if _is_static(operation) and lazy.tensor_of(operation.operands[0]).has_static_shape:
        _replace(operation, _create_like("stablehlo.reshape", [operation.operands[0]], operation))


def _static_broadcast(operation: Op, _: ConstantFolder) -> None:
    if _is_static(operation) and lazy.tensor_of(operation.operands[0]).has_static_shape:
        dimensions = operation.attributes["broadcast_dimensions"]
        operand = operation.operands[0]
        _replace(
            operation,
            _create_like("stablehlo.broadcast_in_dim", [operand], operation, broadcast_dimensions=dimensions),
        )


def _static_cast(operation: Op, _: ConstantFolder) -> None:
    operand, result = operation.operands[0], operation.results[0]
    if operand.type == result.type:
        _replace(operation, operand)


def _static_slice(operation: Op, folder: ConstantFolder) -> None:
    bounds = [folder.sizes(operand) for operand in list(operation.operands)[1:]]
    if not _is_static(operation) or any(bound is None for bound in bounds):
        return
    native = mlir.native_ir()
    names = ("start_indices", "limit_indices", "strides")
    attributes = {n: native.DenseI64ArrayAttr.get(list(b or ())) for n, b in zip(names, bounds, strict=True)}
    _replace(operation, _create_like("stablehlo.slice", [operation.operands[0]], operation, **attributes))


def _static_gather(operation: Op, folder: ConstantFolder) -> None:
    source, indices, slices = operation.operands
    sizes = folder.sizes(slices)
    if not _is_static(operation) or sizes is None:
        return
    attributes = {name: operation.attributes[name] for name in operation.attributes}
    attributes["slice_sizes"] = mlir.native_ir().DenseI64ArrayAttr.get(list(sizes))
    _replace(operation, _create_like("stablehlo.gather", [source, indices], operation, **attributes))


def _static_pad(operation: Op, folder: ConstantFolder) -> None:
    value, padding, *bounds = operation.operands
    edges = [folder.sizes(operand) for operand in bounds]
    if not _is_static(operation) or any(edge is None for edge in edges):
        return
    native = mlir.native_ir()
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    attributes = {n: native.DenseI64ArrayAttr.get(list(e or ())) for n, e in zip(names, edges, strict=True)}
    _replace(operation, _create_like("stablehlo.pad", [value, padding], operation, **attributes))


def _replace(operation: Op, value: Value) -> None:
    operation.results[0].replace_all_uses_with(value)
    operation.erase()


_STATIC_FORMS: dict[str, Callable[[Op, ConstantFolder], None]] = {
    "stablehlo.dynamic_iota": _static_iota,
    "stablehlo.dynamic_reshape": _static_reshape,
    "stablehlo.dynamic_broadcast_in_dim": _static_broadcast,
    "stablehlo.real_dynamic_slice": _static_slice,
    "stablehlo.dynamic_gather": _static_gather,
    "stablehlo.dynamic_pad": _static_pad,
    "stablehlo.convert": _static_cast,
    "tensor.cast": _static_cast,
}
