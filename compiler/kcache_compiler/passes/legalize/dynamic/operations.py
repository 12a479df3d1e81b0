"""Dynamic shapes: shape arithmetic becomes scalar code, and dynamic operations structured ones.

A small integer tensor that is made of sizes and constants is followed element by element, so that
the sizes of every tensor are formulas over the sizes of the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, linalg, tensor
from kcache_compiler.passes.generic import build_generic, identity
from kcache_compiler.passes.legalize.dynamic import implicit_broadcast as implicit
from kcache_compiler.passes.legalize.dynamic.size_arguments import gives_sizes, require_given
from kcache_compiler.passes.legalize.dynamic.size_checks import Requirements, origin, require_sizes
from kcache_compiler.passes.legalize.elementwise import cast, signless_tensor
from kcache_compiler.passes.stage import SizeChecks

#: Elements of a tensor that can be a shape.
SHAPE_LIMIT = 16
#: The importer's name (``kcache_compiler.spec.graph.operations``) of an assertion: a value, and a condition
#: on sizes under which it is defined.
ASSERTED = "kcache.asserted"
_BINARY: dict[str, Callable[[mlir.Value, mlir.Value], mlir.Value]] = {
    "stablehlo.add": arith.addi,
    "stablehlo.subtract": arith.subi,
    "stablehlo.multiply": arith.muli,
    "stablehlo.maximum": arith.maxsi,
    "stablehlo.minimum": arith.minsi,
    "stablehlo.divide": arith.divsi,
    "stablehlo.remainder": arith.remsi,
}

#: Operations that the toolchain's lowering ends the process over where a size of the result is ``?``.
_ENDING = frozenset({"stablehlo.bitcast_convert", "stablehlo.reduce_precision"})

Scalars = list[mlir.Value]
KnownSizes = dict[mlir.Value, Scalars]


def lower_dynamic(module: mlir.Module) -> SizeChecks:
    """Rewrite the dynamic operations of ``main``, and let it return pairs of sizes to check at run time."""
    known: KnownSizes = {}
    requirements = Requirements(mlir.main_function(module))
    consumers: dict[str, Callable[[mlir.Op, KnownSizes], None]] = {
        "stablehlo.dynamic_broadcast_in_dim": lambda op, known: _broadcast(op, known, requirements),
        "stablehlo.dynamic_reshape": lambda op, known: _reshape(op, known, requirements),
        "stablehlo.dynamic_iota": lambda op, known: _iota(op, known, requirements),
        "stablehlo.real_dynamic_slice": lambda op, known: _slice(op, known, requirements),
        "stablehlo.custom_call": lambda op, known: _assert(op, known, requirements),
    }
    sized = gives_sizes(requirements.main)
    for op in mlir.walk(requirements.main)[1:]:
        name = mlir.name_of(op)
        _reject_ending(op, name)
        with mlir.before(op):
            require_sizes(op, requirements)
            if sized:
                require_given(op, known, requirements)
            if name.startswith("chlo.broadcast_"):
                implicit.apply_spread(op, requirements, spread)
                continue
        if name in consumers:
            with mlir.before(op):
                consumers[name](op, known)
        elif len(op.results) == 1 and _may_be_shape(op.results[0].type):
            with mlir.after(op):
                _follow(op, known)
    requirements.finish()
    return tuple(requirements.relations)


def _reject_ending(op: mlir.Op, name: str) -> None:
    """Reject operations on which the upstream lowering aborts the process."""
    if name not in _ENDING and name not in ("stablehlo.gather", "stablehlo.scatter"):
        return
    if not any(None in mlir.sizes_of(value.type) for value in (*op.operands, *op.results)):
        return
    if name == "stablehlo.gather":
        numbers = mlir.gather_dimensions(op)
        if numbers["start_index_map"] and not numbers["operand_batching_dims"]:
            return
    raise UnsupportedOp(name, "dynamic sizes", mlir.location_of(op))


def _may_be_shape(kind: mlir.Type) -> bool:
    if not mlir.is_tensor(kind) or str(mlir.element_type(kind)) not in ("i32", "i64"):
        return False
    sizes = mlir.sizes_of(kind)
    return len(sizes) <= 1 and all(size is not None and size <= SHAPE_LIMIT for size in sizes)


def _follow(op: mlir.Op, known: KnownSizes) -> None:
    """Record the elements of the result of ``op`` when they are sizes or constants."""
    result = op.results[0]
    kind = mlir.element_type(result.type)
    name = mlir.name_of(op)
    operands = list(op.operands)
    if name == "stablehlo.constant":
        known[result] = [mlir.constant(number, str(kind)) for number in mlir.integers_of(op)]
    elif name == "stablehlo.get_dimension_size":
        size = mlir.tensor_size(operands[0], mlir.int_of(op.attributes["dimension"]))
        known[result] = [arith.index_cast(kind, size)]
        sizes = tensor.from_elements(result.type, known[result])
        result.replace_all_uses_with(sizes)
        known[sizes] = known[result]
        op.erase()
    elif operands and all(operand in known for operand in operands):
        match = _combine(op, name, [known[operand] for operand in operands], kind)
        if match is not None:
            known[result] = match


def _combine(op: mlir.Op, name: str, operands: list[Scalars], kind: mlir.Type) -> Scalars | None:
    if name in _BINARY:
        return [_BINARY[name](left, right) for left, right in zip(*operands, strict=True)]
    if name == "stablehlo.reshape":
        return operands[0]
    if name == "stablehlo.concatenate":
        return [scalar for operand in operands for scalar in operand]
    if name == "stablehlo.broadcast_in_dim" and len(operands[0]) == 1:
        return operands[0] * math.prod(size or 0 for size in mlir.sizes_of(op.results[0].type))
    if name == "stablehlo.slice":
        bounds = [
            mlir.integers(op.attributes[part])[0] for part in ("start_indices", "limit_indices", "strides")
        ]
        return operands[0][slice(*bounds)]
    if name == "stablehlo.convert":
        return [_resize(scalar, kind) for scalar in operands[0]]
    return None


def _resize(scalar: mlir.Value, kind: mlir.Type) -> mlir.Value:
    if scalar.type == kind:
        return scalar
    return arith.extsi(kind, scalar) if str(kind) == "i64" else arith.trunci(kind, scalar)


def _sizes(
    op: mlir.Op, operand: mlir.Value, known: KnownSizes, requirements: Requirements, least: int | None = 0
) -> list[mlir.Value]:
    """Numbers of a shape, which are at least ``least``."""
    if operand not in known:
        raise UnsupportedOp(mlir.name_of(op), "a shape that depends on data", mlir.location_of(op))
    result: list[mlir.Value] = []
    seen: set[mlir.Value] = set()
    for scalar in known[operand]:
        _require_quotients(op, scalar, requirements, seen)
        result.append(arith.index_cast(mlir.index_type(), scalar))
        if least is not None:
            _require_least(op, scalar, least, requirements)
    return result


def _require_least(op: mlir.Op, scalar: mlir.Value, least: int, requirements: Requirements) -> None:
    """``scalar`` is at least so much; nothing to check of what is so at all sizes."""
    literal = mlir.constant_int(scalar)
    owner = mlir.defining(scalar)
    whole = mlir.defining(owner.operands[0]) if owner is not None and len(owner.operands) == 1 else None
    size = least == 0 and whole is not None and mlir.name_of(whole) == "tensor.dim"
    if not size and (literal is None or literal < least):
        number = arith.index_cast(mlir.index_type(), scalar)
        requirements.at_most(op, mlir.constant(least, "index"), number)


def _require_quotients(
    op: mlir.Op, scalar: mlir.Value, requirements: Requirements, seen: set[mlir.Value]
) -> None:
    """What divides is above 0, and what it divides not below: formulas round down, programs towards 0."""
    owner = mlir.defining(scalar)
    if owner is None or scalar in seen or not mlir.name_of(owner).startswith("arith."):
        return
    seen.add(scalar)
    operands = list(owner.operands)
    if mlir.name_of(owner) in ("arith.divsi", "arith.remsi"):
        for operand, least in zip(operands, (0, 1), strict=True):
            _require_least(op, operand, least, requirements)
    for operand in operands:
        _require_quotients(op, operand, requirements, seen)


def _iota(op: mlir.Op, known: KnownSizes, requirements: Requirements) -> None:
    _sizes(op, op.operands[0], known, requirements)
    _give_sizes(op, known)


def _give_sizes(op: mlir.Op, known: KnownSizes) -> None:
    """Give the toolchain's lowering shapes whose elements it can see."""
    for number, operand in enumerate(list(op.operands)):
        if operand in known:
            op.operands[number] = tensor.from_elements(operand.type, known[operand])
        elif number or mlir.name_of(op) == "stablehlo.dynamic_iota":
            raise UnsupportedOp(mlir.name_of(op), "a shape that depends on data", mlir.location_of(op))


