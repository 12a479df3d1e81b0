"""Sorts, searches, writes to shared places, complex numbers and Fourier transforms are as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch
from torch.nn import functional

from kcache_compiler import UnsupportedOp, canonicalize
from tests.conformance.torch_ops.harness.calls import Call, judge_calls
from tests.conformance.torch_ops.harness.judge import judge
from tests.conformance.torch_ops.harness.samples import Sample

X = torch.tensor([[3.0, float("nan"), 1.0, 3.0, -2.0], [0.5, 0.5, float("inf"), -1.0, 4.0]])
AT = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0]])
Function = Callable[..., Any]


def check(tensors: tuple[Any, ...], **functions: Function) -> None:
    verdict = judge_calls([Call(name, function) for name, function in functions.items()], tensors)
    assert verdict.outcome == "right", verdict.reason
    assert verdict.reason == str(len(functions)), "eager mode rejects some of them"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_orders(dtype: Any) -> None:
    x = X.nan_to_num(7, 9).to(dtype) if dtype == torch.int32 else X
    check(
        (x,),
        stable=lambda x: torch.sort(x, dim=1, stable=True, descending=True)[1],
        cummax=lambda x: torch.cummax(x, 1)[1],
        cummin=lambda x: torch.cummin(x, 0)[0],
        median=torch.median,
        medians=lambda x: torch.median(x, 1, True)[0],
        nanmedian=lambda x: torch.nanmedian(x, 1)[0],
        kth=lambda x: torch.kthvalue(x, 2, 1)[0],
        searched=lambda x: torch.searchsorted(torch.sort(x[1])[0], x, right=True),
        rows=lambda x: torch.searchsorted(torch.sort(x, 1)[0], x),
        number=lambda x: torch.searchsorted(torch.sort(x[1])[0], 0.7),
    )


def test_a_number_is_searched_in_the_dtype_of_the_row() -> None:
    row = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    check(
        (row, row.to(torch.bfloat16), torch.tensor(0.2)),
        wide=lambda x, y, z: torch.searchsorted(x, 0.2),
        half=lambda x, y, z: torch.searchsorted(y, 0.2, right=True),
        scalar=lambda x, y, z: torch.searchsorted(y, z.bfloat16(), right=True),
        whole=lambda x, y, z: torch.searchsorted((x * 10).to(torch.int64), 1.5),
    )


@pytest.mark.sampled(36)
@pytest.mark.parametrize("include", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_scattered(dtype: Any, reduce: str, include: bool) -> None:
    x = (X.nan_to_num(3, 5) * 4).to(dtype)

    def all_of_them(x: Any, at: Any) -> tuple[Any, ...]:
        wide = x.scatter_reduce(0, at, x + 1, reduce, include_self=include)
        short = x.scatter_reduce(1, at[:, :3] * 2, x.flip(1), reduce, include_self=include)
        return wide, short, x[0].scatter_reduce(0, at[0], x[1], reduce, include_self=include)

    verdict, _ = judge(Sample(all_of_them, (x, AT)))
    assert verdict.outcome == "right", verdict.reason


@pytest.mark.filterwarnings("ignore")
def test_other_writes() -> None:
    check(
        (X.nan_to_num(3, 5), AT),
        add=lambda x, at: x.scatter(1, at, x, reduce="add"),
        multiply=lambda x, at: x.scatter(0, at, 2.5, reduce="multiply"),
        index=lambda x, at: x.index_reduce(1, at[0], x, "prod", include_self=False),
    )


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_one_number() -> None:
    tensors = (torch.tensor(2.5), torch.tensor(0), torch.tensor(3.5))
    for reduce in ("sum", "mean", "prod", "amax", "amin"):
        check(
            tensors,
            scatter=lambda x, at, y, reduce=reduce: x.scatter_reduce(0, at, y, reduce),
            alone=lambda x, at, y, reduce=reduce: x.scatter_reduce(0, at, y, reduce, include_self=False),
        )
    check(
        tensors,
        index=lambda x, at, y: x.index_reduce(0, at[None], y, "amin"),
        unfold=lambda x, at, y: x.unfold(0, 1, 1),
        nothing=lambda x, at, y: x.unfold(0, 0, 1),
    )


def _assigned(x: Any, at: Any, value: Any) -> Any:
    x = x.clone()
    x[at] = value
    return x


@pytest.mark.parametrize("offset", [None, 6])
def test_strides_of_a_view_count_from_its_memory(offset: int | None) -> None:
    check(
        (X.nan_to_num(3, 5).repeat(3, 1), torch.tensor([7.0, 8.0])),
        view=lambda x, y: torch.as_strided_scatter(x[1:], y, (2,), (2,), offset),
    )


def test_strides_before_a_view_are_rejected() -> None:
    def before(x: Any, y: Any) -> Any:
        return torch.as_strided_scatter(x[1:], y, (2,), (2,), 1)

    verdict, _ = judge(Sample(before, (X.nan_to_num(3, 5), torch.tensor([7.0, 8.0]))))
    assert verdict.outcome == "rejected", verdict.reason


def test_masked_writes() -> None:
    x = X.nan_to_num(3, 5)
    check(
        (x, torch.tensor([True, False]), torch.tensor([[1.5, 2.5, 3.5, 4.5, 5.5]])),
        number=lambda x, rows, y: _assigned(x, x > 1, 0.25),
        rows=lambda x, rows, y: _assigned(x, rows, y),
        columns=lambda x, rows, y: _assigned(x, (slice(None), x[0] > 1), y[0, :1]),
        added=lambda x, rows, y: torch.index_put(x, (rows,), y[0], accumulate=True),
        middle=lambda x, rows, y: _assigned(x.reshape(2, 5, 1), (slice(None), y[0] > 2), y[:, :1]),
        put=lambda x, rows, y: torch.put(x, torch.tensor([[1, -2]]), y[:, :2]),
        diagonal=lambda x, rows, y: torch.diagonal_scatter(x, y[0, :2], 1),
        below=lambda x, rows, y: torch.diagonal_scatter(x, y[0, :1], -1),
        strided=lambda x, rows, y: torch.as_strided_scatter(x, y[0, :4].reshape(2, 2), (2, 2), (1, 3), 1),
        embedding=lambda x, rows, y: functional.embedding(
            torch.tensor([1, 0, 1]), x, scale_grad_by_freq=True
        ),
    )


def test_masked_writes_that_count_are_rejected() -> None:
    def written(x: Any) -> Any:
        return torch.index_put(x, (torch.tensor([True, True]),), x * 2)

    assert judge(Sample(written, (X.nan_to_num(3, 5),)))[0].outcome == "rejected"


def test_shares_of_integers_are_rejected() -> None:
    grad, x = torch.full((1, 1, 2, 2), 7), torch.zeros(1, 1, 4, 4, dtype=torch.int64)
    backward = torch.ops.aten.avg_pool2d_backward.default

    def shares(grad: Any, x: Any) -> Any:
        return backward(grad, x, [2, 2], [2, 2], [0, 0], False, True, None)

    assert judge(Sample(shares, (grad, x)))[0].outcome == "rejected"


def test_a_divisor_in_the_dialect_is_rejected() -> None:
    x, y, lists = "!torch.vtensor<[1,4,4,4],f32>", "!torch.vtensor<[1,2,2,2],f32>", "!torch.list<int>"
    text = f"""func.func @main(%a: {x}) -> {y} {{
      %2 = torch.constant.int 2
      %k = torch.prim.ListConstruct %2, %2, %2 : (!torch.int, !torch.int, !torch.int) -> {lists}
      %0 = torch.constant.int 0
      %p = torch.prim.ListConstruct %0, %0, %0 : (!torch.int, !torch.int, !torch.int) -> {lists}
      %f = torch.constant.bool false
      %t = torch.constant.bool true
      %r = torch.aten.avg_pool3d %a, %k, %k, %p, %f, %t, %2
        : {x}, {lists}, {lists}, {lists}, !torch.bool, !torch.bool, !torch.int -> {y}
      return %r : {y} }}"""
    with pytest.raises(UnsupportedOp, match="window's size"):
        canonicalize(text.encode(), "torch")


@pytest.mark.long
def test_functions() -> None:
    check(
        (X, X.flip(1)),
        hypot=torch.hypot,
        counted=lambda x, y: torch.erf((x > 0).to(torch.int64)),
        large=lambda x, y: torch.hypot(x * 1e30, y * 1e30),
        isclose=lambda x, y: torch.isclose(x, y + 1e-7, equal_nan=True),
        angle=lambda x, y: torch.angle(x),
        all=lambda x, y: torch.ops.aten.all.dims(x > 0, [0, 1]),
        unfold=lambda x, y: x.unfold(1, 3, 2),
        dist=lambda x, y: torch.dist(x.nan_to_num(1, 2), y.nan_to_num(1, 2), 3),
        added=lambda x, y: torch.addbmm(x[:, :2], x[None], y.T[None].nan_to_num(1, 2), alpha=2),
        unused=lambda x, y: torch.addbmm(
            x[0, :1], x[None].nan_to_num(1, 2), y.T[None].nan_to_num(1, 2), beta=0
        ),
    )


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gamma_and_bessel_functions(dtype: Any) -> None:
    edges = (0.0, -0.0, -0.5, -2.5, -12.25, 1e-3, 0.7, 3.0, 50.0, float("inf"), float("nan"))
    x = torch.tensor([*edges, -2.0, -float("inf")], dtype=dtype)
    functions: dict[str, Function] = {
        "digamma": lambda x: torch.polygamma(0, x),
        "trigamma": lambda x: torch.polygamma(1, x[:-2]),  # of poles eager mode gives large numbers
        "second": lambda x: torch.polygamma(2, x),
        "third": lambda x: torch.polygamma(3, x),
        "of truth": lambda x: torch.polygamma(2, x > 0),
        "greatest": lambda x: torch.polygamma(34, x[4:8]),
        "too large": lambda x: torch.polygamma(400, x[4:8]),
        "bessel": torch.special.i1,
        "scaled": torch.special.i1e,
        "next": lambda x: torch.nextafter(x, x.flip(0)),
    }
    if dtype != torch.bfloat16:
        functions |= {
            "zeta": lambda x: torch.special.zeta(x[:9, None], x),
            "of number": lambda x: torch.special.zeta(3, x),
            "by number": lambda x: torch.special.zeta(x[:9], 2.5),
            "spherical": torch.special.spherical_bessel_j0,
        }
    verdict = judge_calls([Call(name, function) for name, function in functions.items()], (x,), edges=True)
    assert verdict.outcome == "right", verdict.reason
    assert verdict.reason == str(len(functions)), "eager mode rejects some of them"


def test_vectors_and_copies() -> None:
    check(
        (X.nan_to_num(3, 5), X),
        addmv=lambda x, y: torch.addmv(x[:, 0], x, x[0], beta=2, alpha=3),
        only=lambda x, y: torch.addmv(y[:, 1], x, x[0], beta=0),
        fractions=lambda x, y: torch.addmv(
            x[:, 0].to(torch.int64), x.to(torch.int64), x[0].to(torch.int64), beta=1.6, alpha=0.4
        ),
        product=lambda x, y: torch.cumprod(x[0, 0], 0),
        parts=lambda x, y: torch.ops.aten.unbind_copy.int(x, 1)[2],
    )


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int8, torch.uint8])
def test_extremes_of_volumes(dtype: Any) -> None:
    x = torch.arange(2 * 7 * 6 * 5).mul(37).remainder(101).reshape(1, 2, 7, 6, 5).to(dtype)
    for up in (False, True):
        check(
            (x - 50 if dtype.is_signed else x,),
            values=lambda x, up=up: functional.max_pool3d(x, 3, 2, 1, ceil_mode=up),
            places=lambda x, up=up: functional.max_pool3d(x, 2, 2, ceil_mode=up, return_indices=True)[1],
            spread=lambda x, up=up: functional.max_pool3d(x, 2, (3, 2, 1), 0, (1, 2, 1), up),
        )


def test_extremes_of_windows_that_differ() -> None:
    x = torch.arange(2 * 7 * 6 * 5).mul(37).remainder(101).reshape(1, 2, 7, 6, 5).to(torch.float32)
    x[0, 1, 2, :2] = float("nan")
    check(
        (x, x[0]),
        volumes=lambda x, y: functional.adaptive_max_pool3d(x, (3, 4, 2)),
        places=lambda x, y: functional.adaptive_max_pool3d(x, (2, 6, 7), return_indices=True)[1],
        areas=lambda x, y: functional.adaptive_max_pool2d(y, (4, 2), return_indices=True)[1],
        more=lambda x, y: functional.adaptive_max_pool2d(y, (8, 3)),
        rows=lambda x, y: functional.adaptive_max_pool1d(y[0], 2, return_indices=True)[1],
    )


@pytest.mark.long
@pytest.mark.parametrize("align", [True, False])
def test_samples_of_grids(align: bool) -> None:
    x = torch.linspace(-1, 2, 60).reshape(1, 2, 5, 6)
    grid = (torch.arange(40).mul(7).remainder(23) / 8 - 1.4).reshape(1, 4, 5, 2)
    corner = x.clone()
    corner[0, :, 0, 0] = torch.tensor([float("nan"), float("inf")])

    def sampled(mode: str, padding: str) -> Function:
        return lambda x, y, grid: (
            functional.grid_sample(x, grid, mode, padding, align),
            functional.grid_sample(y, grid, mode, padding, align),
        )

    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            verdict, _ = judge(Sample(sampled(mode, padding), (x, corner, grid)))
            assert verdict.outcome == "right", (mode, padding, verdict.reason)


@pytest.mark.long
@pytest.mark.parametrize("padding", ["border", "reflection"])
def test_places_of_images_that_are_no_numbers(padding: str) -> None:
    none, far = float("nan"), float("inf")
    grid = torch.tensor([[none, 0.3], [0.3, none], [far, 0.2], [-far, 0.2], [0.1, far], [1e9, 0.3]])
    check(
        (torch.linspace(-1, 2, 20).reshape(1, 1, 4, 5), grid[None, None]),
        bilinear=lambda x, grid: functional.grid_sample(x, grid, "bilinear", padding, True),
        nearest=lambda x, grid: functional.grid_sample(x, grid, "nearest", padding, False),
        bicubic=lambda x, grid: functional.grid_sample(x, grid, "bicubic", padding, False),
    )


def test_gradients_of_softmax() -> None:
    grad = torch.tensor([[1.0, float("inf"), 0.5], [float("nan"), 1.0, 2.0], [1.0, -2.0, 3.0]])
    backward = torch.ops.aten._softmax_backward_data.default
    check(
        (grad, torch.softmax(grad.nan_to_num(1, 2), 1)),
        rows=lambda x, y: backward(x, y, 1, torch.float32),
        columns=lambda x, y: backward(x, y, 0, torch.float32),
    )


def test_transposed_convolutions_whose_axes_differ() -> None:
    x, w = torch.linspace(-1, 2, 96).reshape(1, 4, 4, 6), torch.linspace(2, -1, 144).reshape(4, 3, 4, 3)
    check(
        (x, w, torch.tensor([0.5, -1.0, 2.0])),
        plain=lambda x, w, b: functional.conv_transpose2d(x, w, b, (2, 3), (1, 0), (0, 2)),
        spread=lambda x, w, b: functional.conv_transpose2d(x, w, None, (2, 3), (0, 1), (1, 2), 1, (2, 1)),
        grouped=lambda x, w, b: functional.conv_transpose2d(x, w, None, 2, 0, (1, 0), 2),
    )


@pytest.mark.long
def test_means_of_windows() -> None:
    x = torch.linspace(-1, 2, 98).reshape(1, 2, 7, 7)
    check(
        (x,),
        divisor=lambda x: functional.avg_pool2d(x, 3, 2, 1, divisor_override=-5),
        volume=lambda x: functional.avg_pool3d(x, 2, divisor_override=3),
        up=lambda x: functional.avg_pool2d(x, 4, 3, 2, ceil_mode=True),
        alone=lambda x: functional.avg_pool2d(x, 3, 2, 1, True, False),
        volume_up=lambda x: functional.avg_pool3d(x, 2, ceil_mode=True),
        halves=lambda x: functional.avg_pool2d(x.bfloat16(), 2, ceil_mode=True),
    )


@pytest.mark.filterwarnings("ignore")
def test_complex_numbers() -> None:
    z = torch.tensor([3 + 4j, -1 + 0.5j, 2j, 1.0], dtype=torch.complex64)
    check(
        (z, z.flip(0)),
        size=lambda x, y: torch.abs(x),
        product=lambda x, y: x * y + x - y,
        quotient=lambda x, y: x / y,
        mixed=lambda x, y: x * y.real,
        conjugate=lambda x, y: torch.conj_physical(x) + y,
        real=lambda x, y: torch.view_as_real(-x).flip(0),
        made=lambda x, y: torch.complex(x.real, y.imag),
        polar=lambda x, y: torch.polar(x.real, y.real),
        moved=lambda x, y: torch.cat([x.reshape(2, 2).T, y.reshape(2, 2)]),
    )


@pytest.mark.filterwarnings("ignore")
def test_what_is_not_lowered_of_complex_numbers_is_rejected() -> None:
    z = torch.tensor([3 + 4j, -1 + 0.5j], dtype=torch.complex64)
    for function in (torch.exp, lambda x: x == x, lambda x: x.mean(), lambda x: x * 2):
        verdict, _ = judge(Sample(function, (z,)))
        assert verdict.outcome == "rejected", verdict
        assert "complex" in verdict.reason


@pytest.mark.long
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_fourier_transforms(norm: str) -> None:
    x = torch.linspace(-1, 1, 48).reshape(2, 4, 6) ** 3
    check(
        (x,),
        fft=lambda x: torch.fft.fft(x, dim=1, norm=norm),
        ifft=lambda x: torch.fft.ifft(torch.fft.fft(x, 5), norm=norm),
        rfft=lambda x: torch.fft.rfft(x, norm=norm),
        odd=lambda x: torch.fft.rfft(x, 5, dim=0, norm=norm),
        irfft=lambda x: torch.fft.irfft(torch.complex(x, x), 7, norm=norm),
        rfft2=lambda x: torch.fft.rfft2(x, norm=norm),
        irfftn=lambda x: torch.fft.irfftn(torch.complex(x, -x), norm=norm),
        ihfft=lambda x: torch.fft.ihfft(x, norm=norm),
        hfft=lambda x: torch.fft.hfft(torch.complex(x, x), norm=norm),
        shifted=lambda x: torch.fft.fftshift(torch.fft.fft2(x, norm=norm)),
    )
