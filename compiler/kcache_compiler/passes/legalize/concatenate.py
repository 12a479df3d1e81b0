"""Splits concatenations of many operands into concatenations of few.

The body of a concatenation selects among all of its operands for each element: compile time is quadratic in
their number.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.llvm.target import Device, Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Sizes

#: Tensors that are concatenated at once.
FEW = 32
#: Those above which they are concatenated group by group.
MANY = 64
_NAME = "stablehlo.concatenate"


def split_concatenations(module: mlir.Module, target: Target, argument_sizes: Sizes) -> None:
    """Split concatenations of more than ``MANY``. Only of static sizes, and only for CPUs."""
    if isinstance(target, Device) or argument_sizes:
        return
    for op in mlir.named(module, _NAME):
        values = list(op.operands)
        if len(values) <= MANY or any(None in mlir.sizes_of(value.type) for value in values):
            continue
        with mlir.before(op), mlir.at_location(op):
            while len(values) > FEW:
                groups = [values[start : start + FEW] for start in range(0, len(values), FEW)]
                values = [_joined(group, op) for group in groups]
            result = mlir.value(_NAME, values, op.results[0].type, dimension=op.attributes["dimension"])
        op.results[0].replace_all_uses_with(result)
        op.erase()


def _joined(values: Sequence[mlir.Value], op: mlir.Op) -> mlir.Value:
    if len(values) == 1:
        return values[0]
    axis = mlir.int_of(op.attributes["dimension"])
    sizes = mlir.sizes_of(values[0].type)
    sizes[axis] = sum(mlir.sizes_of(value.type)[axis] or 0 for value in values)
    kind = mlir.type_of(f"tensor<{''.join(f'{size}x' for size in sizes)}{mlir.element_type(values[0].type)}>")
    return mlir.value(_NAME, values, kind, dimension=op.attributes["dimension"])