def _assert(op: mlir.Op, known: KnownSizes, requirements: Requirements) -> None:
    """Replace an assertion by its value, and require its condition."""
    if mlir.string_of(op.attributes["call_target_name"]) != ASSERTED:
        return
    _require(op, op.operands[1], known, requirements)
    op.results[0].replace_all_uses_with(op.operands[0])
    op.erase()


def _require(op: mlir.Op, condition: mlir.Value, known: KnownSizes, requirements: Requirements) -> None:
    """Add the condition of a shape assertion to the requirements.

    Raises ``UnsupportedOp`` for a condition that is not a conjunction of comparisons of sizes.
    """
    owner = mlir.defining(condition)
    name = "" if owner is None else mlir.name_of(owner)
    if owner is not None and name == "stablehlo.and":
        for part in list(owner.operands):
            _require(op, part, known, requirements)
        return
    if owner is not None and name == "stablehlo.constant":
        numbers = [
            mlir.constant(int("true" in str(owner.attributes["value"])), "index"),
            mlir.constant(1, "index"),
        ]
        requirements.equal(op, numbers[0], numbers[1])
        return
    direction = ""
    if (
        owner is not None
        and name == "stablehlo.compare"
        and all(operand in known for operand in owner.operands)
    ):
        direction = str(owner.attributes["comparison_direction"]).rstrip(">").split()[-1]
    if owner is None or direction not in ("EQ", "LE", "LT", "GE", "GT"):
        reason = "what it asserts is no comparison of sizes"
        raise UnsupportedOp("stablehlo.custom_call", f"@shape_assertion: {reason}", mlir.location_of(op))
    left, right = (
        _sizes(op, operand, known, requirements, least=None)[0] for operand in list(owner.operands)
    )
    if direction in ("GE", "GT"):
        left, right = right, left
    if direction in ("LT", "GT"):
        left = arith.addi(left, mlir.constant(1, "index"))
    if direction == "EQ":
        requirements.equal(op, left, right)
    else:
        requirements.at_most(op, left, right)


