"""Products of bf16 in the tile registers of AMX: what is emitted anywhere, values where they run."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kcache_compiler.compile import lower_module
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel, runs_here, threaded_host
from tests.compiler.lower.bound.test_bound import Bound

TARGET = "sapphirerapids"
RANDOM = np.random.default_rng(20261129)
#: Products of converted operands, as PyTorch's bf16 matrices are imported.
WIDENED = """
  func.func @main(%a: tensor<{m}x{k}xbf16>, %w: tensor<{n}x{k}xbf16>) -> tensor<{m}x{n}x{result}> {{
    %0 = stablehlo.convert %a : (tensor<{m}x{k}xbf16>) -> tensor<{m}x{k}xf32>
    %1 = stablehlo.convert %w : (tensor<{n}x{k}xbf16>) -> tensor<{n}x{k}xf32>
    %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [1]
      : (tensor<{m}x{k}xf32>, tensor<{n}x{k}xf32>) -> tensor<{m}x{n}xf32>
    %3 = stablehlo.convert %2 : (tensor<{m}x{n}xf32>) -> tensor<{m}x{n}x{result}>
    return %3 : tensor<{m}x{n}x{result}>
  }}"""
#: Rows, columns and steps of K: whole tiles, parts of each, several blocks of K and of columns.
SIZES = [
    (32, 32, 32),
    (128, 768, 768),
    (33, 70, 65),
    (16, 33, 1),
    (48, 17, 31),
    (5, 300, 800),
    (65, 1100, 385),
]


def text(m: int, n: int, k: int, result: str = "bf16") -> str:
    return WIDENED.format(m=m, n=n, k=k, result=result)


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    left, right = RANDOM.standard_normal((m, k)), RANDOM.standard_normal((n, k))
    return left.astype(ml_dtypes.bfloat16), right.astype(ml_dtypes.bfloat16)


def compiled(source: str, target: str = TARGET, numerics: str = "default") -> Kernel:
    return Kernel(lower_module(source, 2, target, CompileOptions(numerics), lambda _: None))


def close(result: np.ndarray, a: np.ndarray, w: np.ndarray) -> None:
    """Each product is exact and each addition rounded in f32, then the result in its own type."""
    left, right = a.astype("f8"), w.astype("f8").T
    rounding = 2.0**-8 if result.dtype == ml_dtypes.bfloat16 else 2.0**-24
    bound = 2.0**-23 * max(a.shape[1], 2) * (abs(left) @ abs(right)) + rounding * abs(left @ right)
    assert (abs(result.astype("f8") - left @ right) <= bound).all()


def test_widened_operands_are_multiplied_in_tile_registers() -> None:
    """The code and the features that it requires; strict sums keep the order of the program."""
    kernel = lower_module(text(64, 64, 64), 2, TARGET, CompileOptions(), lambda _: None)
    assert {"amx-bf16", "amx-tile"} <= set(kernel.interface.required_isa)
    strict = lower_module(text(64, 64, 64), 2, TARGET, CompileOptions("strict"), lambda _: None)
    assert not {"amx-bf16", "amx-tile"} & set(strict.interface.required_isa)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("result", ["bf16", "f32"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values(sizes: tuple[int, int, int], result: str) -> None:
    a, w = operands(*sizes)
    close(compiled(text(*sizes, result))(a, w)[0], a, w)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_values_where_there_are_no_such_registers(target: str) -> None:
    a, w = operands(33, 70, 65)
    close(compiled(text(33, 70, 65), target)(a, w)[0], a, w)


def test_what_is_not_finite_stays_in_its_row_and_column() -> None:
    """Parts of tiles are filled with zeros, and with rows that are not stored."""
    a, w = operands(35, 40, 33)
    a[34, 5], w[7, 32] = np.inf, np.nan
    [result] = compiled(text(35, 40, 33))(a, w)
    affected = np.zeros((35, 40), bool)
    affected[34], affected[:, 7] = True, True
    assert np.isfinite(result.astype("f4")[~affected]).all()
    assert not np.isfinite(result.astype("f4")[affected]).any()


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_bits_do_not_depend_on_threads(workers: int) -> None:
    a, w = operands(131, 700, 300)
    kernel = compiled(text(131, 700, 300))
    host = threaded_host(workers, lambda starts: starts[::-1])
    [shared], [alone] = kernel(a, w, host=host), kernel(a, w)
    assert host.calls
    assert shared.tobytes() == alone.tobytes()


@pytest.mark.skipif(not runs_here(TARGET), reason=f"no {TARGET} here")
@pytest.mark.parametrize("sizes", [(40, 70, 65), (1, 64, 256), (64, 33, 400)], ids=str)
def test_bound_weights_are_packed_narrow(sizes: tuple[int, int, int]) -> None:
    _, n, k = sizes
    a, w = operands(*sizes)
    kernel = Bound(text(*sizes), 2, [1], "default", target=TARGET)
    prepared = kernel.prepare(w)
    assert prepared.nbytes <= 2 * (n + 31) * (k + 1) + 4096
    [result] = kernel.run(prepared, a)
    close(result, a, w)
