"""Removes tuples, and makes dynamic operations static where the program states their sizes."""

from __future__ import annotations

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.mlir import operations as mlir

_DYNAMIC = (
    "stablehlo.dynamic_broadcast_in_dim",
    "stablehlo.dynamic_conv",
    "stablehlo.dynamic_gather",
    "stablehlo.dynamic_iota",
    "stablehlo.dynamic_pad",
    "stablehlo.dynamic_reshape",
    "stablehlo.real_dynamic_slice",
)


def fold_tuples_and_static_shapes(module: mlir.Module) -> None:
    """Replace elements of tuples by the values they are made of; make operations with static sizes static."""
    for op in mlir.named(module, "stablehlo.get_tuple_element"):
        whole = mlir.defining(op.operands[0])
        if whole is None or mlir.name_of(whole) != "stablehlo.tuple":
            raise UnsupportedOp(mlir.name_of(op), "a tuple from elsewhere", mlir.location_of(op))
        op.results[0].replace_all_uses_with(whole.operands[mlir.int_of(op.attributes["index"])])
        op.erase()
    for op in reversed(mlir.named(module, "stablehlo.tuple")):
        if not any(True for _ in mlir.uses(op.results[0])):
            op.erase()
    _make_static(module)


def _make_static(module: mlir.Module) -> None:
    """Run the upstream pass if some dynamic operation has a static result; gathers are rewritten here."""
    for op in mlir.named(module, "stablehlo.dynamic_gather"):
        _make_gather_static(op)
    for op in mlir.named(module, *_DYNAMIC):
        if None not in mlir.sizes_of(op.results[0].type):
            _state_empty_shapes(module)
            try:
                mlir.run_passes(module, "builtin.module(func.func(stablehlo-canonicalize-dynamism))")
            except mlir.MLIRError:
                raise UnsupportedOp(
                    mlir.name_of(op), "sizes that contradict the type of its result", mlir.location_of(op)
                ) from None
            break


def _state_empty_shapes(module: mlir.Module) -> None:
    """Replace the shape operand of a scalar, which has no elements, by a constant."""
    for op in mlir.named(module, *_DYNAMIC):
        for number, operand in enumerate(list(op.operands)[1:], 1):
            if (
                mlir.rank_of(operand.type) == 1
                and mlir.sizes_of(operand.type) == [0]
                and not _is_gather_index(op, number)
            ):
                with mlir.before(op):
                    none = mlir.attribute(f"dense<> : {operand.type}")
                    op.operands[number] = mlir.value("stablehlo.constant", (), operand.type, value=none)


def _is_gather_index(op: mlir.Op, number: int) -> bool:
    return mlir.name_of(op) == "stablehlo.dynamic_gather" and number == 1


def _make_gather_static(op: mlir.Op) -> None:
    """Make a gather with constant slice sizes static; the upstream pass drops batching dimensions."""
    sizes = mlir.defining(op.operands[2])
    if (
        sizes is None
        or mlir.name_of(sizes) != "stablehlo.constant"
        or None in mlir.sizes_of(op.results[0].type)
    ):
        return
    stated = ", ".join(map(str, mlir.integers_of(sizes)))
    attributes = {"dimension_numbers": op.attributes["dimension_numbers"]}
    attributes["slice_sizes"] = mlir.attribute(f"array<i64: {stated}>" if stated else "array<i64>")
    with mlir.before(op):
        kinds = [op.results[0].type]
        result = mlir.create("stablehlo.gather", list(op.operands)[:2], kinds, attributes)
    op.results[0].replace_all_uses_with(result.results[0])
    op.erase()
