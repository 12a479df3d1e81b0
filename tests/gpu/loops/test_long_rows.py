"""Softmax, norms and losses of few long rows run on several blocks a row: values of JAX, in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.export
import jax.numpy as jnp

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.llvm.ptxas import assemble_ptx
from kcache_compiler.types import ArgSpec, CompiledKernel, CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel
from tests.gpu.emulation.test_ptxas import needs_ptxas
from tests.gpu.harness.emulate import ORDERS
from tests.gpu.harness.programs import Array
from tests.gpu.harness.run import run_gpu

Function = Callable[..., Any]
TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120")
#: A row of 18 parts of 2,048 elements.
LENGTH = 36864
#: Bound of the error as a share of the largest result.
BOUND = {"f32": 2e-6, "f64": 1e-14, "bf16": 2e-2, "f16": 2e-3}


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x, -1)


def softmax_in_f32(x: Any) -> Any:
    return jax.nn.softmax(x.astype("float32"), -1).astype(x.dtype)


def scaled_softmax(x: Any, bias: Any) -> Any:
    return jax.nn.softmax(x * 0.5 + bias, -1) * 2 + x


def masked_softmax(x: Any) -> Any:
    """Most parts of a row have no element that counts."""
    kept = jnp.arange(x.shape[-1]) % 20000 < 900
    return jax.nn.softmax(jnp.where(kept, x, -jnp.inf), -1)


def log_softmax(x: Any) -> Any:
    return jax.nn.log_softmax(x, -1)


def cross_entropy(x: Any, share: Any) -> Any:
    return -(jax.nn.log_softmax(x, -1) * share).sum(-1)


def softmax_twice(x: Any) -> Any:
    return jax.nn.softmax(100 * jax.nn.softmax(x, -1), -1)


def layer_norm(x: Any, gain: Any, bias: Any) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    variance = (centered * centered).mean(-1, keepdims=True)
    return centered * jax.lax.rsqrt(variance + 1e-5) * gain + bias


def rms_norm(x: Any, gain: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain


def scaled_to_one(x: Any) -> Any:
    return x / jnp.abs(x).max(-1, keepdims=True)


def compiled(
    function: Function, arrays: list[Array], target: str = "sm_90", numerics: str = "default"
) -> CompiledKernel:
    with jax.enable_x64(True):
        text = jax.jit(function).lower(*arrays).as_text("stablehlo")
    canonical = canonicalize(text.encode(), "stablehlo", numerics)
    assert not canonical.constants
    return compile_spec(
        canonical.spec_text, canonical.arg_spec, target, CompileOptions(numerics), lambda _: None
    )


def blocks(kernel: CompiledKernel) -> list[int]:
    return [int(launch.grid[0]) for launch in kernel.interface.gpu_launches]


#: Function, type, shapes of its arguments, launches.
CASES: tuple[tuple[Function, str, tuple[tuple[int, ...], ...], int], ...] = (
    (softmax, "f64", ((40960,),), 2),
    (softmax, "f32", ((2, 1, LENGTH),), 2),
    (scaled_softmax, "f32", ((2, LENGTH), (LENGTH,)), 2),
    (log_softmax, "f32", ((2, LENGTH),), 2),
    (softmax_twice, "f32", ((2, LENGTH),), 3),
    (layer_norm, "f32", ((2, LENGTH), (LENGTH,), (LENGTH,)), 3),
    (rms_norm, "f32", ((2, LENGTH), (LENGTH,)), 2),
    (scaled_to_one, "f32", ((2, LENGTH),), 2),
)


def arguments(dtype: str, shapes: tuple[tuple[int, ...], ...]) -> list[Array]:
    rng = np.random.default_rng(len(shapes))
    return [(3 * rng.standard_normal(shape)).astype(NUMPY[dtype]) for shape in shapes]


def expected(function: Function, arrays: list[Array]) -> Array:
    with jax.enable_x64(True):
        return np.asarray(function(*[jnp.asarray(array.astype("f8")) for array in arrays]))


def check(
    kernel: CompiledKernel, function: Function, arrays: list[Array], dtype: str, orders: tuple[str, ...]
) -> None:
    wanted = expected(function, arrays)
    for seed, order in enumerate(orders, 1):
        (got,) = run_gpu(kernel, arrays, order=order, seed=seed)
        assert (np.isnan(got.astype("f8")) == np.isnan(wanted)).all()
        error = np.nanmax(np.abs(got.astype("f8") - wanted), initial=0)
        assert error <= BOUND[dtype] * np.nanmax(np.abs(wanted), initial=1e-30), error


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("function", "dtype", "shapes", "launches"), CASES)
def test_blocks_share_a_row(
    function: Function, dtype: str, shapes: tuple[tuple[int, ...], ...], launches: int
) -> None:
    arrays = arguments(dtype, shapes)
    kernel = compiled(function, arrays)
    rows = int(np.prod(shapes[0][:-1]))
    assert len(blocks(kernel)) == launches
    assert min(blocks(kernel)) >= 8 * rows
    check(kernel, function, arrays, dtype, ORDERS if function in (softmax, layer_norm) else ("random",))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("function", "dtype", "shapes"),
    [
        (masked_softmax, "f32", ((2, LENGTH),)),
        (softmax_in_f32, "bf16", ((2, LENGTH),)),
        (softmax, "bf16", ((2, LENGTH),)),
        (cross_entropy, "f32", ((2, LENGTH), (2, LENGTH))),
    ],
)
def test_rows_with_other_launches_beside_them(
    function: Function, dtype: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    arrays = arguments(dtype, shapes)
    kernel = compiled(function, arrays)
    assert sum(count >= 36 for count in blocks(kernel)) >= 2
    check(kernel, function, arrays, dtype, ("random",))


def test_exponentials_that_the_maximum_of_others_bounds_are_not_rescaled() -> None:
    """Below the maximum of a part, which is smaller than that of the row, they would overflow."""

    def shifted(x: Any, y: Any) -> Any:
        weights = jnp.exp(y - x.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    x, y = arguments("f32", ((2, LENGTH),) * 2)
    x[:, 7], y[:] = 200, y + 150
    kernel = compiled(shifted, [x, y])
    assert len(blocks(kernel)) == 3
    check(kernel, shifted, [x, y], "f32", ("random",))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_reach_their_row(value: float) -> None:
    (x,) = arguments("f32", ((3, LENGTH),))
    x[0, 20000], x[1] = value, value
    check(compiled(softmax, [x]), softmax, [x], "f32", ("random",))


def test_a_sum_that_starts_elsewhere_and_maxima_that_others_read() -> None:
    def both(x: Any) -> Any:
        top = x.max(-1)
        return jnp.exp(x - top[:, None]).sum(-1), top, x - top[:, None]

    (x,) = arguments("f32", ((2, LENGTH),))
    kernel = compiled(both, [x])
    top = x.max(-1)
    wanted = (np.exp(x.astype("f8") - top[:, None]).sum(-1), top, x - top[:, None])
    for got, total in zip(run_gpu(kernel, [x], order="random"), wanted, strict=True):
        np.testing.assert_allclose(got, total, rtol=2e-6)


@pytest.mark.parametrize(
    ("shape", "numerics", "most"),
    [
        ((2, 16384), "default", 8),  # short
        ((80, LENGTH), "default", 0),  # rows enough
        ((2, 36871), "default", 2),  # a prime
        ((2, LENGTH), "strict", 2),
    ],
)
def test_other_rows_are_not_split(shape: tuple[int, int], numerics: str, most: int) -> None:
    (x,) = arguments("f32", (shape,))
    kernel = compiled(softmax, [x], numerics=numerics)
    assert blocks(kernel)[0] <= (most or shape[0])


def test_dynamic_rows_have_a_block_each() -> None:
    def flat(x: Any) -> Any:
        return jax.nn.softmax(x.reshape(2, -1), -1)

    (size,) = jax.export.symbolic_shape("s")
    kind = jax.ShapeDtypeStruct((2, 4096, size), np.float32)
    text = jax.export.export(jax.jit(flat), platforms=["cpu"])(kind).mlir_module()
    canonical = canonicalize(text.encode(), "stablehlo", "default")
    types = ArgSpec(canonical.symbolic_args)
    kernel = compile_spec(canonical.spec_text, types, "sm_90", CompileOptions(), lambda _: None)
    (x,) = arguments("f32", ((2, 4096, 10),))
    assert kernel.interface.gpu_launches[0].grid[0] == "2"
    check(kernel, flat, [x], "f32", ("random",))


def test_strict_softmax_has_the_bits_of_the_cpu() -> None:
    (x,) = arguments("f32", ((1, 32768),))
    gpu, cpu = (compiled(softmax, [x], target, "strict") for target in ("sm_90", "x86-64-v3"))
    np.testing.assert_array_equal(run_gpu(gpu, [x])[0], Kernel(cpu)(x)[0])


def test_parts_fill_the_gpu_but_are_not_short() -> None:
    for length, parts in ((32768, 16), (131072, 64), (1 << 20, 256)):
        kernel = compiled(softmax, [np.broadcast_to(np.float32(0), (1, length))])
        assert blocks(kernel) == [parts, parts]


@needs_ptxas
@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_of_parts_do_not_spill(target: str) -> None:
    for function, dtype, shapes, _ in CASES:
        ptx = compiled(function, arguments(dtype, shapes), target).artifacts["ptx"].decode()
        _, resources = assemble_ptx(ptx, target)
        assert all(usage.spill_bytes == 0 for usage in resources.values()), function
