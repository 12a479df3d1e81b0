"""Attention as one launch: values over forms, sizes and extremes; what is rejected; what memory it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import ml_dtypes

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.llvm.cpus import tuning_for
from kcache_compiler.llvm.target import target_named
from kcache_compiler.lower.attention.blocking import attention_form
from kcache_compiler.lower.attention.loops import Run
from kcache_compiler.lower.attention.outline import outline_attention
from kcache_compiler.lower.cpu import outline
from kcache_compiler.lower.loops.launch import Outlined
from kcache_compiler.schedule.gemm_tiles import form_for
from kcache_compiler.shapes.formula import evaluate_text
from kcache_compiler.types import ArgSpec, CompileOptions
from tests.compiler.codegen_harness import Kernel, threaded_host

RANDOM = np.random.default_rng(20261122)
Function = Callable[..., Any]


def _target() -> str:
    """The widest of ours that runs here."""
    here = llvm.get_host_cpu_features()
    if not llvm.get_process_triple().startswith("x86_64"):
        return "aarch64"
    if here.get("avx512vl", False):
        return "x86-64-v4"
    return "x86-64-v3" if here.get("avx2", False) else "x86-64-v2"


def _kernel(
    function: Function,
    arrays: list[np.ndarray],
    target: str | None = None,
    numerics: str = "default",
    opened: bool = False,
) -> Kernel:
    text = jax.jit(function).lower(*arrays).as_text("stablehlo")
    canonical = canonicalize(text.encode(), "stablehlo", numerics)
    arguments = ArgSpec(canonical.symbolic_args) if opened else canonical.arg_spec
    options = CompileOptions(numerics=numerics)
    return Kernel(compile_spec(canonical.spec_text, arguments, target or _target(), options, lambda _: None))


def _arrays(queries: int, keys: int, depth: int, kind: Any = "f4", heads: int = 2) -> list[np.ndarray]:
    shapes = [(2, heads, queries, depth), (2, heads, keys, depth), (2, heads, keys, depth)]
    return [RANDOM.standard_normal(shape).astype(kind) for shape in shapes]


def _is_attention(kernel: Kernel) -> bool:
    return [launch.ops[0] for launch in kernel.interface.launches] == ["attention"]


def plain(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.swapaxes(-1, -2) * 0.25, -1) @ v


def causal(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2) * 0.25
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1) @ v


def far(q: Any, k: Any, v: Any) -> Any:
    """Causal with a number instead of -inf, and the keys beyond counted from the end."""
    scores = q @ k.swapaxes(-1, -2) * 0.25
    late = jnp.arange(scores.shape[-1]) > jnp.arange(scores.shape[-2])[:, None] + 5
    return jax.nn.softmax(jnp.where(late, -2e38, scores), -1) @ v


def biased(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return jax.nn.softmax(q @ k.swapaxes(-1, -2) + bias, -1) @ v


def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return jax.nn.softmax(jnp.where(mask, q @ k.swapaxes(-1, -2), -jnp.inf), -1) @ v


def guarded(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """As PyTorch has it: a row of nothing but masked keys gives zeros."""
    scores = jnp.where(mask, 0.0, -jnp.inf) + (q * 0.5) @ (k * 0.5).swapaxes(-1, -2)
    nothing = jnp.all(scores == -jnp.inf, -1, keepdims=True)
    return jnp.where(nothing, 0.0, jax.nn.softmax(scores, -1)) @ v


def windowed(q: Any, k: Any, v: Any, bias: Any, mask: Any) -> Any:
    """A bias of each head, and a mask of each batch that is a large number: Swin's shifted windows."""
    return jax.nn.softmax((bias + mask[:, None]) + q @ k.swapaxes(-1, -2) * 0.25, -1) @ v


