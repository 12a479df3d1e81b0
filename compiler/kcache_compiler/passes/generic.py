"""Building ``linalg.generic`` operations, on tensors and on buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.mlir.dialects import linalg, memref

Body = Callable[[list[mlir.Value]], Sequence[mlir.Value]]


def build_generic(
    inputs: Sequence[mlir.Value],
    outputs: Sequence[mlir.Value],
    maps: Sequence[str],
    kinds: Sequence[str],
    body: Body,
) -> mlir.Op:
    """A generic at the current point; ``maps`` are affine maps as text, one an operand.

    ``body`` gets one scalar an operand and returns what is yielded. Results exist when the outputs
    are tensors.
    """
    operands = [*inputs, *outputs]
    iterators = ", ".join(f"#linalg.iterator_type<{kind}>" for kind in kinds)
    generic = linalg.GenericOp(
        [output.type for output in outputs if mlir.is_tensor(output.type)],
        inputs,
        outputs,
        mlir.attribute("[" + ", ".join(f"affine_map<{text}>" for text in maps) + "]"),
        mlir.attribute(f"[{iterators}]"),
    ).operation
    shaped = [operand.type for operand in operands]
    elements = [
        mlir.element_type(kind) if mlir.is_tensor(kind) or mlir.is_memref(kind) else kind for kind in shaped
    ]
    block = mlir.new_block(generic, 0, elements)
    with mlir.at_end(block):
        linalg.yield_(body(list(block.arguments)))
    return generic


def identity(rank: int) -> str:
    """The identity map of ``rank`` dimensions as text."""
    dims = ", ".join(f"d{axis}" for axis in range(rank))
    return f"({dims}) -> ({dims})"


def copies_to_generics(module: mlir.Module) -> None:
    """Replace every ``memref.copy`` by a generic: it is scheduled like any other launch."""
    for copy in mlir.named(module, "memref.copy"):
        source, target = copy.operands
        rank = mlir.rank_of(target.type)
        with mlir.before(copy):
            build_generic(
                [source], [target], [identity(rank)] * 2, ["parallel"] * rank, lambda arguments: arguments[:1]
            )
        copy.erase()


def hoist_sizes(module: mlir.Module) -> None:
    """Hoist ``memref.dim`` out of the bodies of structured operations."""
    main = mlir.main_function(module)
    if not mlir.named(main, "memref.dim"):
        return
    for generic in mlir.named(main, "linalg.generic"):
        for dim in mlir.named(generic, "memref.dim"):
            axis = mlir.constant_int(dim.operands[1])
            if axis is None:
                raise UnsupportedOp("memref.dim", "an axis that depends on data", mlir.location_of(dim))
            with mlir.before(generic):
                size = memref.dim(dim.operands[0], mlir.constant(axis, "index"))
            dim.results[0].replace_all_uses_with(size)
            dim.erase()
