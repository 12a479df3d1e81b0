"""Operations whose dtypes or shapes torch-mlir takes for others give what eager mode gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch
from torch.nn import functional

from kcache_compiler import UnsupportedOp, canonicalize
from kcache_grpc.errors import UnsupportedOp as NotImported
from kcache_grpc.programs.torch.export import torch_program
from tests.compiler.torch_modules import Function
from tests.conformance.torch_ops.harness.judge import array_of, judge, results_of
from tests.conformance.torch_ops.harness.samples import Sample, sample

BYTES = torch.tensor([[3, 255, 0, 128], [200, 127, 129, 1]], dtype=torch.uint8)
COLUMN = torch.tensor([[0.5], [float("nan")], [2.0]])
ROW = torch.tensor([[1.5, float("nan"), 0.0, 3.0]])
MASK = torch.tensor([[True], [False], [True]])


COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
TRUTHS = "!torch.vtensor<[4],i1>"


def outcome(function: Callable[..., Any], *tensors: Any) -> str:
    verdict, _ = judge(Sample.of(function, tensors, {}))
    return f"{verdict.outcome} {verdict.reason}".strip()


def test_bytes() -> None:
    def all_of_them(x: Any) -> tuple[Any, ...]:
        return (
            *(x.any(1), x.any(), x.all(1), x.all(), torch.any(x, 0, True), torch.abs(x), torch.isinf(x)),
            *(torch.isfinite(x), torch.reciprocal(x | 1), 7 / (x | 1), torch.copysign(x, x), x ** (x % 5)),
            *(x < torch.arange(-2, 2, dtype=torch.int8), x != x.long() - 256, torch.clamp(x, x // 2, x - 1)),
        )

    assert outcome(all_of_them, BYTES) == "right"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_shifts(dtype: Any) -> None:
    x = torch.tensor([[-128], [127], [5], [0]]).to(dtype)
    by = torch.tensor([0, 1, 7, 8, 31, 32, 63, 64, 100]).to(dtype)

    def all_of_them(a: Any, b: Any) -> tuple[Any, ...]:
        return a >> b, a << b, b >> a.abs(), a >> 3, a << 3, torch.bitwise_right_shift(100, b), a >> (0 - b)

    assert outcome(all_of_them, x, by) == "right"


@pytest.mark.sampled(9)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_operands_that_are_broadcast(dtype: Any) -> None:
    a, b = (x.nan_to_num().to(dtype) if dtype == torch.int64 else x.to(dtype) for x in (ROW, COLUMN))

    def all_of_them(x: Any, y: Any) -> tuple[Any, ...]:
        return (
            *(torch.fmax(x, y), torch.fmin(x, y), torch.clamp_min(x, y), torch.clamp_max(x, y)),
            *(torch.clamp(x, y, y + 1), torch.clamp(y, x, x + 1), torch.clamp(x, y + 1, y)),
            x.masked_scatter(MASK, torch.arange(12).to(dtype)),
        )

    assert outcome(all_of_them, a, b) == "right"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_tensors_of_one_number(dtype: Any) -> None:
    def all_of_them(x: Any) -> tuple[Any, ...]:
        results = torch.prod(x), torch.prod(x, 0), *torch.max(x, 0), *torch.min(x, 0), torch.isinf(x)
        return results if dtype == torch.bool else (*results, *torch.kthvalue(x, 1))

    assert outcome(all_of_them, torch.tensor(3).to(dtype)) == "right"


def test_elements_of_an_empty_tensor() -> None:
    index = torch.tensor([[1, 0], [2, 1]])

    def all_of_them(x: Any, at: Any) -> tuple[Any, ...]:
        padded = functional.pad(x, (1, 1, 1, 1), mode="reflect")
        return x[:, at], x[:, at, at], x[:, :, at], padded, functional.unfold(x, 2)

    assert outcome(all_of_them, torch.zeros(0, 3, 4, 3), index) == "right"


def test_only_the_first_result_of_an_embedding_bag_is_given() -> None:
    bag = torch.ops.aten._embedding_bag.default
    tensors = torch.randn(5, 3), torch.tensor([0, 1, 4]), torch.tensor([0, 2])
    assert outcome(lambda *x: bag(*x)[0], *tensors) == "right"
    exported = torch.export.export(Function(lambda *x: bag(*x)[:2]), tensors)
    with pytest.raises(NotImported, match=r"torch\.aten\._embedding_bag.*first result"):
        torch_program(exported)


def test_bytes_between_pixels_are_rejected() -> None:
    verdict = outcome(lambda x: functional.interpolate(x[None, None], scale_factor=2, mode="bilinear"), BYTES)
    assert verdict.startswith("rejected UnsupportedOp: unsupported op torch.aten.upsample_bilinear2d")


@pytest.mark.parametrize(
    ("left", "right"),
    [("uint8", "int8"), ("int64", "float32"), ("float16", "bfloat16"), ("int64", "bool"), ("uint8", "int32")],
)
def test_comparisons_in_the_dialect_promote(left: str, right: str) -> None:
    names = {"uint8": "ui8", "int8": "si8", "int32": "si32", "int64": "si64", "bool": "i1"}
    names |= {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
    x = torch.tensor([200, 2, 2, 0]).to(getattr(torch, left))
    y = torch.tensor([-56, 2.5, 2, 1]).to(getattr(torch, right))
    a, b = (f"!torch.vtensor<[4],{names[dtype]}>" for dtype in (left, right))
    lines = [f"%{name} = torch.aten.{name}.Tensor %a, %b : {a}, {b} -> {TRUTHS}" for name in COMPARED]
    results, types = ", ".join(f"%{name}" for name in COMPARED), ", ".join([TRUTHS] * len(COMPARED))
    text = f"func.func @main(%a: {a}, %b: {b}) -> ({types}) {{\n" + "\n".join(lines)
    got = results_of(f"{text}\nreturn {results} : {types} }}".encode(), (array_of(x), array_of(y)))
    for name, result in zip(COMPARED, got, strict=True):
        assert result.tolist() == getattr(torch, name)(x, y).tolist(), name


def test_truth_of_bytes_in_the_dialect_is_rejected() -> None:
    text = """func.func @main(%a: !torch.vtensor<[4],ui8>) -> !torch.vtensor<[],ui8> {
      %0 = torch.aten.any %a : !torch.vtensor<[4],ui8> -> !torch.vtensor<[],ui8>
      return %0 : !torch.vtensor<[],ui8> }"""
    with pytest.raises(UnsupportedOp, match="combines the bits"):
        canonicalize(text.encode(), "torch")


def test_what_torch_mlir_cannot_write_in_stablehlo_is_named_by_its_operation() -> None:
    text = """func.func @main(%a: !torch.vtensor<[4],ui8>) -> !torch.vtensor<[4],ui8> {
      %0 = torch.aten.abs %a : !torch.vtensor<[4],ui8> -> !torch.vtensor<[4],ui8>
      return %0 : !torch.vtensor<[4],ui8> }"""
    with pytest.raises(UnsupportedOp, match=r"with these operands: 'stablehlo\.abs' op operand") as caught:
        canonicalize(text.encode(), "torch")
    assert caught.value.op == "torch.aten.abs"
    assert caught.value.location == "-:2:12"


@pytest.mark.sampled(9)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(("bitwise_right_shift", "i64"), ("clamp_max", "f32"), ("fmin", "i1"), ("masked_scatter", "bf16")),
        *(
            ("prod", "i64"),
            ("isinf", "i1"),
            ("nn.functional.unfold", "f32"),
            ("nn.functional.grid_sample", "bf16"),
        ),
    ],
)
def test_samples_of_pytorch(name: str, dtype: str) -> None:
    verdict, _ = judge(sample(name, dtype, 1, 0))
    assert verdict.outcome == "right", verdict.reason
