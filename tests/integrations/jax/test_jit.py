"""``kcache_grpc.jax.jit`` beside ``jax.jit``: results, types, trees, signatures, fallbacks."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc.jax import Jitted, jit
from kcache_grpc.local_files import KcacheWarning

jax: Any = pytest.importorskip("jax")
jnp: Any = jax.numpy

#: Both sum in f32, in another order.
RELATIVE, ABSOLUTE = 1e-5, 1e-6


def assert_same(actual: Any, expected: Any) -> None:
    """The same tree of arrays of the same types; values within the tolerance of f32."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert isinstance(ours, jax.Array)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert getattr(ours, "weak_type", False) == getattr(theirs, "weak_type", False)
        if jax.dtypes.issubdtype(ours.dtype, jax.dtypes.prng_key):
            ours, theirs = jax.random.key_data(ours), jax.random.key_data(theirs)
        np.testing.assert_allclose(
            np.asarray(ours, np.float64), np.asarray(theirs, np.float64), RELATIVE, ABSOLUTE
        )


def assert_like_jax(function: Callable[..., Any], client: kcache.Client, *args: Any, **kwargs: Any) -> Jitted:
    """Compile ``function`` without fallback and compare it with ``jax.jit``, in two calls."""
    jitted = jit(function, client=client, fallback="error")
    for _ in range(2):
        assert_same(jitted(*args, **kwargs), jax.jit(function)(*args, **kwargs))
    assert len(jitted.kernels) == 1
    return jitted


def layer(parameters: dict[str, Any], x: Any) -> dict[str, Any]:
    y = jax.nn.gelu(x @ parameters["w"] + parameters["b"])
    return {"y": y, "norm": jnp.sqrt((y * y).sum())}


def parameters() -> dict[str, Any]:
    return {
        "w": jax.random.normal(jax.random.key(1), (6, 4)),
        "b": jax.random.normal(jax.random.key(2), (4,)),
        "unused": jnp.ones(3),
    }


def test_trees_of_arrays(client: kcache.Client) -> None:
    assert_like_jax(layer, client, parameters(), jnp.arange(12.0).reshape(2, 6))
    assert_like_jax(lambda x, y=None: (x, [x + 1], y), client, jnp.ones(3), y=None)


def test_numpy_arrays_and_numbers_get_the_types_of_jax(client: kcache.Client) -> None:
    wide = np.arange(6.0).reshape(2, 3)  # f64, which JAX reads as f32
    assert_like_jax(lambda x, y, n: (x.T + y, n * 2, n + 1.5), client, wide, np.ones((3, 2)).T[::-1].T, 3)
    assert_like_jax(lambda x, flag: jnp.where(flag, x, -x), client, jnp.ones(2), True)
    assert_like_jax(lambda x: x * 2, client, np.float32(3))
    unaligned = np.frombuffer(bytes(1) + np.arange(6, dtype=np.float32).tobytes(), np.float32, offset=1)
    assert_like_jax(lambda x: x + 1, client, unaligned)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "bool", "complex64"])
def test_dtypes(client: kcache.Client, dtype: str) -> None:
    x = jnp.asarray([[0, 1, 2], [3, 0, 5]], dtype)
    jitted = jit(lambda x: (x.T, x | x if dtype == "bool" else x + x), client=client, fallback="error")
    for ours, theirs in zip(jitted(x), jitted.by_jax(x), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_random_keys_are_arguments_and_results(client: kcache.Client) -> None:
    def step(key: Any, x: Any) -> tuple[Any, Any]:
        key, this = jax.random.split(key)
        return key, x + jax.random.normal(this, x.shape)

    assert_like_jax(step, client, jax.random.key(7), jnp.zeros((3, 5)))


def test_training_step(client: kcache.Client) -> None:
    def loss(parameters: dict[str, Any], x: Any) -> Any:
        return layer(parameters, x)["norm"]

    def step(parameters: dict[str, Any], x: Any) -> tuple[Any, Any]:
        value, gradients = jax.value_and_grad(loss)(parameters, x)
        return value, jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients)

    ours = theirs = parameters()
    x = jnp.arange(12.0).reshape(2, 6) / 7
    jitted = jit(step, client=client, donate_argnums=0, fallback="error")
    for _ in range(5):
        value, ours = jitted(ours, x)
        expected, theirs = jax.jit(step)(theirs, x)
        assert_same((value, ours), (expected, theirs))
    assert len(jitted.kernels) == 1


