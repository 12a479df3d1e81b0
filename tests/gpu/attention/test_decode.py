"""Attention of few rows: keys are divided among warps and blocks, query heads share keys, in any order."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.llvm.gpu_targets import GPU_TARGETS
from kcache_compiler.llvm.ptxas import assemble_ptx
from kcache_compiler.types import ArgSpec, CompiledKernel, CompileOptions
from tests.compiler.codegen_harness import NUMPY
from tests.compiler.lower.attention import test_attention as forms
from tests.gpu.emulation.test_ptxas import needs_ptxas
from tests.gpu.harness.emulate import ORDERS, EmulationError
from tests.gpu.harness.programs import Array
from tests.gpu.harness.run import run_gpu

BOUND = {"f16": 2e-3, "bf16": 2e-2, "f32": 3e-6, "f64": 1e-12}
TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120")
#: Images, heads of queries and of keys, queries, keys, depth.
Sizes = tuple[int, int, int, int, int, int]


def grouped(q: Any, k: Any, v: Any) -> Any:
    """Softmax in f32; keys and values are repeated for the query heads of a group."""
    times = q.shape[1] // k.shape[1]
    k, v = (jnp.repeat(each, times, 1) if times > 1 else each for each in (k, v))
    wide = jnp.promote_types(q.dtype, "float32")
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=wide) * 0.25
    weights = jax.nn.softmax(scores, -1).astype(q.dtype)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v, preferred_element_type=wide).astype(q.dtype)


def masked(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
    """With a mask of padding, which leaves a row without keys, and a bias."""
    wide = jnp.promote_types(q.dtype, "float32")
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=wide) * 0.25 + bias
    weights = jax.nn.softmax(jnp.where(mask[:, None, None], scores, -jnp.inf), -1).astype(q.dtype)
    result = jnp.einsum("bhqk,bhkd->bhqd", weights, v, preferred_element_type=wide)
    return jnp.maximum(result, -0.5).astype(q.dtype)


def arguments(sizes: Sizes, dtype: str) -> list[Array]:
    images, heads, key_heads, queries, keys, depth = sizes
    rng = np.random.default_rng(sum(sizes))
    shapes = [(images, heads, queries, depth), *[(images, key_heads, keys, depth)] * 2]
    return [rng.standard_normal(shape).astype(NUMPY[dtype]) for shape in shapes]


def expected(function: forms.Function, arrays: list[Array]) -> Array:
    return forms._expected(function, arrays)  # pyright: ignore[reportPrivateUsage]


def compiled(
    function: forms.Function,
    arrays: list[Array],
    target: str = "sm_90",
) -> CompiledKernel:
    with jax.enable_x64(True):
        text = jax.jit(function).lower(*arrays).as_text("stablehlo")
    canonical = canonicalize(text.encode(), "stablehlo", "default")
    return compile_spec(canonical.spec_text, canonical.arg_spec, target, CompileOptions(), lambda _: None)


def launches(kernel: CompiledKernel) -> list[str]:
    return [launch.ops[0] for launch in kernel.interface.gpu_launches]


def check(
    kernel: CompiledKernel, function: forms.Function, arrays: list[Array], dtype: str, orders: tuple[str, ...]
) -> None:
    wanted = expected(function, arrays)
    for seed, order in enumerate(orders, 1):
        (got,) = run_gpu(kernel, arrays, order=order, seed=seed)
        assert (np.isnan(got.astype("f8")) == np.isnan(wanted)).all()
        error = np.nanmax(np.abs(got.astype("f8") - wanted), initial=0)
        assert error <= BOUND[dtype] * max(1.0, float(np.nanmax(np.abs(wanted)))), error


#: Type, sizes; one kernel each of MMA tiles and of FMA tiles, with and without shared heads.
CASES: tuple[tuple[str, Sizes], ...] = (
    ("bf16", (1, 8, 2, 1, 520, 64)),
    ("f16", (1, 2, 2, 5, 1030, 128)),
    ("f32", (1, 4, 1, 3, 515, 40)),
    ("f64", (1, 1, 1, 1, 600, 24)),
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("dtype", "sizes"), CASES)
def test_parts_of_the_keys_are_combined(dtype: str, sizes: Sizes) -> None:
    arrays = arguments(sizes, dtype)
    kernel = compiled(grouped, arrays)
    assert launches(kernel) == ["attention", "points"]
    assert (b"mma.sync" in kernel.artifacts["ptx"]) == (dtype in ("f16", "bf16"))
    check(kernel, grouped, arrays, dtype, ORDERS)


def test_query_heads_of_a_group_are_rows_of_one_tile() -> None:
    (_, eight), (_, two) = ((heads, arguments((1, heads, 2, 1, 512, 64), "bf16")) for heads in (8, 2))
    grids = [compiled(grouped, arrays).interface.gpu_launches[0].grid for arrays in (eight, two)]
    assert grids[0] == grids[1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_masks_that_leave_parts_or_rows_without_keys(dtype: str) -> None:
    arrays = arguments((3, 1, 1, 2, 600, 32), dtype)
    mask = np.zeros((3, 600), bool)
    mask[0, 400:], mask[1, 5] = True, True
    arrays += [mask, np.random.default_rng(1).standard_normal((1, 1, 2, 600)).astype("f4")]
    kernel = compiled(masked, arrays)
    assert launches(kernel)[-2:] == ["attention", "points"]
    wanted = expected(masked, arrays)
    assert np.isnan(wanted[2]).all()
    check(kernel, masked, arrays, dtype, ("random",))


def causal(q: Any, k: Any, v: Any) -> Any:
    """Most parts have masked keys alone."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type="float32") * 0.25
    reached = jnp.arange(k.shape[2]) <= jnp.arange(q.shape[2])[:, None] + 70
    weights = jax.nn.softmax(jnp.where(reached, scores, -jnp.inf), -1).astype(q.dtype)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v, preferred_element_type="float32").astype(q.dtype)


