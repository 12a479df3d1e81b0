"""``select_and_scatter`` as a window reduction that selects indices, and a scatter of the source to them.

The select region is extended by the index of each element, which is -1 for padding; padding is never
selected.
"""

from __future__ import annotations

import math

from kcache_compiler.mlir import operations as mlir

_NUMBERS = (
    "#stablehlo.scatter<update_window_dims = [], inserted_window_dims = [0], "
    "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
)


def expand_select_and_scatter(module: mlir.Module) -> None:
    """Rewrite every ``select_and_scatter`` whose module states its sizes."""
    for op in mlir.named(module, "stablehlo.select_and_scatter"):
        kinds = [value.type for value in op.operands]
        shapes = [mlir.sizes_of(kind) for kind in kinds]
        if any(None in shape for shape in shapes):
            continue  # the toolchain lowers some, and the rest are unsupported
        with mlir.before(op):
            if 0 in shapes[0] or 0 in shapes[1]:
                result = _repeated(op.operands[2], kinds[0])
            else:
                result = _scattered(op, _places(op))
        op.results[0].replace_all_uses_with(result)
        op.erase()


def _repeated(scalar: mlir.Value, kind: mlir.Type) -> mlir.Value:
    none = mlir.attribute("array<i64>")
    return mlir.value("stablehlo.broadcast_in_dim", [scalar], kind, broadcast_dimensions=none)


def _tensor(shape: list[int], element: mlir.Type | str) -> mlir.Type:
    return mlir.type_of(f"tensor<{''.join(f'{size}x' for size in shape)}{element}>")


def _places(op: mlir.Op) -> mlir.Value:
    """The place in the operand that each window picks, counted in row-major order; -1: none."""
    operand, _, init = op.operands
    shape = [size or 0 for size in mlir.sizes_of(operand.type)]
    flat = _tensor([math.prod(shape)], "i64")
    count = mlir.value("stablehlo.iota", (), flat, iota_dimension=mlir.int_attr(0))
    where = mlir.value("stablehlo.reshape", [count], _tensor(shape, "i64"))
    scalar = mlir.type_of("tensor<i64>")
    none = mlir.value("stablehlo.constant", (), scalar, value=mlir.attribute("dense<-1> : tensor<i64>"))
    result = mlir.sizes_of(op.operands[1].type)
    types = [
        _tensor([size or 0 for size in result], kind) for kind in (mlir.element_type(operand.type), "i64")
    ]
    rank = len(shape)
    attributes = {"window_dimensions": mlir.attribute(f"array<i64: {', '.join('1' * rank)}>")} if rank else {}
    attributes |= {
        name: op.attributes[name]
        for name in ("window_dimensions", "window_strides", "padding")
        if name in op.attributes
    }
    windows = mlir.create(
        "stablehlo.reduce_window", [operand, where, init, none], types, attributes, regions=1
    )
    block = mlir.new_block(windows, 0, [init.type, scalar, init.type, scalar])
    with mlir.at_end(block):
        old, at, new, here = block.arguments
        zero = mlir.value("stablehlo.constant", (), scalar, value=mlir.attribute("dense<0> : tensor<i64>"))
        (keeps,) = _copied(op, 0, [old, new])
        truth = keeps.type
        ge = mlir.attribute("#stablehlo<comparison_direction GE>")
        known, comes = (
            mlir.value("stablehlo.compare", [position, zero], truth, comparison_direction=ge)
            for position in (at, here)
        )
        keeps = mlir.value("stablehlo.and", [keeps, known], truth)
        padding = mlir.value("stablehlo.not", [comes], truth)
        keeps = mlir.value("stablehlo.or", [keeps, padding], truth)
        chosen = mlir.value("stablehlo.select", [keeps, old, new], init.type)
        position = mlir.value("stablehlo.select", [keeps, at, here], scalar)
        mlir.create("stablehlo.return", [chosen, position])
    return windows.results[1]


def _scattered(op: mlir.Op, positions: mlir.Value) -> mlir.Value:
    """The initial value with the source combined into the picked places, in the order of the source."""
    operand, source, init = op.operands
    element = mlir.element_type(operand.type)
    size = math.prod(size or 0 for size in mlir.sizes_of(operand.type))
    count = math.prod(size or 0 for size in mlir.sizes_of(source.type))
    flat = _tensor([size], element)
    target = _repeated(init, flat)
    indices = mlir.value("stablehlo.reshape", [positions], _tensor([count, 1], "i64"))
    updates = mlir.value("stablehlo.reshape", [source], _tensor([count], element))
    scatter = mlir.create(
        "stablehlo.scatter",
        [target, indices, updates],
        [flat],
        {"scatter_dimension_numbers": mlir.attribute(_NUMBERS)},
        regions=1,
    )
    block = mlir.new_block(scatter, 0, [init.type, init.type])
    with mlir.at_end(block):
        old, new = block.arguments
        mlir.create("stablehlo.return", _copied(op, 1, [new, old]))
    return mlir.value("stablehlo.reshape", [scatter.results[0]], operand.type)


def _copied(op: mlir.Op, region: int, arguments: list[mlir.Value]) -> list[mlir.Value]:
    """What a region of ``op`` returns of ``arguments``, computed at the current point."""
    block = mlir.block_of(op, region)
    mapping: dict[mlir.Value, mlir.Value] = dict(zip(block.arguments, arguments, strict=True))
    for operation in mlir.operations(block):
        if mlir.name_of(operation) == "stablehlo.return":
            return [mapping.get(operand, operand) for operand in operation.operands]
        copy = mlir.clone(operation)
        for inner in mlir.walk(copy):
            for number, operand in enumerate(inner.operands):
                if operand in mapping:
                    inner.operands[number] = mapping[operand]
        mapping.update(zip(operation.results, copy.results, strict=True))
    raise AssertionError("a region without a return")
