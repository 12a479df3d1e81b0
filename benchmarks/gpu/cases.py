"""What is measured: programs, their arguments, PyTorch's way, and the bytes or operations that bound them."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.gpu.rivals import Function, rivals
from tests.gpu.harness.programs import narrow_attention


@dataclass(frozen=True)
class Case:
    """``program`` and ``eager`` compute the same of the tensors of ``shapes``.

    ``moved`` are the bytes that must move at least, ``flops`` the operations of a contraction, else 0.
    """

    name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    program: str
    moved: int
    flops: int = 0

    @property
    def eager(self) -> Function:
        """PyTorch's way."""
        return rivals(self.name).eager

    @property
    def special(self) -> Function | None:
        """What PyTorch has for this very thing, where it has that: flash attention."""
        return rivals(self.name).special


#: Elements of a streaming case: past every L2 cache, so that memory is measured.
_ELEMENTS = 1 << 26
_BYTES = {"f32": 4, "bf16": 2, "f16": 2}


def cases() -> list[Case]:
    """All of them."""
    suite = [_pointwise("f32"), _pointwise("bf16")]
    for row in (256, 1024, 4096, 16384):
        suite += [_softmax(row), _rms_norm(row), _layer_norm(row)]
    suite += [_sum("sum", (_ELEMENTS,)), _sum("column_sums", (_ELEMENTS // 1024, 1024))]
    suite += [_transpose("f32"), _transpose("bf16")]
    suite += [_matmul(size) for size in (1024, 2048, 4096, 8192)]
    suite += [_attention(length, causal, "bf16") for length in (1024, 4096) for causal in (False, True)]
    suite += [_attention(1024, causal, "f32") for causal in (False, True)]
    return suite


def _kind(dtype: str, *sizes: int) -> str:
    return f"tensor<{''.join(f'{size}x' for size in sizes)}{dtype}>"


def _main(arguments: list[str], result: str, body: str) -> str:
    listed = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(arguments))
    return f"func.func @main({listed}) -> {result} {{\n{body}\nreturn %r : {result} }}"


def _pointwise(dtype: str) -> Case:
    kind = _kind(dtype, _ELEMENTS)
    body = f"%s = stablehlo.add %a0, %a1 : {kind}\n%z = stablehlo.constant dense<0.0> : {kind}\n"
    text = _main([kind, kind], kind, f"{body}%r = stablehlo.maximum %s, %z : {kind}")
    shapes = ((_ELEMENTS,), (_ELEMENTS,))
    return Case(
        f"add_relu/{dtype}",
        dtype,
        shapes,
        text,
        3 * _ELEMENTS * _BYTES[dtype],
    )


def _reduced(name: str, of: str, init: str, combine: str, whole: str, rows: str) -> str:
    return f"""%{name}0 = stablehlo.constant dense<{init}> : tensor<f32>
      %{name} = stablehlo.reduce(%{of} init: %{name}0) applies stablehlo.{combine} across dimensions = [1]
        : ({whole}, tensor<f32>) -> {rows}
      %{name}s = stablehlo.broadcast_in_dim %{name}, dims = [0] : ({rows}) -> {whole}"""


def _softmax(row: int) -> Case:
    count = _ELEMENTS // row
    whole, rows = _kind("f32", count, row), _kind("f32", count)
    body = f"""{_reduced("top", "a0", "0xFF800000", "maximum", whole, rows)}
      %d = stablehlo.subtract %a0, %tops : {whole}
      %e = stablehlo.exponential %d : {whole}
      {_reduced("sum", "e", "0.0", "add", whole, rows)}
      %r = stablehlo.divide %e, %sums : {whole}"""
    text = _main([whole], whole, body)
    return Case(f"softmax/{row}", "f32", ((count, row),), text, 8 * _ELEMENTS)


def _rms_norm(row: int) -> Case:
    count = _ELEMENTS // row
    whole, rows = _kind("f32", count, row), _kind("f32", count)
    body = f"""%q = stablehlo.multiply %a0, %a0 : {whole}
      {_reduced("sum", "q", "0.0", "add", whole, rows)}
      %n = stablehlo.constant dense<{float(row)}> : {whole}
      %m = stablehlo.divide %sums, %n : {whole}
      %c = stablehlo.constant dense<1.0e-05> : {whole}
      %v = stablehlo.add %m, %c : {whole}
      %i = stablehlo.rsqrt %v : {whole}
      %r = stablehlo.multiply %a0, %i : {whole}"""

    return Case(f"rms_norm/{row}", "f32", ((count, row),), _main([whole], whole, body), 8 * _ELEMENTS)


def _layer_norm(row: int) -> Case:
    count = _ELEMENTS // row
    whole, rows, vector = _kind("f32", count, row), _kind("f32", count), _kind("f32", row)
    body = f"""%n = stablehlo.constant dense<{float(row)}> : {whole}
      %c = stablehlo.constant dense<1.0e-05> : {whole}
      {_reduced("sum", "a0", "0.0", "add", whole, rows)}
      %m = stablehlo.divide %sums, %n : {whole}
      %d = stablehlo.subtract %a0, %m : {whole}
      %q = stablehlo.multiply %d, %d : {whole}
      {_reduced("var", "q", "0.0", "add", whole, rows)}
      %w = stablehlo.divide %vars, %n : {whole}
      %v = stablehlo.add %w, %c : {whole}
      %i = stablehlo.rsqrt %v : {whole}
      %s = stablehlo.multiply %d, %i : {whole}
      %g = stablehlo.broadcast_in_dim %a1, dims = [1] : ({vector}) -> {whole}
      %b = stablehlo.broadcast_in_dim %a2, dims = [1] : ({vector}) -> {whole}
      %t = stablehlo.multiply %s, %g : {whole}
      %r = stablehlo.add %t, %b : {whole}"""
    return Case(
        f"layer_norm/{row}",
        "f32",
        ((count, row), (row,), (row,)),
        _main([whole, vector, vector], whole, body),
        8 * _ELEMENTS,
    )


def _sum(name: str, shape: tuple[int, ...]) -> Case:
    """Along the first axis."""
    whole, out = _kind("f32", *shape), _kind("f32", *shape[1:])
    body = f"""%z = stablehlo.constant dense<0.0> : tensor<f32>
      %r = stablehlo.reduce(%a0 init: %z) applies stablehlo.add across dimensions = [0]
        : ({whole}, tensor<f32>) -> {out}"""
    return Case(f"{name}/f32", "f32", (shape,), _main([whole], out, body), 4 * _ELEMENTS)


def _transpose(dtype: str) -> Case:
    whole = _kind(dtype, 8192, 8192)
    text = _main([whole], whole, f"%r = stablehlo.transpose %a0, dims = [1, 0] : ({whole}) -> {whole}")
    return Case(
        f"transpose/{dtype}",
        dtype,
        ((8192, 8192),),
        text,
        2 * 8192 * 8192 * _BYTES[dtype],
    )


def _matmul(size: int) -> Case:
    kind = _kind("bf16", size, size)
    body = f"%r = stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [0] : ({kind}, {kind}) -> {kind}"
    return Case(
        f"matmul/{size}",
        "bf16",
        ((size, size), (size, size)),
        _main([kind, kind], kind, body),
        3 * 2 * size * size,
        2 * size**3,
    )


#: Heads, and the width of a head.
_HEADS, _WIDTH = 32, 64


def _attention(length: int, causal: bool, dtype: str) -> Case:
    """softmax(q k^T / 8) v as frameworks export it; the rival is theirs, unfused."""
    text = narrow_attention(1, _HEADS, length, length, _WIDTH, dtype, causal)
    return Case(
        f"attention/{length}{'/f32' if dtype == 'f32' else ''}{'/causal' if causal else ''}",
        dtype,
        ((1, _HEADS, length, _WIDTH),) * 3,
        text,
        4 * _BYTES[dtype] * _HEADS * length * _WIDTH,
        (2 if causal else 4) * _HEADS * length * length * _WIDTH,
    )
