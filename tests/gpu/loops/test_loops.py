"""Loops whose turns depend on data: one launch of one block, run against the same on this CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
from jax import lax
from jax import numpy as jnp

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.types import ArgSpec, CompiledKernel, CompileOptions
from kcache_grpc.model.target import host_target
from tests.compiler.codegen_harness import NUMPY, Kernel, compile_text, kernel_of
from tests.gpu.emulation.test_generated_mutants import WAIT
from tests.gpu.harness.emulate import ORDERS, EmulationError
from tests.gpu.harness.programs import Array
from tests.gpu.harness.run import run_gpu

TARGET = "sm_90"
Function: TypeAlias = Callable[..., Any]
_RNG = np.random.default_rng(7)
MATRIX = _RNG.standard_normal((5, 5), np.float32)
ROW = _RNG.standard_normal(37, np.float32)


def swaps(x: Any, n: Any) -> Any:
    """Each value takes the other's place, and a row that the counter names is replaced."""

    def body(carried: Any) -> Any:
        i, a, b = carried
        return i + 1, lax.dynamic_update_slice(b, a[:1] * 2, (i, 0)), a

    return lax.while_loop(lambda c: c[0] < n, body, (jnp.int32(0), x, x + 1))


def converges(x: Any) -> Any:
    """Until the sum of squares is small: a reduction to one number decides."""
    return lax.while_loop(lambda a: jnp.sum(a * a) > 1e-3, lambda a: a * 0.5 - 0.01 * jnp.roll(a, 1), x)


def powers(matrix: Any, n: Any) -> Any:
    """Products and norms in the loop."""

    def body(_: Any, v: Any) -> Any:
        w = matrix @ v
        return w / jnp.max(jnp.abs(w))

    return lax.fori_loop(0, n, body, jnp.ones(matrix.shape[0], matrix.dtype))


