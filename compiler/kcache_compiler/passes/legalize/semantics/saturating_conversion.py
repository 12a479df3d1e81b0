"""Conversions from float to integer inside of functions on scalars, such as a reduction's."""

from __future__ import annotations

from kcache_compiler.mlir import operations as mlir


def saturate_scalar(op: mlir.Op, expected: str) -> None:
    """Replace a conversion from float to ``wanted``: it truncates, stops at the bounds, makes 0 of NaN."""
    width, signed = int(expected.lstrip("ui")), not expected.startswith("ui")
    low, high = (-(2 ** (width - 1)), 2 ** (width - 1)) if signed else (0, 2**width)
    wide, kind = mlir.type_of("tensor<f32>"), op.results[0].type
    boolean = mlir.type_of("tensor<i1>")

    def number(value: int, type: mlir.Type) -> mlir.Value:
        text = f"{value}.0" if "f" in str(type) else str(value)
        return mlir.value("stablehlo.constant", (), type, value=mlir.attribute(f"dense<{text}> : {type}"))

    def compared(direction: str, bound: mlir.Value) -> mlir.Value:
        attribute = mlir.attribute(f"#stablehlo<comparison_direction {direction}>")
        return mlir.value("stablehlo.compare", [scalar, bound], boolean, comparison_direction=attribute)

    def chosen(when: mlir.Value, value: mlir.Value, other: mlir.Value) -> mlir.Value:
        return mlir.value("stablehlo.select", [when, value, other], other.type)

    with mlir.before(op):
        scalar = op.operands[0]
        if str(mlir.element_type(scalar.type)) in ("f16", "bf16"):
            scalar = mlir.value("stablehlo.convert", [scalar], wide)
        below, above = compared("LT", number(low, scalar.type)), compared("GE", number(high, scalar.type))
        outside = mlir.value("stablehlo.or", [below, above], boolean)
        outside = mlir.value("stablehlo.or", [outside, compared("NE", scalar)], boolean)
        inside = chosen(outside, number(0, scalar.type), scalar)
        whole = mlir.value("stablehlo.convert", [inside], kind)
        whole = chosen(below, number(low, kind), whole)
        whole = chosen(above, number(high - 1, kind), whole)
    op.results[0].replace_all_uses_with(whole)
    op.erase()