def _dynamic_only(kind: mlir.Type, sizes: list[mlir.Value]) -> list[mlir.Value]:
    return [size for size, static in zip(sizes, mlir.sizes_of(kind), strict=True) if static is None]


def _slice(op: mlir.Op, known: KnownSizes, requirements: Requirements) -> None:
    """Slice within the operand; a result whose size is stated, not computed, is not taken."""
    if any(size is not None for size in mlir.sizes_of(op.results[0].type)):
        raise UnsupportedOp(mlir.name_of(op), "a result of static size", mlir.location_of(op))
    starts, limits, _ = (
        _sizes(op, operand, known, requirements, least)
        for operand, least in zip(list(op.operands)[1:4], (0, None, 1), strict=True)
    )
    for axis, (start, limit) in enumerate(zip(starts, limits, strict=True)):
        requirements.at_most(op, start, limit)
        requirements.at_most(op, limit, mlir.tensor_size(op.operands[0], axis))
    _give_sizes(op, known)


def _broadcast(op: mlir.Op, known: KnownSizes, requirements: Requirements) -> None:
    sizes = _sizes(op, op.operands[1], known, requirements)
    axes = mlir.integers(op.attributes["broadcast_dimensions"])
    result = spread(op, op.operands[0], axes, sizes, requirements)
    op.results[0].replace_all_uses_with(result)
    op.erase()


def spread(
    op: mlir.Op, source: mlir.Value, axes: list[int], sizes: list[mlir.Value], requirements: Requirements
) -> mlir.Value:
    """``source``, whose axes are ``axes`` of the result of ``op``, which has these sizes."""
    shape = "".join(f"{'?' if size is None else size}x" for size in mlir.sizes_of(op.results[0].type))
    kind = mlir.type_of(f"tensor<{shape}{mlir.element_type(source.type)}>")
    plain = signless_tensor(kind)
    operand = cast(source, signless_tensor(source.type))
    positions = [
        _position(op, source, number, axis, sizes[axis], requirements) for number, axis in enumerate(axes)
    ]
    empty = mlir.empty_tensor(plain, _dynamic_only(plain, sizes))
    same = identity(len(sizes))
    kinds = ["parallel"] * len(sizes)
    if all(isinstance(position, str) for position in positions):
        reading = f"{same.partition('->')[0]}-> ({', '.join(map(str, positions))})"
        filled = build_generic([operand], [empty], [reading, same], kinds, lambda scalars: scalars[:1])
    else:

        def read(_: list[mlir.Value]) -> list[mlir.Value]:
            indices = [_index(position) for position in positions]
            return [tensor.extract(operand, indices)]

        filled = build_generic([], [empty], [same], kinds, read)
    return cast(filled.results[0], kind)


