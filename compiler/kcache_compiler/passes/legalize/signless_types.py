"""Erases signedness from types: after the legalization operations state it, and types no longer do."""

from __future__ import annotations

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.bufferization.signature import signless
from kcache_compiler.passes.legalize.elementwise import signless_tensor

_CAST = "builtin.unrealized_conversion_cast"


def erase_signedness(module: mlir.Module) -> None:
    """Make every unsigned type of ``main`` signless, and drop the casts that told the two apart.

    The toolchain's legalization converts the operations that it knows; values that control flow
    carries and the function's own arguments keep their types, with casts around them.
    """
    main = mlir.main_function(module)
    known: dict[mlir.Type, mlir.Type] = {}
    for operation in mlir.walk(main):
        for result in operation.results:
            _erase(result, known)
        for block in mlir.blocks_of(operation):
            for argument in block.arguments:
                _erase(argument, known)
    for cast in mlir.named(main, _CAST):
        source, result = cast.operands[0], cast.results[0]
        if source.type == result.type:
            result.replace_all_uses_with(source)
            cast.erase()
    body = mlir.block_of(main)
    results = [operand.type for operand in mlir.last(body).operands]
    kind = mlir.function_type([argument.type for argument in body.arguments], results)
    main.attributes["function_type"] = mlir.type_attr(kind)


def _erase(value: mlir.Value, known: dict[mlir.Type, mlir.Type]) -> None:
    kind = value.type
    plain = known.get(kind)
    if plain is None:
        plain = known[kind] = signless_tensor(kind) if mlir.is_tensor(kind) else signless(kind)
    if plain is not kind and plain != kind:
        value.set_type(plain)
