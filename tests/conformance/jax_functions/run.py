"""Functions by name, and what becomes of each: exported, compiled, run, compared with JAX."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from kcache_compiler.errors import CompilerError
from tests.conformance.jax_functions.compare import apart
from tests.conformance.jax_functions.compiled import compiled
from tests.conformance.jax_functions.functions import of_lax, of_linalg, of_nn, of_numpy, of_rest
from tests.conformance.jax_functions.symbolic import NoExport, at_sizes
from tests.conformance.jax_functions.values import argument
from tests.ops.harness.reference import ReferenceError, ReferenceInterpreter

FUNCTIONS: dict[str, tuple[Any, ...]] = {
    f"{module}.{name}": case
    for module, cases in (
        ("jnp", of_numpy.CASES),
        ("jnp", of_rest.NUMPY),
        ("jnp", of_linalg.NUMPY),
        ("lax", of_lax.CASES),
        ("lax", of_rest.LAX),
        ("lax", of_linalg.LAX),
        ("nn", of_nn.NN),
        ("nn", of_rest.NN),
        ("special", of_nn.SPECIAL),
        ("special", of_rest.SPECIAL),
    )
    for name, case in cases.items()
}

#: How arguments are made: as the list says; in 64 bits; with NaN, infinities, zeros and large numbers among
#: them; as the list says, of a program whose sizes are symbols.
MODES = ("f32", "x64", "edges", "symbolic")

#: Programs in f64 that go through f32 on their way.
_ROUNDS = re.compile(r"stablehlo\.convert [^\n]*f64>\) -> tensor<[^>\n]*f32>")


class Outcome(NamedTuple):
    """``what``: forward or gradient. ``how``: right, rejected, wrong, or undefined (JAX has none)."""

    name: str
    what: str
    how: str
    why: str


class Undefined(Exception):
    """JAX has no such function: no gradient, no export."""


def outcomes(names: list[str], mode: str = "f32") -> Iterator[Outcome]:
    """What becomes of functions and of their gradients. ``x64`` needs JAX's flag of that name."""
    for name in names:
        for what in ("forward", "gradient"):
            yield Outcome(name, what, *_outcome(name, what, mode))


def _outcome(name: str, what: str, mode: str) -> tuple[str, str]:
    function, *specs = FUNCTIONS[name]
    arguments = [argument(name, index, spec, mode) for index, spec in enumerate(specs)]
    try:
        tried = function if what == "forward" else _gradient(function, arguments)
        if mode == "symbolic":
            why = at_sizes(name, tried, specs)
        elif mode == "edges":
            return _among_edges(tried, arguments)
        else:
            why = _differs(tried, arguments)
    except (Undefined, NoExport) as none:
        return "undefined", str(none)
    except CompilerError as error:
        return "rejected", f"{type(error).__name__}: {error}"
    return ("wrong", why) if why else ("right", "")


def _gradient(function: Callable[..., Any], arguments: list[Any]) -> Callable[..., Any]:
    """The gradient of a weighted sum of the results, by the floats that JAX differentiates by."""
    over = tuple(i for i, x in enumerate(arguments) if jnp.issubdtype(x.dtype, jnp.inexact))
    if not over:
        raise Undefined("no argument of floats")

    def total(*arrays: Any) -> Any:
        parts = [x for x in jax.tree.leaves(function(*arrays)) if jnp.issubdtype(x.dtype, jnp.inexact)]
        if not parts:
            raise Undefined("no result of floats")
        return sum(jnp.sum(jnp.real(x) * _weights(x.shape)) for x in parts)

    whole = jax.grad(total, argnums=over)
    if not (reason := _rejected(whole, arguments)):
        return whole
    some = tuple(i for i in over if not _rejected(jax.grad(total, argnums=i), arguments))
    if not some:
        raise Undefined(f"JAX: {reason}")
    return jax.grad(total, argnums=some)


def _rejected(gradient: Callable[..., Any], arguments: list[Any]) -> str:
    """Why JAX does not differentiate so; nothing where it does."""
    try:
        jax.eval_shape(gradient, *arguments)
    except (TypeError, ValueError, NotImplementedError) as error:
        return str(error).strip().split("\n", 1)[0][:200] or type(error).__name__
    return ""


def _weights(shape: tuple[Any, ...]) -> Any:
    """Numbers that make all elements count, each in its own way."""
    if all(isinstance(size, int) for size in shape):
        return np.cos(np.arange(np.prod(shape, dtype=int), dtype=np.float32)).reshape(shape)
    return jnp.cos(jnp.arange(math.prod(shape), dtype=jnp.float32)).reshape(shape)


def _differs(function: Callable[..., Any], arguments: list[Any]) -> str:
    jitted = jax.jit(lambda *arrays: jax.tree.leaves(function(*arrays)))
    exported = jax.export.export(jitted)(*arguments)
    got = compiled(exported)(arguments)
    widest = 4 if _ROUNDS.search(exported.mlir_module()) else 8
    return apart(got, [np.asarray(x) for x in jitted(*arguments)], widest=widest)


def _among_edges(function: Callable[..., Any], arguments: list[Any]) -> tuple[str, str]:
    """How and why. Right with a reason: numbers of the size of the largest agree, smaller ones not all."""
    jitted = jax.jit(lambda *arrays: jax.tree.leaves(function(*arrays)))
    exported = jax.export.export(jitted)(*arguments)
    if re.search("@lapack_|stablehlo.fft", exported.mlir_module()):
        raise Undefined("LAPACK or an FFT: where NaN and infinities spread is their algorithm's")
    got = compiled(exported)(arguments)
    together = [np.asarray(x) for x in jitted(*arguments)]
    if not (why := apart(got, together, singly=True)):
        return "right", ""
    with jax.disable_jit():  # XLA rewrites x * 0 and the like together, which one by one are NaN
        one_by_one = [np.asarray(x) for x in jax.tree.leaves(function(*arguments))]
    if not apart(got, one_by_one, singly=True):
        return "right", ""
    defined = _defined(exported, arguments, together)
    if defined is not None and not apart(got, defined, singly=True):
        return "right", ""
    if apart(got, together) and apart(got, one_by_one):
        return "wrong", why
    return "right", why


def _defined(exported: Any, arguments: list[Any], like: list[np.ndarray]) -> list[np.ndarray] | None:
    """What StableHLO's reference interpreter gives; nothing where it does not take the program."""
    interpreter = ReferenceInterpreter()
    kept = [np.ascontiguousarray(arguments[index]).tobytes() for index in exported.module_kept_var_idx]
    try:
        contents = interpreter.evaluate(exported.mlir_module(), kept)
    except ReferenceError:
        return None
    finally:
        interpreter.close()
    return [np.frombuffer(x, y.dtype).reshape(y.shape) for x, y in zip(contents, like, strict=True)]