def capped(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(30 * jnp.tanh(q @ k.swapaxes(-1, -2) / 30), -1) @ v


def late(q: Any, k: Any, v: Any) -> Any:
    """Divided by the sum of the weights last."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q * 0.25, k)
    weights = jnp.exp(scores - scores.max(-1, keepdims=True))
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v) / weights.sum(-1, keepdims=True)


def in_the_middle(q: Any, k: Any, v: Any) -> Any:
    """Heads beside the width: no transposition stands in memory."""
    q, k, v = (each.swapaxes(1, 2) for each in (q, k, v))
    return jax.nn.dot_product_attention(q, k, v).swapaxes(1, 2)


def grouped(q: Any, k: Any, v: Any) -> Any:
    """Two heads of queries for each of keys."""
    batch, heads, queries, depth = q.shape
    q = q.reshape(batch, heads // 2, 2, queries, depth)
    weights = jax.nn.softmax(jnp.einsum("bhgqd,bhkd->bhgqk", q, k) * 0.25, -1)
    return jnp.einsum("bhgqk,bhkd->bhgqd", weights, v)


def _extra(function: Function, queries: int, keys: int) -> list[np.ndarray]:
    if function is biased:
        return [RANDOM.standard_normal((2, 1, queries, keys)).astype("f4")]
    if function is windowed:
        mask = np.where(RANDOM.random((2, queries, keys)) < 0.6, 0, -100)
        return [RANDOM.standard_normal((2, queries, keys)).astype("f4"), mask.astype("f4")]
    return [RANDOM.random((queries, keys)) < 0.6] if function in (masked, guarded) else []


def _expected(function: Function, arrays: list[np.ndarray]) -> np.ndarray:
    """What JAX gives in f64, as one program: one operation at a time would be a program each."""
    wide = [array if array.dtype == bool else array.astype("f8") for array in arrays]
    with jax.enable_x64(True), np.errstate(all="ignore"):
        return np.asarray(jax.jit(function)(*wide))


def _agrees(kernel: Kernel, function: Function, arrays: list[np.ndarray], bound: float = 2e-6) -> None:
    result, expected = kernel(*arrays)[0].astype("f8"), _expected(function, arrays)
    finite = np.isfinite(expected)
    assert np.array_equal(result[~finite], expected[~finite], equal_nan=True)
    size = max(1.0, float(np.abs(expected[finite]).max(initial=0)))
    assert np.abs(result[finite] - expected[finite]).max(initial=0) <= bound * size


FORMS = [plain, causal, far, biased, windowed, masked, guarded, capped, late, in_the_middle]


@pytest.mark.sampled(18)
@pytest.mark.parametrize("function", FORMS, ids=lambda function: function.__name__)
def test_forms_are_one_launch(function: Function) -> None:
    arrays = _arrays(37, 53, 16) + _extra(function, 37, 53)
    kernel = _kernel(function, arrays)
    assert _is_attention(kernel)
    _agrees(kernel, function, arrays)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
def test_narrower_registers(target: str) -> None:
    if _target() == "aarch64" or (target, _target()) == ("x86-64-v3", "x86-64-v2"):
        pytest.skip(f"no {target} here")
    arrays = _arrays(70, 301, 24)
    for kind, bound in (("f4", 2e-6), ("f8", 1e-14)):
        narrow = [array.astype(kind) for array in arrays]
        with jax.enable_x64(True):
            kernel = _kernel(causal, narrow, target)
        assert _is_attention(kernel)
        _agrees(kernel, causal, narrow, bound)


@pytest.mark.long
def test_query_heads_share_keys() -> None:
    arrays = [_arrays(37, 53, 16, heads=4)[0], *_arrays(37, 53, 16)[1:]]
    kernel = _kernel(grouped, arrays)
    assert kernel.interface.launches[0].ops[0] == "attention"
    _agrees(kernel, grouped, arrays)


SIZES = [
    (1, 1, 1),
    (5, 7, 3),
    (12, 32, 64),
    (13, 257, 65),
    (250, 530, 40),
    (241, 1100, 33),
    (6, 40, 300),
    (3, 0, 4),
    (0, 5, 4),
]


@pytest.mark.parametrize(
    "function",
    [guarded, *(pytest.param(each, marks=pytest.mark.long) for each in (causal, plain))],
    ids=lambda function: function.__name__,
)
def test_open_sizes(function: Function) -> None:
    kernel = _kernel(function, _arrays(37, 53, 16) + _extra(function, 37, 53), opened=True)
    assert _is_attention(kernel)
    for queries, keys, depth in SIZES:
        arrays = _arrays(queries, keys, depth) + _extra(function, queries, keys)
        if keys == 0 and function is not plain:
            continue
        if keys == 0:
            assert (kernel(*arrays)[0] == 0).all()
            continue
        _agrees(kernel, function, arrays, 4e-6)


def test_no_scores_in_memory() -> None:
    arrays = _arrays(37, 53, 16)
    workspace = _kernel(causal, arrays, opened=True).interface.workspace
    sizes = {"s0": 2, "s1": 8, "s2": 64, "s3": 64, "s4": 64, "s5": 64, "workers": 1}
    for length in (1024, 65536):
        long = {**sizes, **dict.fromkeys(("s2", "s4"), length)}
        assert evaluate_text(workspace, {**sizes, **long}) < 1 << 20


def test_equal_attentions_of_a_program_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Outlined] = []

    def write(*arguments: Any) -> Outlined:
        written.append(outline_attention(*arguments))
        return written[-1]

    def layers(q: Any, k: Any, v: Any) -> Any:
        for _ in range(8):
            q = plain(q, k, v)
        return q

    arrays = _arrays(20, 24, 16)
    monkeypatch.setattr(outline, "outline_attention", write)
    kernel = _kernel(layers, arrays)
    assert [launch.ops[0] for launch in kernel.interface.launches] == ["attention"] * 8
    # Those that access buffers of the caller differ from the others.
    assert len(written) <= 4
    _agrees(kernel, layers, arrays, 1e-5)


def test_loads_of_other_buffers_between_its_operations() -> None:
    """A roll is a concatenation, whose body loads; one is between operations of the second."""

    def rolled(q: Any, k: Any, v: Any) -> Any:
        q = jnp.roll(plain(q, k, v), 3, axis=2)
        return jnp.roll(plain(q, k, v), -3, axis=2)

    arrays = _arrays(20, 24, 16)
    kernel = _kernel(rolled, arrays)
    assert sum(launch.ops[0] == "attention" for launch in kernel.interface.launches) == 2
    _agrees(kernel, rolled, arrays, 1e-5)


@pytest.mark.long
@pytest.mark.sampled(9)
@pytest.mark.parametrize("keys", [15, 16, 49, 64, 65, 127, 300])
def test_rows_that_fill_no_vectors(keys: int) -> None:
    for function in (plain, biased):
        arrays = _arrays(30, keys, 16) + _extra(function, 30, keys)
        kernel = _kernel(function, arrays)
        assert _is_attention(kernel)
        _agrees(kernel, function, arrays)


def test_extreme_scores() -> None:
    q, k, v = _arrays(40, 600, 16)
    kernels = {function: _kernel(function, [q, k, v]) for function in (plain, causal, far)}
    rising = q.copy()
    rising[..., 0], far_keys = 40, k.copy()
    far_keys[..., 0] = np.linspace(-50, 200, 600)  # each block has a new maximum, far above the one before
    for arrays in ([q * 1e4, k, v], [rising, far_keys, v], [-rising, far_keys, v], [q * 0, k, v]):
        for function, kernel in kernels.items():
            _agrees(kernel, function, [array.astype("f4") for array in arrays], 2e-3)


def test_infinite_and_missing_numbers_reach_what_they_reach_in_the_program() -> None:
    for function in (causal, far):
        arrays = _arrays(300, 600, 16)
        kernel = _kernel(function, arrays)
        for number in (np.inf, -np.inf, np.nan):
            for operand, place in ((0, 7), (1, 290), (2, 3), (2, 299), (2, 599)):
                changed = [array.copy() for array in arrays]
                changed[operand][0, 1, place, 2] = number
                _agrees(kernel, function, changed)


def test_rows_without_keys() -> None:
    arrays = _arrays(40, 600, 16)
    mask = RANDOM.random((40, 600)) < 0.5
    mask[3], mask[7, :520], mask[9, 100:] = False, False, False
    for function in (masked, guarded):
        kernel = _kernel(function, [*arrays, mask])
        result = kernel(*arrays, mask)[0]
        assert np.isnan(result[:, :, 3]).all() if function is masked else (result[:, :, 3] == 0).all()
        _agrees(kernel, function, [*arrays, mask])
        queries, keys, values = (array.copy() for array in arrays)
        queries[0, 0, [3, 11]], keys[0, 1, [5, 599]], keys[1, 1, 300] = np.nan, np.nan, np.inf
        _agrees(kernel, function, [queries, keys, values, mask])


def test_threads_change_no_bit() -> None:
    arrays = _arrays(500, 700, 32)
    kernel = _kernel(causal, arrays)
    alone = kernel(*arrays)[0]
    host = threaded_host(2)
    assert (kernel(*arrays, host=host)[0] == alone).all()
    assert host.calls


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_narrow_operands(kind: str) -> None:
    dtype = ml_dtypes.bfloat16 if kind == "bf16" else np.float16

    def function(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (each.astype(jnp.float32) for each in (q, k, v))
        return plain(q, k, v).astype(dtype)

    arrays = _arrays(37, 530, 16, dtype)
    kernel = _kernel(function, arrays)
    result = kernel(*arrays)[0].astype("f8")
    expected = _expected(plain, [array.astype("f4") for array in arrays])
    assert np.abs(result - expected).max() <= 2.0 ** (-8 if kind == "bf16" else -10) * np.abs(expected).max()


@pytest.mark.long
def test_jax_in_bf16() -> None:
    """Its products name an algorithm: factors in bf16, sums in f32."""
    arrays = [array.swapaxes(1, 2) for array in _arrays(37, 53, 16, ml_dtypes.bfloat16)]
    arrays = [np.ascontiguousarray(array) for array in arrays]
    mask = RANDOM.random((2, 1, 37, 53)) < 0.5

    def function(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, mask=mask)

    kernel = _kernel(function, [*arrays, mask])
    assert _is_attention(kernel)
    expected = _expected(function, [*(array.astype("f4") for array in arrays), mask])
    assert np.abs(kernel(*arrays, mask)[0].astype("f8") - expected).max() <= 2.0**-8 * np.abs(expected).max()


def test_slices_of_one_argument() -> None:
    """Queries, keys and values in one buffer."""

    def function(x: Any) -> Any:
        q, k, v = (
            x[:, :, part * 16 : part * 16 + 16].reshape(2, 90, 2, 8).swapaxes(1, 2) for part in range(3)
        )
        return plain(q, k, v)

    x = RANDOM.standard_normal((2, 90, 48)).astype("f4")
    kernel = _kernel(function, [x])
    assert "attention" in {launch.ops[0] for launch in kernel.interface.launches}
    _agrees(kernel, function, [x])


def _with_weights(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(q @ k.swapaxes(-1, -2), -1)
    return weights @ v, weights


def _with_other_shift(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2)
    weights = jnp.exp(scores - (scores * 0.5).max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def _of_columns(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.swapaxes(-1, -2), -2) @ v


def _gradient(q: Any, k: Any, v: Any) -> Any:
    return jax.grad(lambda *each: (plain(*each) ** 2).sum(), (0, 1, 2))(q, k, v)


def _plus_weights(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(q @ k.swapaxes(-1, -2), -1)
    return weights @ (v @ k.swapaxes(-1, -2)) + weights


def _times_sums(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2)
    weights = jnp.exp(scores - scores.max(-1, keepdims=True))
    sums = weights.sum(-1, keepdims=True)
    return (weights / sums) @ v * sums


def _over_sums_of_other_rows(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2)
    weights = jnp.exp(scores - scores.max(-1, keepdims=True))
    return (weights @ (v @ k.swapaxes(-1, -2))) / weights.sum(-1, keepdims=True).swapaxes(-1, -2)


def _undivided(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2)
    weights = jnp.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v, weights


OTHERS = [_with_weights, _with_other_shift, _of_columns, _gradient, _undivided]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("function", [*OTHERS, _plus_weights, _times_sums, _over_sums_of_other_rows])
def test_what_is_no_attention_stays_as_it_is(function: Function) -> None:
    arrays = _arrays(40, 40, 16)
    kernel = _kernel(function, arrays)
    assert "attention" not in {launch.ops[0] for launch in kernel.interface.launches}
    results = kernel(*arrays)
    expected = function(*arrays)
    for result, wanted in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert np.allclose(result, wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["i1", "i4"])
def test_indices_that_wrap_are_no_causal_mask(kind: str) -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.swapaxes(-1, -2)
        rows, keys = (jax.lax.broadcasted_iota("i4", scores.shape, axis).astype(kind) for axis in (2, 3))
        return jax.nn.softmax(jnp.where(keys <= rows, scores, -jnp.inf), -1) @ v

    arrays = _arrays(300, 600, 16)
    kernel = _kernel(function, arrays)
    assert "attention" in {launch.ops[0] for launch in kernel.interface.launches}
    _agrees(kernel, function, arrays)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scale", [1e-300, 1e-5, 1e16])
def test_queries_times_any_number(scale: float) -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax((q * scale) @ k.swapaxes(-1, -2), -1) @ v

    arrays = _arrays(20, 50, 16, "f8")
    with jax.enable_x64(True):
        kernel = _kernel(function, arrays)
    assert _is_attention(kernel)
    _agrees(kernel, function, arrays, 1e-14)


def test_strict_keeps_the_order_of_the_program() -> None:
    arrays = _arrays(37, 53, 16)
    kernel = _kernel(plain, arrays, numerics="strict")
    assert "attention" not in {launch.ops[0] for launch in kernel.interface.launches}
    _agrees(kernel, plain, arrays)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", ["causal", "mask", "bf16"])
def test_pytorch_writes_attention(form: str) -> None:
    torch = pytest.importorskip("torch")
    from torch.nn import functional

    from tests.compiler.torch_modules import Function as Module
    from tests.compiler.torch_modules import text_of

    def function(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=form == "causal")

    mask = RANDOM.random((40, 40)) < 0.5
    mask[3] = False
    masks = [mask] if form == "mask" else []
    narrow = ml_dtypes.bfloat16 if form == "bf16" else np.float32
    arrays = [array.astype(narrow).astype("f4") for array in _arrays(40, 40, 16)]
    kind = torch.bfloat16 if form == "bf16" else torch.float32
    tensors = [torch.from_numpy(array).to(kind) for array in arrays] + [
        torch.from_numpy(bias) for bias in masks
    ]
    canonical = canonicalize(text_of(Module(function), *tensors), "torch", "default")
    arguments = canonical.spec_text, canonical.arg_spec, _target(), CompileOptions()
    kernel = Kernel(compile_spec(*arguments, lambda _: None))
    assert _is_attention(kernel)
    expected = function(*[tensor.double() for tensor in tensors[:3]], *tensors[3:]).numpy()
    result = kernel(*[array.astype(narrow) for array in arrays], *masks)[0].astype("f8")
    assert np.abs(result - expected).max() <= (2e-2 if form == "bf16" else 2e-6)


@pytest.mark.parametrize(("target", "prefetches"), [("x86-64-v3", True), ("x86-64-v4", False)])
def test_what_the_next_batch_reads_is_prefetched_with_256_bit_vectors(target: str, prefetches: bool) -> None:
    tiles = form_for(
        target_named(target),
        tuning_for(target, "generic"),
        ("f32", "f32", "f32"),
        "f32",
        exact=False,
        vectors_only=True,
    )
    text = Run(attention_form(tiles)).text()
    assert ("llvm.intr.prefetch" in text) is prefetches
