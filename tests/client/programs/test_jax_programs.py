"""Programs of JAX in every form, and keyword inputs, through a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

import kcache_grpc as kcache
from kcache_grpc import ArgumentError
from kcache_grpc.programs.jax.export import argument_names
from tests.serving import ServerProcess

pytestmark = pytest.mark.issue(number=19, point=28)

WEIGHTS = {"w": np.arange(12, dtype="f").reshape(3, 4), "b": np.ones(3, "f")}
X, SCALE = np.arange(4, dtype="f"), np.float32(3)
EXPECTED = (WEIGHTS["w"] @ X - WEIGHTS["b"]) * SCALE


@jax.jit
def layer(weights: Any, x: Any, unused: Any, *, scale: Any) -> Any:
    return (weights["w"] @ x - weights["b"]) * scale


@pytest.fixture(scope="module")
def client(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kcache.Client]:
    cache = tmp_path_factory.mktemp("jax-programs") / "cache"
    with kcache.Client(server.address, cache_dir=cache, strict=True) as connected:
        yield connected


def test_a_lowered_function_meets_its_export(client: kcache.Client) -> None:
    lowered = layer.lower(WEIGHTS, X, X, scale=SCALE)
    kernel = client.compile(lowered)
    np.testing.assert_allclose(kernel(WEIGHTS["b"], WEIGHTS["w"], X, SCALE)[0], EXPECTED, 1e-6)
    exported = client.compile(jax.export.export(layer)(WEIGHTS, X, X, scale=SCALE))
    assert (exported.key, exported.origin) == (kernel.key, "remote")
    assert client.lookup(lowered) == client.retrieve(kernel.key)


def test_a_jitted_function_with_example_arguments(client: kcache.Client) -> None:
    kernel = client.compile(layer, args=(WEIGHTS, X, X), kwargs={"scale": SCALE})
    (result,) = kernel(WEIGHTS["b"], WEIGHTS["w"], x=X, scale=SCALE)
    np.testing.assert_allclose(result, EXPECTED, 1e-6)
    shapes = jax.ShapeDtypeStruct((5,), np.float32)
    (result,) = client.compile(jax.jit(jnp.cumsum), args=[shapes])(np.ones(5, "f"))
    np.testing.assert_array_equal(result, [1, 2, 3, 4, 5])


def test_names_are_those_of_the_function_and_not_of_the_first_one(client: kcache.Client) -> None:
    for names in ("ab", "cd"):
        first, second = names
        function = eval(f"lambda {first}, {second}: {first} - {second}")
        kernel = client.compile(jax.jit(function), args=(X, X))
        (result,) = kernel(**{second: X, first: 3 * X})
        np.testing.assert_array_equal(result, 2 * X)


def test_donated_arguments_are_read_alone(client: kcache.Client) -> None:
    function = jax.jit(lambda x: x + 1, donate_argnums=0)
    before = X.copy()
    (result,) = client.compile(function.lower(X))(before)
    np.testing.assert_array_equal(result, X + 1)
    np.testing.assert_array_equal(before, X)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda kernel: kernel(X, X, z=X), "no input 'z'; it has x, y"),
        (lambda kernel: kernel(X, x=X), "'x' was passed by position and by name"),
        (lambda kernel: kernel(y=X), "input 'x' was not passed"),
        (lambda kernel: kernel(X, X, y=X), "'y' was passed by position and by name"),
        (lambda kernel: kernel(X, X, X, y=X), "takes 2 arguments, got 4"),
        (lambda kernel: kernel(X, y=np.ones(3, "f")), "argument 1 .*y"),
    ],
)
def test_wrong_keywords(client: kcache.Client, call: Any, message: str) -> None:
    kernel = client.compile(jax.jit(lambda x, y: x * y), args=(X, X))
    with pytest.raises(ArgumentError, match=message):
        call(kernel)
    np.testing.assert_array_equal(kernel(y=X, x=X)[0], X * X)


def test_what_is_no_jitted_function(client: kcache.Client) -> None:
    with pytest.raises(
        ArgumentError, match=r"a jitted function is a program with example arguments: pass args="
    ):
        client.compile(layer)
    with pytest.raises(ArgumentError, match="example arguments of a jitted function"):
        client.compile("text", args=(X,))


def test_inputs_of_text_are_named_by_position(client: kcache.Client) -> None:
    text = """
func.func @main(%left: tensor<2xf32>, %right: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.subtract %left, %right : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""
    for kernel in (client.compile(text), client.compile(text)):
        for _ in range(2):
            (result,) = kernel(arg1=np.ones(2, "f"), arg0=np.full(2, 3, "f"))
            np.testing.assert_array_equal(result, [2, 2])


def test_names_that_a_module_does_not_have() -> None:
    assert argument_names("module {}") == ()
    assert argument_names('func.func public @main(%arg0: f32 loc("x"), %arg1: f32 loc("x")) -> f32') == ()
    assert argument_names("func.func public @main(%arg0: f32 loc(unknown)) -> f32") == ()
    assert argument_names('#l = loc("x")\nfunc.func public @main(%arg0: f32 loc(#l)) -> f32') == ("x",)


def test_large_constants_stay_here_and_names_hold(client: kcache.Client) -> None:
    weights = np.random.default_rng(0).standard_normal((800, 500)).astype("f")
    function = jax.jit(lambda x, y: (x + y) @ weights)
    x = np.ones((2, 800), "f")
    for program in (function.lower(x, x), jax.export.export(function)(x, x)):
        kernel = client.compile(program)
        np.testing.assert_allclose(kernel(y=x, x=2 * x)[0], 3 * x @ weights, 1e-4, 1e-3)
