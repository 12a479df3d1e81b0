"""StableHLO that was lowered from another dialect, as its own frontend would have written it.

Every step holds for all sizes and is exact: constants are computed, what changes no value goes, powers with a
small constant are what PyTorch computes for them, and what has a static result is not dynamic.
"""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.frontends.torch.scalar_arithmetic import Scalars
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

#: Op -> the number that, as an operand, leaves the other one as it is.
_NEUTRAL = {"multiply": 1, "add": 0, "subtract": 0, "divide": 1, "power": 1}
_COMMUTE = frozenset({"multiply", "add"})
#: Elementwise CHLO ops with a StableHLO op of the same name and attributes.
_SPREADING = frozenset(
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


def tidy(module: Native) -> None:
    """Simplify a module that was lowered to StableHLO, in place."""
    scalars = Scalars()
    scalars.fold(module)
    with module.context:
        for operation in mlir.all_operations(module.operation):
            _STATIC.get(operation.name, _nothing)(operation, scalars)
        for operation in mlir.all_operations(module.operation):
            if operation.name.startswith(_ELEMENTWISE) and len(operation.operands) == 2:
                _tidy_elementwise(operation, scalars)
        for operation in mlir.all_operations(module.operation):
            if operation.name in _SPREADING:
                _spread(operation)
    mlir.run_passes(module, "builtin.module(func.func(trivial-dce))")


def _nothing(_: Native, __: Scalars) -> None:
    pass


def _tidy_elementwise(operation: Native, scalars: Scalars) -> None:
    op = operation.name.removeprefix("stablehlo.").removeprefix("chlo.broadcast_")
    if op not in _NEUTRAL:
        return
    (result,) = operation.results
    pairs = [tuple(operation.operands), tuple(operation.operands)[::-1]][: 2 if op in _COMMUTE else 1]
    for kept, other in pairs:
        number = scalars.number(other)
        if number == _NEUTRAL[op] and kept.type == result.type and _exact(op, result.type):
            result.replace_all_uses_with(kept)
            operation.erase()
            return
    if op == "power":
        _tidy_power(operation, scalars.number(operation.operands[1]))


def _exact(op: str, type: Native) -> bool:
    """Whether the neutral number leaves every value as it is: ``-0.0 + 0.0`` is ``0.0``."""
    integers = str(type.element_type).startswith("i")
    return integers or op not in ("add", "subtract")


def _tidy_power(operation: Native, exponent: float | None) -> None:
    """PyTorch computes these powers so, whatever the element type."""
    x, result = operation.operands[0], operation.results[0]
    if exponent is None or x.type != result.type:
        return
    if exponent in (2, 3):
        new = _emit("stablehlo.multiply", [x, x], operation)
        if exponent == 3:
            new = _emit("stablehlo.multiply", [new, x], operation)
    elif exponent in (0.5, -0.5) and not str(x.type.element_type).startswith("i"):
        new = _emit("stablehlo.sqrt" if exponent > 0 else "stablehlo.rsqrt", [x], operation)
    else:
        return
    result.replace_all_uses_with(new)
    operation.erase()


def _spread(operation: Native) -> None:
    """Broadcast the operands of a CHLO op whose shapes are static, as JAX does."""
    result = operation.results[0]
    operands = list(operation.operands)
    if not _is_static(operation) or not all(operand.type.has_static_shape for operand in operands):
        return
    if "broadcast_dimensions" in operation.attributes:
        return
    native = mlir.native_ir()
    shape = list(result.type.shape)
    whole = [_broadcast(native, operand, shape, operation) for operand in operands]
    attributes = {
        name: native.Attribute.parse(str(operation.attributes[name]).replace("#chlo<", "#stablehlo<"))
        for name in operation.attributes
    }
    name = "stablehlo." + operation.name.removeprefix("chlo.broadcast_")
    _swap(operation, _emit(name, whole, operation, **attributes))


def _broadcast(native: Native, operand: Native, shape: list[int], near: Native) -> Native:
    own = list(operand.type.shape)
    if own == shape:
        return operand
    first = len(shape) - len(own)
    return native.Operation.create(
        "stablehlo.broadcast_in_dim",
        results=[native.RankedTensorType.get(shape, operand.type.element_type, loc=near.location)],
        operands=[operand],
        attributes={"broadcast_dimensions": native.DenseI64ArrayAttr.get(list(range(first, len(shape))))},
        loc=near.location,
        ip=native.InsertionPoint(near),
    ).result


def _emit(name: str, operands: list[Native], near: Native, **attributes: Native) -> Native:
    """An op like ``near`` in its result, right before it."""
    native = mlir.native_ir()
    return native.Operation.create(
        name,
        results=[near.results[0].type],
        operands=operands,
        attributes=attributes,
        loc=near.location,
        ip=native.InsertionPoint(near),
    ).result


def _is_static(operation: Native) -> bool:
    native = mlir.native_ir()
    type = operation.results[0].type
    return isinstance(type, native.RankedTensorType) and type.has_static_shape


def _static_iota(operation: Native, _: Scalars) -> None:
    if _is_static(operation):
        dimension = operation.attributes["iota_dimension"]
        _swap(operation, _emit("stablehlo.iota", [], operation, iota_dimension=dimension))


def _static_reshape(operation: Native, _: Scalars) -> None:
    if _is_static(operation) and operation.operands[0].type.has_static_shape:
        _swap(operation, _emit("stablehlo.reshape", [operation.operands[0]], operation))


def _static_broadcast(operation: Native, _: Scalars) -> None:
    if _is_static(operation) and operation.operands[0].type.has_static_shape:
        dimensions = operation.attributes["broadcast_dimensions"]
        operand = operation.operands[0]
        _swap(
            operation,
            _emit("stablehlo.broadcast_in_dim", [operand], operation, broadcast_dimensions=dimensions),
        )


def _static_cast(operation: Native, _: Scalars) -> None:
    operand, result = operation.operands[0], operation.results[0]
    if operand.type == result.type:
        _swap(operation, operand)


def _static_slice(operation: Native, scalars: Scalars) -> None:
    bounds = [scalars.sizes(operand) for operand in list(operation.operands)[1:]]
    if not _is_static(operation) or any(bound is None for bound in bounds):
        return
    native = mlir.native_ir()
    names = ("start_indices", "limit_indices", "strides")
    attributes = {n: native.DenseI64ArrayAttr.get(list(b or ())) for n, b in zip(names, bounds, strict=True)}
    _swap(operation, _emit("stablehlo.slice", [operation.operands[0]], operation, **attributes))


def _static_gather(operation: Native, scalars: Scalars) -> None:
    source, indices, slices = operation.operands
    sizes = scalars.sizes(slices)
    if not _is_static(operation) or sizes is None:
        return
    attributes = {name: operation.attributes[name] for name in operation.attributes}
    attributes["slice_sizes"] = mlir.native_ir().DenseI64ArrayAttr.get(list(sizes))
    _swap(operation, _emit("stablehlo.gather", [source, indices], operation, **attributes))


def _static_pad(operation: Native, scalars: Scalars) -> None:
    value, padding, *bounds = operation.operands
    edges = [scalars.sizes(operand) for operand in bounds]
    if not _is_static(operation) or any(edge is None for edge in edges):
        return
    native = mlir.native_ir()
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    attributes = {n: native.DenseI64ArrayAttr.get(list(e or ())) for n, e in zip(names, edges, strict=True)}
    _swap(operation, _emit("stablehlo.pad", [value, padding], operation, **attributes))


def _swap(operation: Native, value: Native) -> None:
    operation.results[0].replace_all_uses_with(value)
    operation.erase()


_STATIC: dict[str, Callable[[Native, Scalars], None]] = {
    "stablehlo.dynamic_iota": _static_iota,
    "stablehlo.dynamic_reshape": _static_reshape,
    "stablehlo.dynamic_broadcast_in_dim": _static_broadcast,
    "stablehlo.real_dynamic_slice": _static_slice,
    "stablehlo.dynamic_gather": _static_gather,
    "stablehlo.dynamic_pad": _static_pad,
    "stablehlo.convert": _static_cast,
    "tensor.cast": _static_cast,
}