def test_static_arguments(client: kcache.Client) -> None:
    def power(x: Any, n: int, scale: float = 1.0) -> Any:
        return scale * x**n

    x = jnp.arange(3.0)
    choices: list[dict[str, Any]] = [{"static_argnums": 1}, {"static_argnums": (1, -1)}]
    for named in [*choices, {"static_argnames": ("n", "scale")}]:
        jitted = jit(power, client=client, fallback="error", **named)
        assert_same(jitted(x, 2), x**2)
        assert_same(jitted(x, n=3), x**3)
        assert_same(jitted(x, 2, scale=2.0), 2 * x**2)
    with pytest.raises(ValueError, match="hashable"):
        jit(power, client=client, static_argnums=1)(x, [2])


def test_a_signature_per_shape_dtype_and_setting(client: kcache.Client) -> None:
    jitted = jit(lambda x: x.sum(), client=client, fallback="error")
    for shape in ((2,), (3,), (3,)):
        assert jitted(jnp.ones(shape)) == shape[0]
    assert jitted(jnp.ones(3, jnp.int32)).dtype == jnp.int32
    assert len(jitted.kernels) == 3
    with jax.enable_x64(True):
        assert jitted(np.ones(3)).dtype == jnp.float64
    assert len(jitted.kernels) == 4
    jitted.clear_cache()
    assert jitted.kernels == ()


def test_reads_arrays_that_are_being_computed(client: kcache.Client) -> None:
    x = jnp.ones((700, 700))
    jitted = jit(lambda x: x + 1, client=client, fallback="error")
    jitted(x)
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 8, lambda _, y: y @ x / 700, x))
    assert_same(jitted(slow(x)), slow(x) + 1)


def test_results_outlive_the_kernel(client: kcache.Client) -> None:
    jitted = jit(lambda x: x * 3, client=client, fallback="error")
    results = [jitted(jnp.full(64, float(n))) for n in range(20)]
    del jitted
    gc.collect()
    assert [float(x[0]) for x in results] == [3.0 * n for n in range(20)]


def test_transformations_see_through(client: kcache.Client) -> None:
    jitted = jit(lambda x: jnp.sin(x).sum(), client=client)
    x = jnp.arange(4.0)
    assert_same(jax.grad(jitted)(x), jnp.cos(x))
    assert_same(jax.vmap(jitted)(x[:, None]), jnp.sin(x))
    assert_same(jax.jit(jitted)(x), jnp.sin(x).sum())
    assert jitted.kernels == ()
    assert not jitted.failures
    assert_same(jit(jax.grad(jitted), client=client, fallback="error")(x), jnp.cos(x))


def test_methods(client: kcache.Client) -> None:
    class Plain:
        @jit(client=client, static_argnums=0, fallback="error")
        def double(self, x: Any) -> Any:
            return 2 * x

    assert float(Plain().double(jnp.float32(3))) == 6


def test_bound_arguments_are_prepared_once(client: kcache.Client) -> None:
    jitted = jit(layer, client=client, bound_argnums=0, fallback="error")
    first, second = parameters(), jax.tree.map(lambda p: p * 2, parameters())
    x = jnp.arange(12.0).reshape(2, 6)
    for weights in (first, second, first):
        assert_same(jitted(weights, x), jax.jit(layer)(weights, x))
    (kernel,) = jitted.kernels
    assert kernel.manifest.options.bound


