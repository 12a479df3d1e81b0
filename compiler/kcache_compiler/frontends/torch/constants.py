"""Arithmetic of constants, kept from torch-mlir, which computes it wrongly.

Its folders of splats read an ``int`` beside floats as bits or as unsigned (``ones == 1`` is false there,
``ones + -1`` is 2^64), and take remainders of C. Behind a barrier a constant is a value like any other; what
it comes to is computed after the lowering.
"""

from __future__ import annotations

import re

from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

_TENSOR = re.compile(r"!torch\.vtensor<\[([\d,]*)\],([^>]+)>")
_FOLDED = re.compile(
    r"torch\.aten\.(eq|ne|lt|le|gt|ge|add|sub|mul|div|rsub|remainder|fmod|floor_divide|where)(\.|$)"
)
_BARRIER = "stablehlo.optimization_barrier"


def hide_constants(module: Native) -> None:
    """Put barriers before the operands of arithmetic that depend on no argument, in place."""
    with module.context:
        varying: dict[Native, bool] = {}
        for operation in mlir.all_operations(module.operation):
            varies = [_varies(operand, varying) for operand in operation.operands]
            for result in operation.results:
                varying[result] = any(varies)
            if _FOLDED.match(operation.name):
                for index, operand in enumerate(operation.operands):
                    if not varies[index]:
                        _hide(operation, index, operand)


def show_constants(module: Native) -> None:
    """Take the barriers away again."""
    for operation in mlir.all_operations(module.operation):
        if operation.name == _BARRIER:
            operation.results[0].replace_all_uses_with(operation.operands[0])
            operation.erase()


def _varies(value: Native, varying: dict[Native, bool]) -> bool:
    return varying.get(value, True)


def _hide(operation: Native, index: int, operand: Native) -> None:
    match = _TENSOR.fullmatch(str(operand.type))
    if match is None:
        return
    native = mlir.native_ir()
    dims = "".join(f"{size}x" for size in match[1].split(",") if size)
    type = f"tensor<{dims}{match[2].replace('si', 'i')}>"
    with native.InsertionPoint(operation), operation.location:
        plain = _op("torch_c.to_builtin_tensor", operand, type)
        hidden = _op(_BARRIER, plain, type)
        operation.operands[index] = _op("torch_c.from_builtin_tensor", hidden, str(operand.type))


def _op(name: str, operand: Native, type: str) -> Native:
    native = mlir.native_ir()
    return native.Operation.create(name, results=[native.Type.parse(type)], operands=[operand]).result
