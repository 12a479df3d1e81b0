"""Products of f16 and bf16: one launch for each with its fill, sums in f32, whatever the number of rows, with
bound weights and epilogues.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.compile import lower_module
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import Kernel, runs_here, threaded_host
from tests.compiler.lower.bound.test_bound import Bound

RANDOM = np.random.default_rng(20261130)
HALF_PRECISION = pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
TARGETS = [
    pytest.param(name, marks=pytest.mark.skipif(not runs_here(name), reason=f"no {name} here"))
    for name in ("x86-64-v3", "x86-64-v4", "znver4", "sapphirerapids", "aarch64")
]


def text_of(function: Any, arrays: list[np.ndarray]) -> str:
    return jax.jit(function).lower(*arrays).as_text("stablehlo")


def compiled(function: Any, arrays: list[np.ndarray], target: str) -> Kernel:
    canonical = canonicalize(text_of(function, arrays).encode(), "stablehlo", "default")
    options = CompileOptions()
    return Kernel(compile_spec(canonical.spec_text, canonical.arg_spec, target, options, lambda _: None))


def normal(kind: Any, *shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(kind)


def layers(x: Any, first: Any, second: Any) -> Any:
    """Equal products before and after attention, whose launch is between them."""
    queries = x @ first
    scores = (queries @ x.T).astype(jnp.float32) * 0.1
    weights = jax.nn.softmax(scores, -1).astype(x.dtype)
    return (weights @ x) @ second


def steps(x: Any, first: Any, second: Any) -> Any:
    """Equal products before a loop and in it."""
    return jax.lax.fori_loop(0, 2, lambda _, y: (y @ second) * 0.125, (x @ first) * 0.125)


@HALF_PRECISION
@pytest.mark.parametrize("function", [layers, steps])
def test_equal_products_are_contractions_wherever_they_are(function: Any, kind: Any) -> None:
    """Results are near those in f64: a product that rounds after each step is not."""
    arrays = [normal(kind, 96, 64), normal(kind, 64, 64), normal(kind, 64, 64)]
    kernel = compiled(function, arrays, "x86-64-v3")
    products = [launch.ops for launch in kernel.interface.launches if "contraction" in launch.ops]
    others = [launch.ops for launch in kernel.interface.launches if "arith.mulf" in launch.ops]
    assert len(products) == 2
    assert all("arith.addf" not in ops for ops in others), others
    expected = reference(function, arrays)
    (result,) = kernel(*arrays)
    epsilon = float(ml_dtypes.finfo(kind).eps)
    assert distance(result, expected) < 2 * epsilon


def reference(function: Any, arrays: list[np.ndarray]) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(function(*(jnp.asarray(array.astype("f8")) for array in arrays)))


def distance(result: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(result.astype("f8") - expected) / np.linalg.norm(expected))


def plain(x: Any, w: Any, b: Any, y: Any) -> Any:
    return x @ w.T


def biased(x: Any, w: Any, b: Any, y: Any) -> Any:
    return x @ w.T + b


def activated(x: Any, w: Any, b: Any, y: Any) -> Any:
    wide = (x @ w.T + b).astype(jnp.float32 if x.dtype != jnp.float64 else x.dtype)
    return jax.nn.gelu(wide, approximate=False).astype(x.dtype)


def residual(x: Any, w: Any, b: Any, y: Any) -> Any:
    return x @ w.T + b + y


@pytest.mark.sampled(12)
@HALF_PRECISION
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", [plain, biased, activated, residual])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 13, 16, 40])
def test_bound_weights(rows: int, function: Any, target: str, kind: Any) -> None:
    """Against f64: sums round as f32 does, then each operation of the program rounds once."""
    columns, depth = 70, 531
    arrays = [
        normal(kind, rows, depth),
        normal(kind, columns, depth),
        normal(kind, columns),
        normal(kind, rows, columns),
    ]
    exact = [array.astype("f8") for array in arrays]
    with jax.enable_x64(True):
        expected = np.asarray(function(*map(jnp.asarray, exact)))
    text = jax.jit(function, keep_unused=True).lower(*arrays).as_text("stablehlo")
    kernel = Bound(text, 4, [1, 2], "default", 3, target)
    prepared = kernel.prepare(arrays[1], arrays[2])
    epsilon = float(ml_dtypes.finfo(kind).eps)
    size = np.abs(exact[0]) @ np.abs(exact[1].T)
    bound = 2.0**-22 * size + 3 * epsilon * (
        np.abs(exact[0] @ exact[1].T) + np.abs(exact[2]) + np.abs(exact[3])
    )
    for host in (None, threaded_host()):
        (result,) = kernel.run(prepared, arrays[0], arrays[3], host=host)
        assert (np.abs(result.astype("f8") - expected) <= bound).all()


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_few_rows_read_bound_pairs_packed(rows: int) -> None:
    """From two rows on; a single row, and what is not bound, are plain loops."""
    arrays = [normal(ml_dtypes.bfloat16, *sizes) for sizes in ((rows, 512), (96, 512), (96,), (rows, 96))]
    text = jax.jit(biased, keep_unused=True).lower(*arrays).as_text("stablehlo")
    kernel = Bound(text, 4, [1, 2], "default", 3, "znver4").compiled
    is_packed = any("contraction" in launch.ops for launch in kernel.interface.launches)
    assert is_packed == (rows > 1)
    unbound = lower_module(text, 4, "znver4", CompileOptions(), lambda _: None)
    packs = any("contraction" in launch.ops for launch in unbound.interface.launches)
    assert packs == (rows > 4)