@pytest.mark.sampled(18)
@pytest.mark.parametrize(("dtype", "queries"), [("bf16", 16), ("f32", 5)])
def test_parts_beyond_a_causal_mask(dtype: str, queries: int) -> None:
    arrays = arguments((1, 1, 1, queries, 600, 32), dtype)
    kernel = compiled(causal, arrays)
    assert launches(kernel) == ["attention", "points"]
    assert b"vote.any" in kernel.artifacts["llvm"]
    check(kernel, causal, arrays, dtype, ("random",))


@pytest.mark.sampled(9)
@pytest.mark.parametrize("keys", [3, 70, 600])
def test_dynamic_numbers_of_keys_leave_parts_empty(keys: int) -> None:
    function = forms.plain
    arrays = arguments((1, 2, 2, 1, keys, 16), "f32")
    canonical = canonicalize(_text(function, arrays), "stablehlo", "default")
    dims = [list(kind.dims) for kind in canonical.arg_spec.args]
    for place in (1, 2):
        dims[place][2] = canonical.symbolic_args[1].dims[2]
    types = ArgSpec(
        tuple(
            replace(kind, dims=tuple(shape))
            for kind, shape in zip(canonical.arg_spec.args, dims, strict=True)
        )
    )
    kernel = compile_spec(canonical.spec_text, types, "sm_90", CompileOptions(), lambda _: None)
    assert launches(kernel) == ["attention", "points"]
    check(kernel, function, arrays, "f32", ("random",))


def _text(function: forms.Function, arrays: list[Array]) -> bytes:
    return jax.jit(function).lower(*arrays).as_text("stablehlo").encode()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "function",
    [forms.plain, forms.causal, forms.far, forms.biased, forms.masked, forms.guarded, forms.capped]
    + [forms.late, forms.in_the_middle, forms.grouped],
    ids=lambda function: function.__name__,
)
def test_every_form_in_parts(function: forms.Function) -> None:
    from tests.gpu.attention.test_attention import random_arguments

    arrays = random_arguments(function, (7, 600, 24), "f4")
    kernel = compiled(function, arrays)
    assert launches(kernel)[-2:] == ["attention", "points"]
    check(kernel, function, arrays, "f32", ("reverse", "random"))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("target", "keys", "heads", "parts"),
    [
        ("sm_90", 32768, 8, 32),
        ("sm_90", 32768, 1, 64),
        ("sm_90", 512, 8, 2),
        ("sm_90", 256, 8, 1),
        ("sm_90", 8192, 128, 1),
        ("sm_80", 8192, 32, 4),
        ("sm_120", 8192, 32, 8),
    ],
)
def test_the_number_of_parts(target: str, keys: int, heads: int, parts: int) -> None:
    """Two blocks a multiprocessor, parts of four steps and more, and at most 64."""
    arrays = [
        np.broadcast_to(array, (1, heads, n, 64))
        for array, n in ((np.float16(0), 1),)
        for n in (1, keys, keys)
    ]
    kernel = compiled(grouped, arrays, target)
    assert int(kernel.interface.gpu_launches[0].grid[0]) == parts * heads
    assert len(launches(kernel)) == 1 + (parts > 1)


def test_warps_wait_before_their_sums_are_combined() -> None:
    arrays = arguments((1, 1, 1, 2, 64, 16), "f32")
    kernel = compiled(grouped, arrays)
    ir = kernel.artifacts["llvm"].decode()
    (*_, last) = re.finditer(r"^ *call void @llvm\.nvvm\.barrier\.cta[^\n]*\n", ir, re.MULTILINE)
    changed = ir[: last.start()] + ir[last.end() :]
    mutant = replace(kernel, artifacts={**kernel.artifacts, "llvm": changed.encode()})
    run_gpu(kernel, arrays, order="random")
    with pytest.raises(EmulationError, match=r"race|uninitialized"):
        run_gpu(mutant, arrays, order="random")


@pytest.mark.sampled(2)
@needs_ptxas
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_decoding_does_not_spill(dtype: str) -> None:
    _assembles("sm_90", dtype, 128)


@needs_ptxas
@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("depth", [64, 128])
def test_decoding_does_not_spill_on_any_architecture(depth: int, dtype: str, target: str) -> None:
    _assembles(target, dtype, depth)


def _assembles(target: str, dtype: str, depth: int) -> None:
    assert target in GPU_TARGETS
    kernel = compiled(grouped, arguments((1, 4, 1, 2, 2048, depth), dtype), target)
    assert launches(kernel) == ["attention", "points"]
    _, resources = assemble_ptx(kernel.artifacts["ptx"].decode(), target)
    assert all(usage.spill_bytes == 0 for usage in resources.values())
