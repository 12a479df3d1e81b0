"""Reductions of f16 and bf16 in f32: the total is rounded once, and rows may be distributed over threads.

The emulation of half precision widens, combines and rounds the total at each step. Under numerics ``strict``
it stays so.
"""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.llvm.target import Device
from kcache_compiler.lower.gemm.match import is_contraction
from kcache_compiler.lower.sort_scatter.marker import is_marker
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, linalg, tensor
from kcache_compiler.passes.attention.mark import MARK
from kcache_compiler.passes.fast_math import COMBINERS
from kcache_compiler.passes.generic import build_generic, identity
from kcache_compiler.passes.narrow_types.half_precision import converts_in_software
from kcache_compiler.passes.stage import Unit

_NARROW = ("f16", "bf16")


def widen_reductions(unit: Unit) -> None:
    """Accumulate reductions with half-precision results in f32, and round afterwards."""
    if unit.options.numerics == "strict":
        return
    for generic in mlir.named(mlir.main_function(unit.module), "linalg.generic"):
        if MARK in generic.attributes:  # attention rounds its own totals
            continue
        reduces = any("reduction" in kind for kind in mlir.iterator_types(generic))
        if not reduces or is_marker(generic) or is_contraction(generic) or not _is_narrow(generic):
            continue
        if _is_product(unit, generic):
            continue
        _widen(generic)


def _outputs(generic: mlir.Op) -> list[mlir.Value]:
    inputs = mlir.input_count(generic)
    return list(mlir.block_of(generic).arguments)[inputs:]


def _is_narrow(generic: mlir.Op) -> bool:
    """Whether all results are half precision and round the combination of the widened total."""
    yielded = list(mlir.operations(mlir.block_of(generic))[-1].operands)
    for value, output in zip(yielded, _outputs(generic), strict=True):
        rounded = mlir.defining(value)
        users = [user for user, _ in mlir.uses(output)]
        if str(output.type) not in _NARROW or len(users) != 1 or rounded is None:
            return False
        (widened,) = users
        if mlir.name_of(rounded) != "arith.truncf" or mlir.name_of(widened) != "arith.extf":
            return False
        combined = mlir.defining(rounded.operands[0])
        takes = [user for user, _ in mlir.uses(widened.results[0])]
        once = len(list(mlir.uses(value))) == 1 and len(list(mlir.uses(rounded.operands[0]))) == 1
        if combined is None or mlir.name_of(combined) not in COMBINERS or takes != [combined] or not once:
            return False
    return True


def _is_product(unit: Unit, generic: mlir.Op) -> bool:
    """Whether it is left to the products of CPUs, which round totals where they see conversions."""
    if isinstance(unit.target, Device) or not _sums_products(generic):
        return False
    is_f16 = str(mlir.element_type(generic.results[0].type)) == "f16"
    return not (is_f16 and converts_in_software(unit.target))


def _sums_products(generic: mlir.Op) -> bool:
    """Whether the single result is a sum of products of two operands."""
    yielded = list(mlir.operations(mlir.block_of(generic))[-1].operands)
    combined = mlir.definition(mlir.definition(yielded[0]).operands[0])
    if len(yielded) != 1 or mlir.name_of(combined) != "arith.addf":
        return False
    if None in mlir.sizes_of(generic.results[0].type):
        return False  # with dynamic sizes no product but a contraction takes it
    products = [mlir.defining(_source(operand)) for operand in combined.operands]
    return any(
        product is not None
        and mlir.name_of(product) == "arith.mulf"
        and all(mlir.defining(_source(factor)) is None for factor in product.operands)
        for product in products
    )


def _source(value: mlir.Value) -> mlir.Value:
    """What a value is a conversion of."""
    owner = mlir.defining(value)
    while owner is not None and mlir.name_of(owner) in ("arith.extf", "arith.truncf"):
        value = owner.operands[0]
        owner = mlir.defining(value)
    return value


def _widen(generic: mlir.Op) -> None:
    """Accumulate a reduction in the type to which its body widens its total, and round the result once."""
    body = mlir.block_of(generic)
    yielded = mlir.operations(body)[-1]
    count = len(yielded.operands)
    operands = list(generic.operands)
    narrow = operands[-count:]
    with mlir.before(generic):
        wide = [_widened(tensor) for tensor in narrow]
    for position, output in enumerate(_outputs(generic)):
        (widened,) = [user for user, _ in mlir.uses(output)]
        output.set_type(widened.results[0].type)
        widened.results[0].replace_all_uses_with(output)
        widened.erase()
        rounded = mlir.definition(yielded.operands[position])
        yielded.operands[position] = rounded.operands[0]
        rounded.erase()
    with mlir.before(generic):
        kinds = [value.type for value in wide]
        maps, iterators = generic.attributes["indexing_maps"], generic.attributes["iterator_types"]
        wide_generic = linalg.GenericOp(kinds, operands[:-count], wide, maps, iterators).operation
    mlir.move_block(generic, wide_generic, 0)
    with mlir.before(generic):
        for old, new in zip(generic.results, wide_generic.results, strict=True):
            old.replace_all_uses_with(elementwise(new, mlir.element_type(old.type), arith.truncf))
    generic.erase()


def _widened(tensor: mlir.Value) -> mlir.Value:
    """The initial value of a reduction in f32; a constant fill stays one."""
    number = constant_fill(tensor)
    return elementwise(tensor, mlir.type_of("f32"), arith.extf, number)


def constant_fill(tensor: mlir.Value) -> float | None:
    """The constant that a tensor is filled with, or None."""
    owner = mlir.defining(tensor)
    if owner is None or mlir.name_of(owner) != "linalg.generic":
        return None
    body = mlir.operations(mlir.block_of(owner))
    if len(body) != 1 or len(owner.results) != 1:
        return None
    value = body[0].operands[0]
    if mlir.defining(value) is None:
        arguments = list(mlir.block_of(owner).arguments)
        value = owner.operands[arguments.index(value)]
    constant = mlir.defining(value)
    if constant is None or mlir.name_of(constant) != "arith.constant" or mlir.is_tensor(value.type):
        return None
    return mlir.float_of(constant.attributes["value"])


def elementwise(
    source: mlir.Value,
    element: mlir.Type,
    convert: Callable[[mlir.Type, mlir.Value], mlir.Value],
    number: float | None = None,
) -> mlir.Value:
    """Convert each element, or fill with ``number``."""
    sizes = mlir.sizes_of(source.type)
    dims = "".join(f"{'?' if size is None else size}x" for size in sizes)
    kind = mlir.type_of(f"tensor<{dims}{element}>")
    dynamic = [
        tensor.dim(source, mlir.constant(axis, "index")) for axis, size in enumerate(sizes) if size is None
    ]
    empty = mlir.empty_tensor(kind, dynamic)
    rank = len(sizes)
    if number is not None:
        return build_generic(
            [],
            [empty],
            [identity(rank)],
            ["parallel"] * rank,
            lambda _: [mlir.float_constant(number, element)],
        ).results[0]
    return build_generic(
        [source],
        [empty],
        [identity(rank)] * 2,
        ["parallel"] * rank,
        lambda arguments: [convert(element, arguments[0])],
    ).results[0]
