"""Gives contractions half-precision operands, which matrix units require, if they are only widened before.

Frameworks and the canonical form convert operands to f32 and multiply in f32. The conversion moves into the
body of the contraction, which changes no value: the f32 tensor is not materialized.
"""

from __future__ import annotations

from kcache_compiler.lower.gemm.match import converts_half, is_contraction
from kcache_compiler.lower.loops.wide_reductions import elementwise
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import arith, linalg
from kcache_compiler.mlir.dialects import tensor as tensor_dialect
from kcache_compiler.passes.stage import Unit

_NARROW = ("f16", "bf16")


def narrow_operands(unit: Unit) -> None:
    """Let contractions read the sources of widened operands, on targets that convert f16 in packing."""
    if not converts_half(unit.target):
        return
    generics = mlir.named(mlir.main_function(unit.module), "linalg.generic")
    contractions = [generic for generic in generics if is_contraction(generic) and len(generic.operands) == 3]
    for contraction in contractions:
        for operand in list(contraction.operands)[:2]:
            _collapse_narrow(operand)
        for operand in list(contraction.operands)[:2]:
            _end_narrow(operand)
    for contraction in contractions:
        _read_narrow(contraction)


def _is_contraction(op: mlir.Op) -> bool:
    return mlir.name_of(op) == "linalg.generic" and is_contraction(op)


def _widening(tensor: mlir.Value) -> mlir.Op | None:
    """The producer of a tensor, if it widens each element at the end and has an identity map."""
    producer = mlir.defining(tensor)
    if producer is None or mlir.name_of(producer) != "linalg.generic" or len(producer.results) != 1:
        return None
    kinds, maps = mlir.iterator_types(producer), mlir.indexing_maps(producer)
    if any("parallel" not in kind for kind in kinds) or not mlir.is_identity(maps[-1]):
        return None
    conversion = mlir.defining(mlir.operations(mlir.block_of(producer))[-1].operands[0])
    widens = conversion is not None and mlir.name_of(conversion) == "arith.extf"
    if conversion is None or not widens or str(conversion.operands[0].type) not in _NARROW:
        return None
    return producer if str(mlir.element_type(tensor.type)) == "f32" else None


def _collapse_narrow(tensor: mlir.Value) -> None:
    """Repeat narrow elements, merge their axes and then widen: keys and values of groups of query heads."""
    view = mlir.defining(tensor)
    consumers = [user for user, _ in mlir.uses(tensor)]
    if view is None or mlir.name_of(view) != "tensor.collapse_shape":
        return
    if len(list(mlir.uses(view.operands[0]))) != 1 or not all(map(_is_contraction, consumers)):
        return
    copy = mlir.defining(view.operands[0])
    source = None if copy is None else _source_of_copy(copy)
    if copy is None or source is None:
        return
    narrow, access = source
    element = mlir.element_type(narrow.type)
    kinds = [
        mlir.type_of(str(wide.type).replace("xf32", f"x{element}")) for wide in (view.operands[0], tensor)
    ]
    with mlir.before(copy):
        maps = mlir.map_attrs([access, mlir.indexing_maps(copy)[1]])
        empty = mlir.empty_tensor(kinds[0], [])
        repeated = linalg.GenericOp(
            [kinds[0]], [narrow], [empty], maps, copy.attributes["iterator_types"]
        ).operation
    with mlir.at_end(mlir.new_block(repeated, 0, [element, element])):
        linalg.yield_([mlir.block_of(repeated).arguments[0]])
    users = list(mlir.uses(tensor))
    with mlir.after(view):
        merged = tensor_dialect.collapse_shape(
            kinds[1], repeated.results[0], view.attributes["reassociation"]
        )
        wide = elementwise(merged, mlir.type_of("f32"), arith.extf)
    for user, number in users:
        user.operands[number] = wide
    for op in (view, copy):
        op.erase()


