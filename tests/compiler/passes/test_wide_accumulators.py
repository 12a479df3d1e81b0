"""Products with narrow results are summed in f32 and rounded once, unless numerics are strict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import ArgSpec, CompileOptions
from tests.compiler.codegen_harness import Kernel, threaded_host

RANDOM = np.random.default_rng(20261122)


def product(a: Any, b: Any) -> Any:
    return a @ b


def followed(a: Any, b: Any) -> Any:
    return jax.nn.relu(a @ b - 1), a @ b


def looped(a: Any, b: Any) -> Any:
    """Products in a loop's body."""
    return jax.lax.fori_loop(0, 3, lambda step, x: x + (a + step.astype(a.dtype)) @ b, a @ b)


def concatenated(a: Any, b: Any) -> Any:
    """Branches of a later loop read the sums."""
    return (
        np.concatenate([a @ b, a @ b + 1])
        if isinstance(a, np.ndarray)
        else jnp.concatenate([a @ b, a @ b + 1])
    )


def negated_or_not(a: Any, b: Any) -> Any:
    """Branches of a conditional read the sums."""
    sums = a @ b
    if isinstance(a, np.ndarray):
        return sums
    return jax.lax.cond(a[0, 0] < 0, lambda: -sums, lambda: sums)


def _kernel(
    function: Any, arrays: list[np.ndarray], numerics: str = "default", opened: bool = False
) -> Kernel:
    text = jax.jit(function).lower(*arrays).as_text("stablehlo")
    canonical = canonicalize(text.encode(), "stablehlo", numerics)
    arguments = ArgSpec(canonical.symbolic_args) if opened else canonical.arg_spec
    options = CompileOptions(numerics=numerics)
    return Kernel(compile_spec(canonical.spec_text, arguments, "x86-64-v3", options, lambda _: None))


def _arrays(kind: Any, rows: int, depth: int, columns: int) -> list[np.ndarray]:
    return [RANDOM.random(shape).astype(kind) for shape in ((rows, depth), (depth, columns))]


def _rounded_once(kernel: Kernel, arrays: list[np.ndarray], function: Callable[..., Any] = product) -> None:
    expected = function(*(array.astype("f8") for array in arrays)).astype(arrays[0].dtype).astype("f8")
    step = float(ml_dtypes.finfo(arrays[0].dtype).eps)
    for host in (None, threaded_host()):
        (got,) = kernel(*arrays, host=host)
        np.testing.assert_allclose(got.astype("f8"), expected, rtol=step)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
@pytest.mark.parametrize("sizes", [(3, 700, 4), (1, 900, 1), (1, 300, 257), (8, 200, 2)], ids=str)
def test_sums_are_rounded_once(kind: Any, sizes: tuple[int, int, int]) -> None:
    arrays = _arrays(kind, *sizes)
    _rounded_once(_kernel(product, arrays), arrays)


@pytest.mark.parametrize("function", [concatenated, negated_or_not])
@pytest.mark.parametrize("sizes", [(7, 700, 1), (1, 900, 8), (3, 100, 4)], ids=str)
def test_sums_that_branches_read_are_rounded_once(function: Any, sizes: tuple[int, int, int]) -> None:
    arrays = _arrays(ml_dtypes.bfloat16, *sizes)
    _rounded_once(_kernel(function, arrays), arrays, function)


def test_sums_of_dynamic_sizes() -> None:
    kernel = _kernel(product, _arrays(ml_dtypes.bfloat16, 3, 70, 5), opened=True)
    for sizes in ((1, 1, 1), (2, 900, 3), (40, 300, 33), (0, 4, 4), (3, 0, 2)):
        arrays = _arrays(ml_dtypes.bfloat16, *sizes)
        _rounded_once(kernel, arrays)


@pytest.mark.parametrize("function", [followed, looped])
def test_what_follows_reads_rounded_sums(function: Any) -> None:
    arrays = _arrays(np.float16, 4, 64, 4)
    expected = jax.tree.leaves(function(*(jnp.asarray(array, "f4") for array in arrays)))
    for got, wanted in zip(_kernel(function, arrays)(*arrays), expected, strict=True):
        np.testing.assert_allclose(got.astype("f4"), wanted, rtol=2e-3)


def test_strict_sums_round_each_step() -> None:
    a, b = np.ones((1, 300), ml_dtypes.bfloat16), np.ones((300, 1), ml_dtypes.bfloat16)
    assert _kernel(product, [a, b], numerics="strict")(a, b)[0] == 256
    assert _kernel(product, [a, b])(a, b)[0] == 300
