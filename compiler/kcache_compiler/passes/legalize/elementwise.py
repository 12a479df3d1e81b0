"""Operations one element at a time: rewritten to ``linalg.generic`` with a body of our own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import builtin
from kcache_compiler.passes.bufferization.signature import signless
from kcache_compiler.passes.generic import build_generic, identity

Body = Callable[[list[mlir.Value]], mlir.Value]


def signless_tensor(kind: mlir.Type) -> mlir.Type:
    """The tensor type with its unsigned element type made signless."""
    text = str(kind)
    element = str(mlir.element_type(kind))
    if not element.startswith("ui"):
        return kind
    return mlir.type_of(
        text[: text.rindex(element)] + element[1:] + text[text.rindex(element) + len(element) :]
    )


def cast(value: mlir.Value, kind: mlir.Type) -> mlir.Value:
    """``value`` as ``kind``, which differs in signedness only."""
    if value.type == kind:
        return value
    return builtin.UnrealizedConversionCastOp([kind], [value]).results[0]


def empty_like(source: mlir.Value, kind: mlir.Type) -> mlir.Value:
    """An empty tensor of type ``kind`` with the dynamic sizes of ``source``."""
    sizes = [mlir.tensor_size(source, axis) for axis, size in enumerate(mlir.sizes_of(kind)) if size is None]
    return mlir.empty_tensor(kind, sizes)


def rewrite_elementwise(operation: mlir.Op, body: Body, shape_of: int = 0) -> None:
    """Replace ``operation`` by a generic that computes ``body`` of one element of each operand.

    Operands of rank 0 are broadcast (clamp and select take such). ``shape_of`` is the operand that
    has the shape of the result.
    """
    result = operation.results[0].type
    with mlir.before(operation):
        operands = [cast(operand, signless_tensor(operand.type)) for operand in operation.operands]
        output = empty_like(operands[shape_of], signless_tensor(result))
        generic = elementwise(operands, output, body)
        operation.results[0].replace_all_uses_with(cast(generic, result))
    operation.erase()


def elementwise(operands: Sequence[mlir.Value], output: mlir.Value, body: Body) -> mlir.Value:
    """A generic over the shape of ``output`` at the current point."""
    rank = mlir.rank_of(output.type)
    same = identity(rank)
    scalar = same.partition("->")[0] + "-> ()"
    maps = [same if mlir.rank_of(operand.type) == rank else scalar for operand in operands]

    def yields(arguments: list[mlir.Value]) -> list[mlir.Value]:
        return [body(arguments[:-1])]

    generic = build_generic(operands, [output], [*maps, same], ["parallel"] * rank, yields)
    return generic.results[0]


def element(kind: mlir.Type) -> mlir.Type:
    """The signless element type."""
    return signless(mlir.element_type(kind))