def _source_of_copy(copy: mlir.Op) -> tuple[mlir.Value, mlir.AffineMap] | None:
    """The narrow source of a copy of static size of widened elements, and the indexing map."""
    if (
        mlir.name_of(copy) != "linalg.generic"
        or len(copy.operands) != 2
        or None in mlir.sizes_of(copy.results[0].type)
    ):
        return None
    (end, *others), maps = mlir.operations(mlir.block_of(copy)), mlir.indexing_maps(copy)
    parallel = all("parallel" in kind for kind in mlir.iterator_types(copy))
    if others or end.operands[0] != mlir.block_of(copy).arguments[0] or not parallel:
        return None
    source = _source(copy.operands[0]) if mlir.is_identity(maps[1]) else None
    return None if source is None else (source[0], mlir.compose(source[1], maps[0]))


def _end_narrow(tensor: mlir.Value) -> None:
    """Split the final widening off the producer of a tensor, if only contractions use it."""
    producer = _widening(tensor)
    consumers = [user for user, _ in mlir.uses(tensor)]
    if producer is None or not mlir.sizes_of(tensor.type) or not all(map(_is_contraction, consumers)):
        return
    body = mlir.block_of(producer)
    end, arguments = mlir.operations(body)[-1], list(body.arguments)
    narrow = mlir.defining(end.operands[0]).operands[0]  # pyright: ignore[reportOptionalMemberAccess]
    if narrow in arguments or list(mlir.uses(arguments[-1])):
        return
    users = list(mlir.uses(tensor))
    place = len(producer.operands) - 1
    kind = mlir.type_of(str(tensor.type).replace("xf32", f"x{narrow.type}"))
    init = mlir.defining(producer.operands[place])
    if init is None or mlir.name_of(init) != "tensor.empty":
        return
    with mlir.before(producer):
        producer.operands[place] = mlir.empty_tensor(kind, list(init.operands))
    arguments[-1].set_type(narrow.type)
    end.operands[0] = narrow
    producer.results[0].set_type(kind)
    with mlir.after(producer):
        wide = elementwise(producer.results[0], mlir.type_of("f32"), arith.extf)
    for user, number in users:
        user.operands[number] = wide


def _source(tensor: mlir.Value) -> tuple[mlir.Value, mlir.AffineMap] | None:
    """The source of a tensor that only widens it, and the indexing map."""
    producer = _widening(tensor)
    if producer is None or len(mlir.operations(mlir.block_of(producer))) != 2:
        return None
    block = mlir.block_of(producer)
    arguments = list(block.arguments)
    narrow = mlir.operations(block)[0].operands[0]
    if narrow not in arguments[:-1]:
        return None
    place = arguments.index(narrow)
    source = producer.operands[place]
    return (source, mlir.indexing_maps(producer)[place]) if mlir.is_tensor(source.type) else None


def _read_narrow(contraction: mlir.Op) -> None:
    """Make a contraction read narrow sources of its operands, and widen their elements in its body."""
    operands = list(contraction.operands)
    maps = mlir.indexing_maps(contraction)
    sources = {place: _source(operands[place]) for place in (0, 1)}
    narrow_sources = {place: source for place, source in sources.items() if source is not None}
    if not narrow_sources:
        return
    wide = [operands[place] for place in narrow_sources]
    for place, (source, outer) in narrow_sources.items():
        operands[place], maps[place] = source, mlir.compose(outer, maps[place])
    with mlir.before(contraction):
        kinds = [result.type for result in contraction.results]
        iterators = contraction.attributes["iterator_types"]
        narrow_contraction = linalg.GenericOp(
            kinds, operands[:2], operands[2:], mlir.map_attrs(maps), iterators
        ).operation
    mlir.move_block(contraction, narrow_contraction, 0)
    for place in narrow_sources:
        _widen_argument(mlir.block_of(narrow_contraction), place, mlir.element_type(operands[place].type))
    for old, new in zip(contraction.results, narrow_contraction.results, strict=True):
        old.replace_all_uses_with(new)
    contraction.erase()
    for tensor in dict.fromkeys(wide):
        if not list(mlir.uses(tensor)):
            mlir.definition(tensor).erase()


def _widen_argument(block: mlir.Block, place: int, narrow: mlir.Type) -> None:
    argument = list(block.arguments)[place]
    wide = argument.type
    argument.set_type(narrow)
    with mlir.at_start(block):
        widened = arith.extf(wide, argument)
    argument.replace_all_uses_with(widened)
    mlir.definition(widened).operands[0] = argument
