"""Batch norms, as the specification writes them."""

from __future__ import annotations

import math

from kcache_compiler.passes.legalize.expansions.function_text import Lines, Tensor


def inference(lines: Lines, operands: list[Tensor], feature: int, epsilon: float) -> list[Tensor]:
    """``batch_norm_inference`` of operand, scale, offset, mean and variance."""
    x, *rows = operands
    scale, offset, mean, variance = (lines.broadcast(row, x.shape, [feature]) for row in rows)
    normalized = lines.each("divide", lines.each("subtract", x, mean), _deviation(lines, variance, epsilon))
    return [lines.each("add", lines.each("multiply", scale, normalized), offset)]


def training(lines: Lines, operands: list[Tensor], feature: int, epsilon: float) -> list[Tensor]:
    """``batch_norm_training`` of operand, scale and offset: with the mean and the variance of the batch."""
    x, scale, offset = operands
    mean = _mean(lines, x, feature)
    centered = lines.each("subtract", x, lines.broadcast(mean, x.shape, [feature]))
    variance = _mean(lines, lines.each("multiply", centered, centered), feature)
    return [*inference(lines, [x, scale, offset, mean, variance], feature, epsilon), mean, variance]


def gradient(lines: Lines, operands: list[Tensor], feature: int, epsilon: float) -> list[Tensor]:
    """``batch_norm_grad`` of operand, scale, mean, variance and the gradient of the output."""
    x, scale, mean, variance, grad = operands
    others = [axis for axis in range(len(x.shape)) if axis != feature]
    spread = [lines.broadcast(row, x.shape, [feature]) for row in (scale, mean, variance)]
    centered = lines.each("subtract", x, spread[1])
    deviation = _deviation(lines, spread[2], epsilon)
    shifted = lines.each("add", spread[2], lines.number(_literal(epsilon), x.element, x.shape))
    count = lines.amount(math.prod(x.shape[axis] for axis in others), x.element, x.shape)
    offset_grad = lines.total(grad, others)
    product = lines.total(lines.each("multiply", grad, centered), others)
    along = lines.each("multiply", lines.broadcast(product, x.shape, [feature]), centered)
    inner = lines.each(
        "subtract", lines.each("multiply", grad, count), lines.broadcast(offset_grad, x.shape, [feature])
    )
    inner = lines.each("subtract", inner, lines.each("divide", along, shifted))
    outer = lines.each("divide", lines.each("divide", spread[0], deviation), count)
    scale_grad = lines.total(lines.each("multiply", grad, lines.each("divide", centered, deviation)), others)
    return [lines.each("multiply", outer, inner), scale_grad, offset_grad]


def _deviation(lines: Lines, variance: Tensor, epsilon: float) -> Tensor:
    added = lines.number(_literal(epsilon), variance.element, variance.shape)
    return lines.each("sqrt", lines.each("add", variance, added))


def _mean(lines: Lines, x: Tensor, feature: int) -> Tensor:
    others = [axis for axis in range(len(x.shape)) if axis != feature]
    count = math.prod(x.shape[axis] for axis in others)
    row = lines.total(x, others)
    return lines.each("divide", row, lines.amount(count, row.element, row.shape))


def _literal(number: float) -> str:
    return f"{float(number):.17e}"
