"""NaN, infinities, zeros and places among them are what eager mode gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch
from torch.nn import functional

from kcache_compiler import UnsupportedOp, canonicalize
from tests.compiler.torch_modules import Function as Module
from tests.conformance.torch_ops.harness import edges, mixed
from tests.conformance.torch_ops.harness.calls import Call, judge_calls
from tests.conformance.torch_ops.harness.judge import array_of, judge, results, results_of
from tests.conformance.torch_ops.harness.samples import Sample

NAN, INF = float("nan"), float("inf")
ROWS = torch.tensor(
    [
        *([1, NAN, 3, NAN], [NAN, NAN, 1, 2], [-INF] * 4, [INF, NAN, INF, 1]),
        *([2, 3, 3, NAN], [NAN] * 4, [0, -0.0, 5, 5], [INF, -INF, 0.5, -0.5]),
    ]
)
Function = Callable[[Any], Any]


def check(x: Any, **functions: Function) -> None:
    calls = [Call(name, function) for name, function in functions.items()]
    verdict = judge_calls(calls, (x,), edges=True)
    assert verdict.outcome == "right", verdict.reason
    assert verdict.reason == str(len(calls)), "eager mode rejects some of them"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_places_of_nan(dtype: Any) -> None:
    check(
        ROWS.to(dtype),
        argmax=lambda x: torch.argmax(x, 1),
        argmin=lambda x: torch.argmin(x, 0),
        whole=torch.argmax,
        max=lambda x: torch.max(x, 1)[0],
        min_place=lambda x: torch.min(x, 1)[1],
        pool=lambda x: functional.max_pool2d(x[None], 2, return_indices=True)[1],
        padded=lambda x: functional.max_pool2d(x[None], (3, 2), 2, 1, return_indices=True)[1],
        pool3=lambda x: functional.max_pool3d(x.reshape(1, 2, 4, 4), 2, return_indices=True)[1],
    )


def test_places_of_nan_in_the_dialect() -> None:
    x, i = "!torch.vtensor<[8,4],f32>", "!torch.vtensor<[8],si64>"
    text = f"""func.func @main(%a: {x}) -> {i} {{
      %d = torch.constant.int 1
      %k = torch.constant.bool false
      %0 = torch.aten.argmax %a, %d, %k : {x}, !torch.int, !torch.bool -> {i}
      return %0 : {i} }}"""
    (got,) = results_of(text.encode(), (array_of(ROWS),))
    assert got.tolist() == torch.argmax(ROWS, 1).tolist()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_gradient_of_randomized_leaky_relu_in_the_dialect(element: str, training: bool) -> None:
    """torch-mlir adds a multiple of the operand to the gradient where it is negative."""
    x = f"!torch.vtensor<[6],{element}>"
    text = f"""func.func @main(%gradient: {x}, %a: {x}, %noise: {x}) -> {x} {{
      %lower = torch.constant.float 1.000000e-01
      %upper = torch.constant.float 4.000000e-01
      %training = torch.constant.bool {str(training).lower()}
      %false = torch.constant.bool false
      %0 = torch.aten.rrelu_with_noise_backward %gradient, %a, %noise, %lower, %upper, %training, %false
        : {x}, {x}, {x}, !torch.float, !torch.float, !torch.bool, !torch.bool -> {x}
      return %0 : {x} }}"""
    dtype = torch.float32 if element == "f32" else torch.bfloat16
    tensors = [
        torch.tensor(values).to(dtype)
        for values in (
            (1, -2, 3, NAN, 5, 6),
            (-3, -0.0, 2, -1, NAN, INF),
            (0.125, 0.25, 1, 0.375, 1, 1),
        )
    ]
    (got,) = results_of(text.encode(), tuple(map(array_of, tensors)))
    expected = torch.ops.aten.rrelu_with_noise_backward(*tensors, 0.1, 0.4, training, False)
    np.testing.assert_array_equal(got.astype(np.float32), expected.float().numpy())


def test_nothing_equals_nan() -> None:
    check(ROWS, itself=lambda x: x == x, chosen=lambda x: torch.where(x == x, 1.0, x))


def test_signs_of_zero_and_small_numbers() -> None:
    x = torch.tensor([0.0, -0.0, -0.5, 1e-6, -1e-6, 1e-38, -1e-38, INF, -INF, NAN])
    check(
        x,
        trunc=torch.trunc,
        frac=torch.frac,
        digamma=lambda x: torch.digamma(x[:2]),
        elu=functional.elu,
        selu=functional.selu,
        celu=lambda x: functional.celu(x, 0.5),
        leaky=lambda x: functional.leaky_relu(x, 0.1),
        logaddexp2=lambda x: torch.logaddexp2(0 * x, x - 60),
    )


def test_numbers_of_another_kind() -> None:
    truths = torch.tensor([True, False])
    check(
        truths,
        below=lambda x: x < 3,
        above=lambda x: x > -1,
        equal=lambda x: x == 2,
        between=lambda x: x >= 0.5,
        infinite=lambda x: x < INF,
        kept=lambda x: torch.clamp(x, 0, 1),
        raised=lambda x: torch.clamp(x, min=0.5),
        added=lambda x: True + x,
        power=lambda x: x**True,
    )
    check(
        torch.tensor([-3, 0, 2**24 + 1, 2**62]),
        infinite=lambda x: x < INF,
        rounded=lambda x: x > 16777216.5,
        clamped=lambda x: torch.clamp(x, max=0.5),
        divided=lambda x: torch.div(x, True, rounding_mode="floor"),
    )


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_rounded_once(dtype: Any) -> None:
    x = torch.linspace(0.01, 2, 1024).to(dtype)
    functions: dict[str, Function] = {
        "scaled": lambda x: x * 0.1,
        "far": lambda x: x / 1e5 * 7e4,
        "shifted": lambda x: x + 1e-3,
        "turned": lambda x: 1e-3 - x,
        "least": lambda x: torch.remainder(x, 1e-05) * 0 + x / 1e-05 * 1e-06,
        "sum": lambda x: torch.ones_like(x).sum() + 0 * x,
        "rows": lambda x: x.reshape(4, 256).mean(1),
        "running": lambda x: x.reshape(4, 256).cumsum(1),
        "norm": lambda x: torch.linalg.vector_norm(x),
    }
    for name, function in functions.items():
        exported = torch.export.export(Module(function), (x,))
        (got,) = results(exported, (x,))
        want = array_of(function(x))
        apart = np.abs(got.view(np.int16).astype(int) - want.view(np.int16))
        assert apart.max() <= 1, name


def test_gelu_of_halves_is_rounded_once() -> None:
    x = torch.linspace(-4, 4, 65).bfloat16()
    check(
        x,
        erf=functional.gelu,
        tanh=lambda x: functional.gelu(x, approximate="tanh"),
        decimals=lambda x: torch.round(x, decimals=2),
    )


def test_running_sums_of_exponentials_stay_in_range() -> None:
    x = torch.tensor([[1e4, 2.0, -1e4, 3e4], [-INF, -INF, 5.0, NAN]])
    check(
        x,
        rows=lambda x: torch.logcumsumexp(x, 1),
        columns=lambda x: torch.logcumsumexp(x, 0),
        halves=lambda x: torch.logcumsumexp(x.bfloat16(), 1),
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_pools_and_running_sums_of_bytes(dtype: Any) -> None:
    x = (torch.arange(36).reshape(1, 6, 6) * 37 % 101).to(dtype) * 3
    check(
        x,
        pool=lambda x: functional.max_pool2d(x, 3, 2, 1),
        sum=lambda x: torch.cumsum(x, 1, dtype=dtype),
        number=lambda x: torch.cumsum(x[0, 1, 2], 0),
        masked=lambda x: torch.bitwise_and(6, x),
    )


def test_pools_of_bytes_in_the_dialect_are_rejected() -> None:
    x, y, i = (f"!torch.vtensor<[1,{n},{n}],{t}>" for n, t in ((4, "si8"), (2, "si8"), (2, "si64")))
    lists = "!torch.list<int>"
    text = f"""func.func @main(%a: {x}) -> {y} {{
      %2 = torch.constant.int 2
      %k = torch.prim.ListConstruct %2, %2 : (!torch.int, !torch.int) -> {lists}
      %0 = torch.constant.int 0
      %p = torch.prim.ListConstruct %0, %0 : (!torch.int, !torch.int) -> {lists}
      %1 = torch.constant.int 1
      %d = torch.prim.ListConstruct %1, %1 : (!torch.int, !torch.int) -> {lists}
      %f = torch.constant.bool false
      %r, %j = torch.aten.max_pool2d_with_indices %a, %k, %k, %p, %d, %f
        : {x}, {lists}, {lists}, {lists}, {lists}, !torch.bool -> {y}, {i}
      return %r : {y} }}"""
    with pytest.raises(UnsupportedOp, match=r"max_pool2d_with_indices .*for bytes"):
        canonicalize(text.encode(), "torch")


def test_a_slice_that_ends_at_zero_in_the_dialect_is_rejected() -> None:
    x, y = "!torch.vtensor<[?],f32>", "!torch.vtensor<[?],f32>"
    text = f"""func.func @main(%a: {x}) -> {y} {{
      %0 = torch.constant.int 0
      %1 = torch.constant.int 1
      %r = torch.aten.slice.Tensor %a, %0, %0, %0, %1
        : {x}, !torch.int, !torch.int, !torch.int, !torch.int -> {y}
      return %r : {y} }}"""
    with pytest.raises(UnsupportedOp, match="ends at 0"):
        canonicalize(text.encode(), "torch")


def test_slices_without_elements() -> None:
    check(
        torch.randn(5, 4),
        first=lambda x: x[:, 0:0],
        turned=lambda x: x[4:2],
        behind=lambda x: x.narrow(1, 4, 0),
        stacked=lambda x: torch.stack([x[:0], x[:0]]),
        zeros=lambda x: torch.zeros(0, 3) + x[:0, :3],
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("group", "dtype"),
    [("rows 2", "bf16"), ("binary 2", "f32"), ("numbers 7", "i1"), ("conversions 1", "f32")],
)
@pytest.mark.filterwarnings("ignore")
def test_values_at_the_edges(group: str, dtype: str) -> None:
    verdict = judge_calls(*edges.calls(group, dtype, 1), edges=True)
    assert verdict.outcome == "right", verdict.reason


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("family", "dtypes"),
    [
        ("sums", "i1+f16"),
        ("order", "i64+f64"),
        ("choices", "u8+bf16"),
        pytest.param("powers", "f16+bf16", marks=pytest.mark.long),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_mixed_dtypes(family: str, dtypes: str) -> None:
    verdict = judge_calls(*mixed.calls(family, dtypes, 1))
    assert verdict.outcome == "right", verdict.reason


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "powers",
    [
        [1000, -1000, -149, 130, 160, 2, 3, 4],
        [0, 1, 2, 100, -3, -20, -120, 15],
        [2200, 9000, -2200, 2200, 2200, -9000, 2200, -2200],
    ],
)
def test_powers_that_leave_the_range_on_the_way(dtype: Any, powers: list[int]) -> None:
    x = torch.tensor([0.0, -0.0, 1.5, 1e-30, 1e-40, INF, NAN, -7.25]).to(dtype)
    check(x, scaled=lambda x: torch.ldexp(x, torch.tensor(powers)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.float32])
def test_a_number_beside_truth_values_changes_no_dtype(dtype: Any) -> None:
    def all_of_them(b: Any, x: Any, n: Any) -> tuple[Any, ...]:
        of_numbers = (torch.addcmul(x, b, n, value=2), torch.addcmul(b, b, n, value=2))
        return torch.addcmul(b, b, x, value=2), torch.addcmul(x, b, b, value=3), *of_numbers

    tensors = (torch.tensor([True, False, True]), torch.tensor([3, -2, 7]).to(dtype), torch.tensor(2))
    verdict, _ = judge(Sample(all_of_them, tensors))
    assert verdict.outcome == "right", verdict.reason


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "dtypes",
    [
        (torch.float64, torch.int32, torch.float64),
        (torch.float32, torch.float16, torch.float32),
        (torch.int64, torch.uint8, torch.int64),
    ],
)
def test_factors_of_other_dtypes_are_of_that_of_the_result(dtypes: tuple[Any, ...]) -> None:
    """100 times 3 is no byte, and a tenth of 3 none of the numbers of halves."""
    tensors = tuple(torch.tensor([3, 100, 70]).to(dtype) for dtype in dtypes)
    value = 0.1 if tensors[0].is_floating_point() else 3
    verdict, _ = judge(Sample(lambda x, y, z: torch.addcmul(x, y, z, value=value), tensors))
    assert verdict.outcome == "right", verdict.reason
    if value == 0.1:
        verdict, _ = judge(Sample(lambda x, y, z: torch.addcdiv(x, y, z, value=value), tensors))
        assert verdict.outcome == "right", verdict.reason
