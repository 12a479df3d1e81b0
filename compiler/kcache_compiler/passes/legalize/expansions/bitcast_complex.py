"""``bitcast_convert`` of complex numbers to others of twice or half the width: their parts are recast."""

from __future__ import annotations

from kcache_compiler.passes.legalize.expansions.function_text import Lines, Tensor, tensor


def recast(lines: Lines, value: Tensor, result: Tensor) -> Tensor:
    """The bits of ``value`` as ``result``: an axis of two is last in the one of narrower numbers."""
    parts = [lines.part(value, which) for which in ("real", "imag")]
    beside = lines.concatenate(
        [lines.reshape(part, (*part.shape, 1)) for part in parts],
        len(value.shape),
    )
    split = len(result.shape) > len(value.shape)
    shape = (*beside.shape, 2) if split else beside.shape[:-1]
    element = "f32" if split else "f64"
    text = f"stablehlo.bitcast_convert {beside.name} : ({beside.type}) -> {tensor(element, shape)}"
    bits = lines.line(text, element, shape)
    axis = len(shape) - 1
    output = [lines.reshape(lines.cut(bits, axis, at, at + 1), result.shape) for at in (0, 1)]
    return lines.pair(*output)