def test_bound_arguments_are_dropped_with_the_weights(client: kcache.Client) -> None:
    jitted = jit(layer, client=client, bound_argnums=0, fallback="error")
    x = jnp.arange(12.0).reshape(2, 6)
    for scale in range(1, 12):  # more sets than are kept, at addresses that are used again
        weights = jax.tree.map(lambda p, scale=scale: p * scale, parameters())
        assert_same(jitted(weights, x), jax.jit(layer)(weights, x))
        del weights
        gc.collect()


def test_bound_arguments_do_not_change(client: kcache.Client) -> None:
    jitted = jit(layer, client=client, bound_argnums=0)
    weights = jax.tree.map(np.asarray, parameters())
    with pytest.raises(kcache.ArgumentError, match="may change"):
        jitted(weights, jnp.ones((2, 6)))
    with pytest.raises(kcache.ArgumentError, match="by position"):
        jitted(parameters=parameters(), x=jnp.ones((2, 6)))


def test_errors_of_the_function_are_those_of_jax(client: kcache.Client) -> None:
    jitted = jit(lambda x, y: x @ y, client=client)
    with pytest.raises(TypeError, match="dot_general"):
        jitted(jnp.ones(3), jnp.ones(4))
    with pytest.raises(TypeError, match="abstract array"):
        jitted("text", jnp.ones(4))
    with pytest.raises(OverflowError):
        jit(lambda n: n + 1, client=client)(2**40)
    assert not jitted.failures


def test_falls_back_to_jax_with_a_warning(client: kcache.Client) -> None:
    def printing(x: Any) -> Any:
        jax.debug.callback(lambda _: None, x, ordered=True)
        return x + 1

    jitted = jit(printing, client=client)
    with pytest.warns(KcacheWarning, match="JAX runs printing itself: UnsupportedOp"):
        assert float(jitted(jnp.float32(1))) == 2
    assert float(jitted(jnp.float32(1))) == 2  # without another warning
    assert sum(jitted.failures.values()) == 1
    assert jitted.kernels == ()
    with pytest.raises(kcache.UnsupportedOp):
        jit(printing, client=client, fallback="error")(jnp.float32(1))


def test_weak_types(client: kcache.Client) -> None:
    def ones(x: Any, n: Any) -> tuple[Any, ...]:
        return jnp.full(x.shape, 1.0), n + 1, x * n

    jitted = assert_like_jax(ones, client, jnp.full(3, 2.0), 4)
    full, _, product = jitted(jnp.ones(3, jnp.bfloat16), 4)
    assert (full * jnp.ones(3, jnp.bfloat16)).dtype == product.dtype == jnp.bfloat16


def test_service_that_is_away(tmp_path: Any) -> None:
    with kcache.Client("127.0.0.1:1", cache_dir=tmp_path / "cache", strict=True, timeout=0.2) as client:
        jitted = jit(lambda x: x + 1, client=client)
        with pytest.warns(KcacheWarning, match="Unavailable"):
            assert float(jitted(jnp.float32(1))) == 2
        assert float(jitted(jnp.float32(1))) == 2


def test_threads_compile_a_signature_once(client: kcache.Client) -> None:
    jitted = jit(lambda x: jnp.tanh(x) * 3, client=client, fallback="error")
    barrier = threading.Barrier(8)

    def call(n: int) -> bool:
        x = jnp.full(32, float(n))
        barrier.wait()
        return all(bool(jnp.allclose(jitted(x), jnp.tanh(x) * 3)) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(8)))
    assert len(jitted.kernels) == 1


def test_disable_jit(client: kcache.Client) -> None:
    seen: list[Any] = []
    jitted = jit(lambda x: seen.append(x) or x, client=client)
    with jax.disable_jit():
        jitted(jnp.float32(4))
    assert float(seen[0]) == 4
    assert jitted.kernels == ()


@pytest.mark.parametrize(
    "arguments", [{"fallback": "eager"}, {"bound_argnums": -1}], ids=lambda arguments: next(iter(arguments))
)
def test_wrong_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(kcache.ArgumentError, match=next(iter(arguments))):
        jit(lambda x: x, **arguments)
