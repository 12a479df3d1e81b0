"""Attention on a GPU is one launch: forms, types, sizes that fit no tile, masks that leave tiles out."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import ml_dtypes

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.compile import lower_module
from kcache_compiler.types import ArgSpec, CompiledKernel, CompileOptions
from tests.compiler.lower.attention import test_attention as forms
from tests.gpu.emulation.test_ptxas import needs_ptxas
from tests.gpu.harness.emulate import ORDERS, EmulationError
from tests.gpu.harness.programs import Array, narrow_attention
from tests.gpu.harness.run import run_gpu

NARROW = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
_BOUND = {"f2": 2e-3, "f4": 3e-6, "f8": 1e-12}


def _kernel(
    function: forms.Function, arrays: list[Array], target: str, opened: bool, deep: bool = True
) -> CompiledKernel:
    """``opened``: all sizes are dynamic, the last one of each argument only if ``deep``."""
    with jax.enable_x64(True):
        text = jax.jit(function).lower(*arrays).as_text("stablehlo")
    canonical = canonicalize(text.encode(), "stablehlo", "default")
    arguments = ArgSpec(canonical.symbolic_args) if opened else canonical.arg_spec
    if not deep:
        pairs = zip(arguments.args, arrays, strict=True)
        arguments = ArgSpec(
            tuple(replace(kind, dims=(*kind.dims[:-1], array.shape[-1])) for kind, array in pairs)
        )
    assert not canonical.constants
    return compile_spec(canonical.spec_text, arguments, target, CompileOptions(), lambda _: None)


def random_arguments(function: forms.Function, sizes: tuple[int, int, int], kind: str) -> list[Array]:
    """Queries, keys and values of one image and two heads, and what else ``function`` takes, such as a mask.

    ``sizes`` are those of queries, keys and depth; ``kind`` is NumPy's code of their type.
    """
    queries, keys, depth = sizes
    rng = np.random.default_rng(sum(sizes))
    arrays = [rng.standard_normal((1, 2, n, depth)).astype(kind) for n in (queries, keys, keys)]
    arrays += [
        extra[:1].astype(kind if extra.dtype != bool else bool)
        for extra in forms._extra(function, queries, keys)
    ]
    if function in (forms.masked, forms.guarded):
        arrays[3] = rng.random((queries, keys)) < 0.6
        arrays[3][0] = function is forms.masked
    return arrays


def _check(
    function: forms.Function,
    sizes: tuple[int, int, int],
    kind: str = "f4",
    opened: bool = False,
    orders: tuple[str, ...] = ("random",),
    target: str = "sm_90",
    change: Any = None,
) -> CompiledKernel:
    arrays = random_arguments(function, sizes, kind)
    if change is not None:
        change(arrays)
    kernel = _kernel(function, arrays, target, opened)
    ops = [launch.ops[0] for launch in kernel.interface.gpu_launches]
    assert ops[-1:] == ["attention"]
    assert len(ops) <= 1 + (function is forms.guarded or change is not None)  # masks of rows and keys
    wanted = forms._expected(function, arrays)
    for seed, order in enumerate(orders, 1):
        (got,) = run_gpu(kernel, arrays, order=order, seed=seed)
        assert (np.isnan(got) == np.isnan(wanted)).all()
        error = np.nanmax(np.abs(got.astype("f8") - wanted), initial=0)
        assert error <= _BOUND[kind] * np.nanmax(np.abs(wanted), initial=1), f"{error} {kind} {sizes}"
    return kernel


@pytest.mark.sampled(54)
@pytest.mark.parametrize(
    ("function", "sizes", "opened"),
    [(forms.causal, (70, 75, 20), False), (forms.masked, (33, 40, 17), True)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_attention_is_one_launch(function: forms.Function, sizes: tuple[int, int, int], opened: bool) -> None:
    _check(function, sizes, opened=opened)


_FORMS = [
    *(forms.plain, forms.causal, forms.far, forms.biased, forms.masked, forms.guarded, forms.capped),
    *(forms.late, forms.in_the_middle, forms.grouped),
]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "opened", "sizes", "order"),
    [
        ("f4", False, (70, 131, 24), "forward"),
        ("f4", True, (33, 40, 17), "reverse"),
        ("f8", False, (33, 40, 16), "reverse"),
        ("f8", True, (35, 67, 24), "forward"),
    ],
)
@pytest.mark.parametrize("function", _FORMS, ids=lambda function: function.__name__)
def test_every_form(
    function: forms.Function, kind: str, opened: bool, sizes: tuple[int, int, int], order: str
) -> None:
    if function is forms.in_the_middle and kind == "f8":
        pytest.skip(
            "JAX computes these scores in f32, which is no attention that the CPU takes as one launch"
        )
    _check(function, sizes, kind, opened, (order,))


def _grouped_arguments(element: str, keys: int = 40, depth: int = 24) -> list[Array]:
    """Queries of two images and four heads, keys and values of two heads."""
    rng = np.random.default_rng(keys + depth)
    shapes = [(2, 4, 33, depth), *[(2, 2, keys, depth)] * 2]
    kind = NARROW.get(element) or {"f32": np.float32, "f64": np.float64}[element]
    return [rng.standard_normal(shape).astype(kind) for shape in shapes]


def _grouped(q: Any, k: Any, v: Any) -> Any:
    """Rows have two axes, of heads and of queries; weights are rounded to the type of the values."""
    batch, heads, queries, depth = q.shape
    q = q.reshape(batch, heads // 2, 2, queries, depth)
    wide = jnp.promote_types(q.dtype, "float32")
    scores = jnp.einsum("bhgqd,bhkd->bhgqk", q, k, preferred_element_type=wide) * 0.25
    weights = jax.nn.softmax(scores, -1).astype(q.dtype)
    return jnp.einsum("bhgqk,bhkd->bhgqd", weights, v, preferred_element_type=wide).astype(q.dtype)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("element", "keys", "depth", "deep"),
    [("bf16", 70, 40, True), ("f32", 40, 17, True), ("bf16", 70, 72, False), ("f32", 40, 48, False)],
)
def test_grouped_heads_of_dynamic_sizes(element: str, keys: int, depth: int, deep: bool) -> None:
    """Depths that are not whole pieces, dynamic or static."""
    arrays = _grouped_arguments(element, keys, depth)
    kernel = _kernel(_grouped, arrays, "sm_90", True, deep)
    assert [launch.ops[0] for launch in kernel.interface.gpu_launches] == ["attention"]
    assert (b"mma.sync" in kernel.artifacts["ptx"]) == (element in NARROW)
    wanted = forms._expected(_grouped, arrays)
    (got,) = run_gpu(kernel, arrays, order="random")
    error, largest = (np.abs(array).max() for array in (got.astype("f8") - wanted, wanted))
    assert error <= {"bf16": 2e-2, "f32": 3e-6}[element] * largest


@needs_ptxas
@pytest.mark.sampled(3)
@pytest.mark.parametrize("element", ["bf16", "f32", "f64"])
def test_attention_of_dynamic_sizes_does_not_spill(element: str) -> None:
    _assembles(_grouped, _grouped_arguments(element), "sm_90")


@needs_ptxas
@pytest.mark.long
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_attention_of_dynamic_sizes_does_not_spill_on_any_architecture(target: str) -> None:
    for element in ("f16", "bf16", "f32", "f64"):
        _assembles(_grouped, _grouped_arguments(element), target)
    for kind, sizes in (("f4", (33, 40, 17)), ("f8", (35, 67, 24))):
        for function in _FORMS:
            _assembles(function, random_arguments(function, sizes, kind), target)


@needs_ptxas
@pytest.mark.long
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("depth", [64, 128, 200])
def test_grouped_heads_of_a_static_depth_do_not_spill(depth: int, target: str) -> None:
    for element in ("f16", "bf16", "f32", "f64"):
        _assembles(_grouped, _grouped_arguments(element, depth=depth), target, deep=False)


def _assembles(function: forms.Function, arrays: list[Array], target: str, deep: bool = True) -> None:
    kernel = _kernel(function, arrays, target, True, deep)
    spills = {
        launch.entry: launch.resources.spill_bytes
        for launch in kernel.interface.gpu_launches
        if launch.resources is not None
    }
    assert set(spills.values()) == {0}, (function, arrays[0].dtype, spills)


@pytest.mark.long
@pytest.mark.parametrize("target", ["sm_75", "sm_80"])
@pytest.mark.parametrize("sizes", [(40, 70, 2), (70, 40, 65), (40, 40, 128), (40, 70, 129), (130, 33, 200)])
def test_depths_beyond_one_piece(sizes: tuple[int, int, int], target: str) -> None:
    _check(forms.causal, sizes, target=target, orders=("forward", "reverse"))


def _infinite_far(arrays: list[Array]) -> None:
    arrays[2][0, 0, 100, 3] = np.inf


def _infinite_score(arrays: list[Array]) -> None:
    arrays[1][0, 1, 120, 2] = np.inf


@pytest.mark.sampled(3)
@pytest.mark.parametrize("change", [_infinite_far, _infinite_score])
def test_masked_keys_that_are_not_finite_are_not_left_out(change: Any) -> None:
    """An infinite value times a weight of zero is NaN, in rows that do not reach it as well.

    So is an infinite score with -inf added.
    """

    def added(q: Any, k: Any, v: Any) -> Any:
        late = jax.numpy.arange(k.shape[2]) > jax.numpy.arange(q.shape[2])[:, None]
        scores = q @ k.swapaxes(-1, -2) + jax.numpy.where(late, -jax.numpy.inf, 0.0)
        return jax.nn.softmax(scores, -1) @ v

    _check(added, (70, 128, 8), change=change)


def test_a_tile_of_keys_is_left_out_only_if_its_values_are_finite() -> None:
    text = narrow_attention(1, 1, 40, 140, 16, "f32", causal=True)
    kernel = lower_module(text, 3, "sm_90", CompileOptions(), lambda _: None)
    assert b"vote.any" in kernel.artifacts["llvm"]
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, 1, count, 16)).astype("f4") for count in (40, 140, 140))
    v[0, 0, 130, 3] = np.inf
    (got,) = run_gpu(kernel, [q, k, v], order="random")
    assert np.isnan(got[..., 3]).all()
    assert np.isfinite(np.delete(got, 3, -1)).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(("rows", "waits"), [(16, 2), (17, 3)])
def test_lanes_wait_before_scores_are_overwritten_and_before_weights_are_read(
    rows: int, waits: int, number: int
) -> None:
    text = narrow_attention(1, 1, rows, 32, 16, "f32", causal=False)
    kernel = lower_module(text, 3, "sm_90", CompileOptions(), lambda _: None)
    wait = "call void @llvm.nvvm.bar.warp.sync(i32 -1)"
    parts = kernel.artifacts["llvm"].decode().split(wait)
    assert len(parts) == waits + 1  # the third is before results
    changed = "".join(part + wait * (at not in (number, waits)) for at, part in enumerate(parts))
    mutant = replace(kernel, artifacts={**kernel.artifacts, "llvm": changed.encode()})
    rng = np.random.default_rng(4)
    arrays = [rng.standard_normal((1, 1, count, 16)).astype("f4") for count in (rows, 32, 32)]
    run_gpu(kernel, arrays, order="random")
    with pytest.raises(EmulationError, match="race"):
        run_gpu(mutant, arrays, order="random")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_narrow_attention_uses_matrix_instructions(element: str) -> None:
    _check_narrow(element, (1, 2, 70, 100, 24), True, ("random",))


@pytest.mark.long
@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("causal", [False, True])
def test_narrow_attention(element: str, causal: bool) -> None:
    sizes = [
        (1, 1, 16, 8, 8),
        (2, 1, 64, 64, 64),
        (1, 2, 65, 130, 128),
        (1, 1, 40, 70, 200),
        (1, 3, 30, 17, 9),
    ]
    for shape in sizes:
        _check_narrow(element, shape, causal, ORDERS)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("element", "target", "estimated"),
    [("f16", "sm_90", True), ("bf16", "sm_80", True), ("bf16", "sm_75", False), ("f32", "sm_90", False)],
)
def test_exponentials_are_estimates_where_weights_are_rounded(
    element: str, target: str, estimated: bool
) -> None:
    text = narrow_attention(1, 2, 64, 64, 64, element, True)
    ptx = lower_module(text, 3, target, CompileOptions(), lambda _: None).artifacts["ptx"]
    assert (b"ex2.approx.ftz.f32" in ptx) == estimated
    assert b"kcm_" not in ptx


def test_strict_numerics_take_no_estimates() -> None:
    text = narrow_attention(1, 2, 64, 64, 64, "bf16", True)
    kernel = lower_module(text, 3, "sm_90", CompileOptions("strict"), lambda _: None)
    assert b"ex2.approx" not in kernel.artifacts["ptx"]


def _rounded_weights(q: Any, k: Any, v: Any) -> Any:
    scores = jax.numpy.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type="float32") * 0.25
    weights = jax.nn.softmax(scores, -1).astype(q.dtype)
    return jax.numpy.einsum("bhqk,bhkd->bhqd", weights, v, preferred_element_type="float32").astype(q.dtype)


def _in_a_loop(q: Any, k: Any, v: Any, turns: Any) -> Any:
    return jax.lax.fori_loop(0, turns, lambda _, rows: _rounded_weights(rows, k, v), q)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_weights_of_an_attention_that_is_no_launch_of_its_own(element: str) -> None:
    """They are those of the program, rounded once."""
    rng = np.random.default_rng(8)
    q, k = (2 * rng.standard_normal((1, 2, count, 16)) for count in (8, 16))
    arrays = [array.astype(NARROW[element]) for array in (q, k, np.broadcast_to(np.eye(16), (1, 2, 16, 16)))]
    turns = np.array(1, "i4")
    kernel = _kernel(_in_a_loop, [*arrays, turns], "sm_90", False)
    assert all(launch.ops[0] != "attention" for launch in kernel.interface.gpu_launches)
    assert b"ex2.approx.ftz.f32" not in kernel.artifacts["ptx"]
    (got,) = run_gpu(kernel, [*arrays, turns], order="random")
    scores = arrays[0].astype("f8") @ arrays[1].astype("f8").swapaxes(-1, -2) * 0.25
    below = scores - scores.max(-1, keepdims=True)
    wanted = np.exp(below) / np.exp(below).sum(-1, keepdims=True)
    rounding, least = {"f16": (2**-11, 2**-25), "bf16": (2**-8, 0)}[element]
    in_f32 = 2 * (4 - 2 * below.min()) + 2 * 16  # units of 2^-24: weights, their sum, and scores
    assert (np.abs(got.astype("f8") - wanted) <= wanted * (rounding + in_f32 * 2**-24) + least).all()


@pytest.mark.parametrize("number", [np.nan, np.inf], ids=["nan", "infinity"])
def test_estimates_of_weights_that_are_no_numbers(number: float) -> None:
    """NaN and infinity in a key reach the rows that they reach in the program, and no others."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 1, count, 16)).astype(NARROW["bf16"]) for count in (40, 70, 70))
    k[0, 0, 9, 3] = number
    text = narrow_attention(1, 1, 40, 70, 16, "bf16", True)
    kernel = lower_module(text, 3, "sm_90", CompileOptions(), lambda _: None)
    (got,) = run_gpu(kernel, [q, k, v], order="random")
    scores = q.astype("f8") @ k.astype("f8").swapaxes(-1, -2) * 0.25
    scores = np.where(np.tril(np.ones((40, 70), bool)), scores, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights / weights.sum(-1, keepdims=True) @ v.astype("f8")
    assert (np.isnan(got.astype("f8")) == np.isnan(wanted)).all()
    assert np.nanmax(np.abs(got.astype("f8") - wanted)) <= 2e-2


def test_narrow_attention_by_plain_arithmetic() -> None:
    """A tile of one and a half chunks of 16 bytes for each thread is loaded all the same."""
    _check_narrow("f16", (1, 1, 40, 70, 48), False, ("random",), "sm_75")


def _check_narrow(
    element: str,
    sizes: tuple[int, int, int, int, int],
    causal: bool,
    orders: tuple[str, ...],
    target: str = "sm_90",
) -> None:
    batch, heads, queries, keys, depth = sizes
    rng = np.random.default_rng(sum(sizes))
    shapes = [(batch, heads, count, depth) for count in (queries, keys, keys)]
    arrays = [rng.standard_normal(shape).astype(NARROW[element]) for shape in shapes]
    text = narrow_attention(*sizes, element, causal)
    kernel = lower_module(text, 3, target, CompileOptions(), lambda _: None)
    assert [launch.ops[0] for launch in kernel.interface.gpu_launches] == ["attention"]
    assert (b"mma.sync" in kernel.artifacts["ptx"]) == (target == "sm_90")
    q, k, v = (array.astype("f8") for array in arrays)
    scores = q @ k.swapaxes(-1, -2) * depth**-0.5
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights / weights.sum(-1, keepdims=True) @ v
    for seed, order in enumerate(orders, 1):
        (got,) = run_gpu(kernel, arrays, order=order, seed=seed)
        error = np.abs(got.astype("f8") - wanted).max()
        assert error <= {"f16": 2e-3, "bf16": 2e-2}[element] * max(1, np.abs(wanted).max()), (
            f"{error} {sizes}"
        )