def collatz(n: Any) -> Any:
    """Scalars alone, with a branch."""

    def body(carried: Any) -> Any:
        k, steps = carried
        return lax.cond(k % 2 == 0, lambda k: k // 2, lambda k: 3 * k + 1, k), steps + 1

    return lax.while_loop(lambda c: c[0] > 1, body, (n, jnp.int32(0)))


def nested(x: Any, n: Any) -> Any:
    """The inner loop's turns depend on the outer one's counter and on data."""

    def outer(i: Any, a: Any) -> Any:
        b = lax.while_loop(lambda b: jnp.max(b) < i.astype(b.dtype), lambda b: b + 0.75, a)
        return lax.fori_loop(0, i, lambda j, c: c.at[j].set(c[j] - i), b)

    return lax.fori_loop(0, n, outer, x)


def sorted_and_scattered(x: Any, n: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        return jnp.sort(a).at[jnp.array([0, 3, 3])].add(1.5) * jnp.where(i % 2 == 0, -1, 1)

    return lax.fori_loop(0, n, body, x)


def unwanted(x: Any, n: Any) -> Any:
    """The loop would never end where its branch is not taken."""
    safe = lambda x: lax.while_loop(lambda a: a[0] != 0, lambda a: a - 1, x)  # noqa: E731
    return lax.cond(n > 0, safe, lambda x: x * 3, x), lax.switch(n, [safe, lambda x: x + n, lambda x: -x], x)


def unwanted_inside(x: Any, n: Any) -> Any:
    """The same in another loop, whose condition has a loop of its own."""

    def counted(a: Any) -> Any:
        return lax.while_loop(lambda b: b != 0, lambda b: b - 1, a)

    def body(carried: Any) -> Any:
        i, a = carried
        return i + 1, lax.cond(i > 2, lambda a: a + counted(i), lambda a: a - 1, a)

    def more(carried: Any) -> Any:
        return counted(jnp.abs(carried[0])) + carried[0] < n

    return lax.cond(n < 6, lambda x: lax.while_loop(more, body, (jnp.int32(-1), x)), lambda x: (n, x), x)


def many_turns(x: Any) -> Any:
    """A known number, of more copies than a launch list should have."""
    return lax.fori_loop(0, 3000, lambda i, a: a * 0.999 + i % 3, x)


def overwritten(x: Any, n: Any) -> Any:
    """The number that says which row is also what the loop counts down: it is asked for after that."""
    row, m = lambda m: lax.dynamic_slice(x, (m, 0), (1, x.shape[1])), n + 1
    left, a = lax.while_loop(lambda c: c[0] > 0, lambda c: (c[0] - 1, c[1] * 2), (m, row(m)))
    return row(m) + a, left


def empty(x: Any, n: Any) -> Any:
    return lax.fori_loop(0, n, lambda i, a: jnp.concatenate([a[:, 1:], a[:, :1]], 1) + i, x[:0]), n


def _ints(*values: int) -> list[np.ndarray[Any, Any]]:
    return [np.int32(value).reshape(()) for value in values]


CASES: dict[str, tuple[Function, list[list[Any]]]] = {
    "swaps": (swaps, [[np.tile(ROW, (3, 1)), n] for n in _ints(-1, 0, 1, 4)]),
    "converges": (converges, [[ROW], [ROW * np.nan], [np.zeros_like(ROW)]]),
    "powers": (powers, [[MATRIX, n] for n in _ints(0, 3)]),
    "collatz": (collatz, [[n] for n in _ints(0, 1, 27)]),
    "nested": (nested, [[ROW[:5], n] for n in _ints(0, 3)]),
    "sorted and scattered": (sorted_and_scattered, [[ROW, n] for n in _ints(0, 3)]),
    "unwanted": (
        unwanted,
        [[np.array([5, 1], np.int32), n] for n in _ints(0, 1, 2)]
        + [[np.array([0, 1], np.int32), _ints(-3)[0]]],
    ),
    "unwanted inside": (unwanted_inside, [[np.array([5, 1], np.int32), n] for n in _ints(4, 7)]),
    "overwritten": (
        overwritten,
        [[np.tile(ROW, (4, 1)) * np.arange(4, dtype="f4")[:, None], n] for n in _ints(0, 2)],
    ),
    "many turns": (many_turns, [[ROW[:3]]]),
    "empty": (empty, [[np.tile(ROW, (3, 1)), n] for n in _ints(0, 2)]),
}
#: On every change; all of them, in every order of threads, in the long run.
QUICK = ("swaps", "converges", "unwanted inside")


def _compiled(name: str, target: str, opened: bool = False) -> tuple[CompiledKernel, list[Array]]:
    """The kernel of a case, and its constants."""
    function, calls = CASES[name]
    text = jax.jit(function).lower(*calls[0]).as_text("stablehlo")
    canonical = canonicalize(text.encode(), "stablehlo", "strict")
    arguments = ArgSpec(canonical.symbolic_args) if opened else canonical.arg_spec
    options = CompileOptions(numerics="strict")
    kernel = compile_spec(canonical.spec_text, arguments, target, options, lambda _: None)
    shapes = [[int(dim) for dim in constant.type.dims] for constant in canonical.constants]
    pairs = zip(canonical.constants, shapes, strict=True)
    return kernel, [
        np.frombuffer(constant.content, NUMPY[constant.type.dtype]).reshape(shape)
        for constant, shape in pairs
    ]


def _check(name: str, orders: tuple[str, ...], opened: bool = False) -> None:
    kernel, constants = _compiled(name, TARGET, opened)
    cpu = Kernel(_compiled(name, host_target().isa)[0])
    assert "while" in [launch.ops[0] for launch in kernel.interface.gpu_launches]
    for arrays in CASES[name][1]:
        wanted = cpu(*arrays, *constants)
        for order in orders:
            for got, other in zip(run_gpu(kernel, arrays, constants, order), wanted, strict=True):
                np.testing.assert_array_equal(got, other, f"{name} {arrays} {order}")


@pytest.mark.parametrize("name", QUICK)
def test_a_loop_gives_what_a_cpu_gives(name: str) -> None:
    _check(name, ("random",))


@pytest.mark.long
@pytest.mark.parametrize("opened", [False, True], ids=["given sizes", "all sizes"])
@pytest.mark.parametrize("name", list(CASES))
def test_every_loop_gives_what_a_cpu_gives(name: str, opened: bool) -> None:
    _check(name, ORDERS, opened)


#: Twice as many new states of a generator as turns, and the sum of its bits: ``main`` stores a state itself.
_NEW = "algorithm = ALGORITHM : (tensor<2xui64>) -> (tensor<2xui64>, tensor<17xi64>)"
STATES = f"""func.func @main(%a: tensor<2xui64>, %n: tensor<i32>) -> (tensor<2xui64>, tensor<17xi64>) {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %o:2 = stablehlo.rng_bit_generator %a, {_NEW}
  %r:3 = stablehlo.while(%i = %zero, %s = %o#0, %b = %o#1) : tensor<i32>, tensor<2xui64>, tensor<17xi64>
    cond {{
      %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    }} do {{
      %v:2 = stablehlo.rng_bit_generator %s, {_NEW}
      %c = stablehlo.add %b, %v#1 : tensor<17xi64>
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %v#0, %c : tensor<i32>, tensor<2xui64>, tensor<17xi64>
    }}
  return %r#1, %r#2 : tensor<2xui64>, tensor<17xi64>
}}"""


@pytest.mark.parametrize("algorithm", ["THREE_FRY", pytest.param("PHILOX", marks=pytest.mark.long)])
def test_elements_that_the_program_itself_stores_are_stored(algorithm: str) -> None:
    text = STATES.replace("ALGORITHM", algorithm)
    kernel, cpu = compile_text(text, TARGET), kernel_of(text)
    for turns, order in zip((0, 3), ORDERS, strict=False):
        arrays = [np.array([3, 2**64 - 5], np.uint64), np.array(turns, np.int32)]
        for got, wanted in zip(run_gpu(kernel, arrays, order=order), cpu(*arrays), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_barriers_of_a_loop_are_missed() -> None:
    """Three of six part threads that touch only what is theirs."""
    kernel, constants = _compiled("swaps", TARGET)
    ir = kernel.artifacts["llvm"].decode()
    waits, missed = list(WAIT.finditer(ir)), 0
    for wait in waits:
        without = {**kernel.artifacts, "llvm": (ir[: wait.start()] + ir[wait.end() :]).encode()}
        try:
            run_gpu(replace(kernel, artifacts=without), CASES["swaps"][1][-1], constants, "random")
        except EmulationError as error:
            missed += "race" in str(error) or "uninitialized" in str(error)
    assert (len(waits), missed) == (6, 3)


@pytest.mark.long
def test_more_values_than_a_launch_has_parameters_are_rejected() -> None:
    def turn(carried: Any) -> Any:
        return carried[0] + 1, [value * 2 for value in carried[1]]

    def many(n: Any, *values: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < n, turn, (jnp.int32(0), list(values)))

    arrays = [*_ints(3), *[np.ones(3, np.float32)] * 600]
    text = jax.jit(many).lower(*arrays).as_text("stablehlo")
    canonical = canonicalize(text.encode(), "stablehlo", "strict")
    with pytest.raises(UnsupportedOp, match=r"takes \d+ buffers and sizes, and a GPU passes 512"):
        compile_spec(canonical.spec_text, canonical.arg_spec, TARGET, CompileOptions(), lambda _: None)