def _position(
    op: mlir.Op,
    source: mlir.Value,
    number: int,
    axis: int,
    expected: mlir.Value,
    requirements: Requirements,
) -> str | tuple[int, mlir.Value]:
    """Where axis ``number`` of the source is read for an element of the result.

    An affine expression when it is known whether the axis expands; else the axis of the result and
    the last index of the source, which is 0 when it expands.
    """
    size = mlir.sizes_of(source.type)[number]
    have = mlir.tensor_size(source, number)
    if size == 1:
        return f"d{axis}" if mlir.sizes_of(op.results[0].type)[axis] == 1 else "0"
    if size is not None:
        requirements.equal(op, have, expected)
        return f"d{axis}"
    if origin(have, requirements.origins) == origin(expected, requirements.origins):
        return f"d{axis}"
    one, zero = mlir.constant(1, "index"), mlir.constant(0, "index")
    last = arith.subi(have, one)
    expands = arith.minsi(last, one)
    apart = arith.subi(expected, have)
    requirements.equal(op, arith.muli(expands, apart), zero)
    return axis, last


def _index(position: str | tuple[int, mlir.Value]) -> mlir.Value:
    """The index of ``_position`` inside the body of a generic."""
    if position == "0":
        return mlir.constant(0, "index")
    axis, last = (int(position[1:]), None) if isinstance(position, str) else position
    here = linalg.index(axis)
    return here if last is None else arith.minsi(here, last)


def _product(sizes: list[mlir.Value]) -> mlir.Value:
    total = sizes[0]
    for size in sizes[1:]:
        total = arith.muli(total, size)
    return total


def _reshape(op: mlir.Op, known: KnownSizes, requirements: Requirements) -> None:
    """Flatten, copy to a tensor of the wanted count, which is to be the same, and expand."""
    kind = op.results[0].type
    plain = signless_tensor(kind)
    element = mlir.element_type(plain)
    sizes = _sizes(op, op.operands[1], known, requirements)
    source = cast(op.operands[0], signless_tensor(op.operands[0].type))
    flat = mlir.type_of(f"tensor<?x{element}>")
    if mlir.rank_of(source.type) == 0 or mlir.rank_of(plain) == 0:
        raise UnsupportedOp(mlir.name_of(op), "a scalar of dynamic shape", mlir.location_of(op))
    groups = mlir.attribute("[[" + ", ".join(str(axis) for axis in range(mlir.rank_of(source.type))) + "]]")
    total = _product(sizes)
    requirements.equal(
        op, _product([mlir.tensor_size(source, axis) for axis in range(mlir.rank_of(source.type))]), total
    )
    if mlir.rank_of(source.type) > 1:
        static = mlir.sizes_of(source.type)
        if None not in static:
            count = 1
            for size in static:
                count *= size or 0
            flat_source = mlir.type_of(f"tensor<{count}x{element}>")
        else:
            flat_source = flat
        source = tensor.collapse_shape(flat_source, source, groups)
    empty = mlir.empty_tensor(flat, [total])
    maps = [identity(1)] * 2
    copied = build_generic([source], [empty], maps, ["parallel"], lambda scalars: scalars[:1]).results[0]
    if mlir.rank_of(plain) > 1:
        if None not in mlir.sizes_of(plain):
            count = math.prod(size or 0 for size in mlir.sizes_of(plain))
            copied = tensor.cast(mlir.type_of(f"tensor<{count}x{element}>"), copied)
        groups = mlir.attribute("[[" + ", ".join(str(axis) for axis in range(mlir.rank_of(plain))) + "]]")
        shape = [-(2**63) if size is None else size for size in mlir.sizes_of(plain)]
        copied = tensor.expand_shape(plain, copied, groups, _dynamic_only(plain, sizes), shape)
    elif copied.type != plain:
        copied = tensor.cast(plain, copied)
    op.results[0].replace_all_uses_with(cast(copied, kind))
    op.erase()
