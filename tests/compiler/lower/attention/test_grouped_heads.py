"""Attention whose keys and values a program repeats for groups of query heads: one launch, nothing copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.shapes.formula import evaluate_text
from kcache_compiler.types import ArgSpec, CompileOptions
from tests.compiler.codegen_harness import Kernel, threaded_host

RANDOM = np.random.default_rng(20261122)


def _repeated(x: Any, times: int) -> Any:
    batch, heads, length, width = x.shape
    return jnp.broadcast_to(x[:, :, None], (batch, heads, times, length, width)).reshape(
        batch, heads * times, length, width
    )


def _softmax(scores: Any, v: Any) -> Any:
    return jax.nn.softmax(scores, -1) @ v


def both(q: Any, k: Any, v: Any) -> Any:
    times = q.shape[1] // k.shape[1]
    return _softmax(q @ _repeated(k, times).swapaxes(-1, -2) * 0.25, _repeated(v, times))


def causal(q: Any, k: Any, v: Any) -> Any:
    times = q.shape[1] // k.shape[1]
    scores = q @ _repeated(k, times).swapaxes(-1, -2) * 0.25
    masked = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return _softmax(masked, _repeated(v, times))


def biased(q: Any, k: Any, v: Any) -> Any:
    """What depends on the head is counted over all heads."""
    times = q.shape[1] // k.shape[1]
    scores = q @ _repeated(k, times).swapaxes(-1, -2) * 0.25
    slopes = jnp.arange(q.shape[1], dtype="f4")[:, None, None] * 0.125
    return _softmax(scores - slopes * jnp.arange(k.shape[2], dtype="f4"), _repeated(v, times))


def keys_alone(q: Any, k: Any, v: Any) -> Any:
    return _softmax(q @ _repeated(k, q.shape[1] // k.shape[1]).swapaxes(-1, -2) * 0.25, v)


def tiled(q: Any, k: Any, v: Any) -> Any:
    """Head 0, 1, 0, 1: not what is left out."""
    times = q.shape[1] // k.shape[1]
    k, v = (jnp.tile(x, (1, times, 1, 1)) for x in (k, v))
    return _softmax(q @ k.swapaxes(-1, -2) * 0.25, v)


def changed(q: Any, k: Any, v: Any) -> Any:
    """The copy of the keys is a result, too."""
    times = q.shape[1] // k.shape[1]
    every = _repeated(k, times)
    return _softmax(q @ every.swapaxes(-1, -2) * 0.25, _repeated(v, times)), every * 2


def _arrays(
    batch: int, heads: int, shared: int, queries: int, keys: int, width: int = 16
) -> list[np.ndarray]:
    shapes = [(batch, heads, queries, width), *[(batch, shared, keys, width)] * 2]
    return [RANDOM.standard_normal(shape).astype("f4") for shape in shapes]


def _kernel(text: str, opened: bool = False) -> Kernel:
    canonical = canonicalize(text.encode(), "stablehlo", "default")
    arguments = ArgSpec(canonical.symbolic_args) if opened else canonical.arg_spec
    return Kernel(compile_spec(canonical.spec_text, arguments, "x86-64-v3", CompileOptions(), lambda _: None))


def _text(function: Any, arrays: list[np.ndarray]) -> str:
    return jax.jit(function).lower(*arrays).as_text("stablehlo")


def _agrees(kernel: Kernel, function: Any, arrays: list[np.ndarray]) -> None:
    with jax.enable_x64(True):
        expected = jax.tree.leaves(jax.jit(function)(*(array.astype("f8") for array in arrays)))
    for host in (None, threaded_host()):
        for got, wanted in zip(kernel(*arrays, host=host), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("function", [both, causal, biased])
@pytest.mark.parametrize("sizes", [(2, 6, 3, 40, 300), (3, 4, 1, 7, 50)])
def test_nothing_is_copied(function: Any, sizes: tuple[int, ...]) -> None:
    arrays = _arrays(*sizes)
    kernel = _kernel(_text(function, arrays))
    launches = [launch.ops[0] for launch in kernel.interface.launches]
    assert "attention" in launches
    assert "copy" not in launches
    _agrees(kernel, function, arrays)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("function", [tiled, changed])
def test_other_copies_stay(function: Any) -> None:
    arrays = _arrays(2, 6, 2, 33, 70)
    kernel = _kernel(_text(function, arrays))
    assert "attention" in [launch.ops[0] for launch in kernel.interface.launches]
    _agrees(kernel, function, arrays)


def wide(q: Any, k: Any, v: Any) -> Any:
    """Each element of a key and of a value twice: its width is no axis over heads."""
    k, v = (jnp.broadcast_to(x[..., None], (*x.shape, 2)).reshape(*x.shape[:-1], -1) for x in (k, v))
    return _softmax(q @ k.swapaxes(-1, -2) * 0.25, v)


def test_repeats_inside_keys_stay() -> None:
    q, *_ = _arrays(2, 2, 2, 33, 70)
    _, k, v = _arrays(2, 2, 2, 33, 70, 8)
    kernel = _kernel(_text(wide, [q, k, v]))
    assert "attention" in [launch.ops[0] for launch in kernel.interface.launches]
    _agrees(kernel, wide, [q, k, v])


def test_keys_alone_are_repeated() -> None:
    q, k, _ = _arrays(2, 6, 2, 33, 70)
    v = RANDOM.standard_normal((2, 6, 70, 24)).astype("f4")
    kernel = _kernel(_text(keys_alone, [q, k, v]))
    assert [launch.ops[0] for launch in kernel.interface.launches] == ["attention"]
    _agrees(kernel, keys_alone, [q, k, v])


@pytest.mark.long
def test_open_sizes() -> None:
    kernel = _kernel(_text(both, _arrays(2, 6, 2, 33, 70)), opened=True)
    assert [launch.ops[0] for launch in kernel.interface.launches] == ["attention"]
    small, large = ({f"s{n}": size for n in range(6)} | {"workers": 1} for size in (64, 256))
    workspace = kernel.interface.workspace
    assert evaluate_text(workspace, large) < 8 * evaluate_text(workspace, small)
    for batch, queries, keys in ((1, 5, 9), (3, 40, 700)):
        _agrees(kernel, both, _arrays(batch, 6, 2, queries, keys))


def test_pytorch_repeats() -> None:
    """Values are not copied; keys are, as they are multiplied by the root of the scale meanwhile."""
    torch = pytest.importorskip("torch")
    from tests.compiler.torch_modules import Function, text_of

    def function(q: Any, k: Any, v: Any) -> Any:
        batch, heads, length, width = k.shape
        k, v = (
            x[:, :, None].expand(batch, heads, 4, length, width).reshape(batch, heads * 4, length, width)
            for x in (k, v)
        )
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    arrays = _arrays(2, 8, 2, 33, 70)
    tensors = [torch.from_numpy(array) for array in arrays]
    canonical = canonicalize(text_of(Function(function), *tensors), "torch", "default")
    arguments = canonical.spec_text, canonical.arg_spec, "x86-64-v3", CompileOptions()
    kernel = Kernel(compile_spec(*arguments, lambda _: None))
    assert [launch.ops[0] for launch in kernel.interface.launches] == ["arith.mulf", "attention"]
    np.testing.assert_allclose(kernel(*arrays)[0], function(*tensors).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("batch", "heads", "shared"), [(1, 4, 2), (2, 6, 2), (2, 4, 1)])
def test_one_query_reads_what_is_repeated_in_place(batch: int, heads: int, shared: int) -> None:
    arrays = _arrays(batch, heads, shared, 1, 200)
    kernel = _kernel(_text(both, arrays))
    _agrees(kernel, both, arrays)
    repeated = 4 * batch * heads * 200 * 16
    assert evaluate_text(kernel.interface.workspace, {"workers": 1}) < repeated


@pytest.mark.sampled(9)
@pytest.mark.parametrize("function", [both, causal, keys_alone])
@pytest.mark.parametrize("queries", [2, 3, 4])
def test_few_queries_of_repeated_keys(function: Any, queries: int) -> None:
    arrays = _arrays(2, 4, 2, queries, 50)
    inputs = arrays if function is not keys_alone else [*arrays[:2], np.repeat(arrays[2], 2, 1)]
    _agrees(_kernel(_text(function, inputs)), function, inputs)
