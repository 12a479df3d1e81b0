"""Functions by name, and what becomes of each: exported, compiled, run, compared with JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import CompilerError
from kcache_compiler.types import CompileOptions
from tests.compiler.codegen_harness import NUMPY, Kernel
from tests.jax_functions import of_lax, of_nn, of_numpy
from tests.jax_functions.values import made

FUNCTIONS: dict[str, tuple[Any, ...]] = {
    f"{module}.{name}": case
    for module, cases in (
        ("jnp", of_numpy.CASES),
        ("lax", of_lax.CASES),
        ("nn", of_nn.NN),
        ("special", of_nn.SPECIAL),
    )
    for name, case in cases.items()
}

#: Largest difference that counts as right: relative to the number, and to the result's largest number.
RELATIVE, OF_LARGEST = 2e-5, 5e-6


class Outcome(NamedTuple):
    """``what``: forward or gradient. ``how``: right, refused, wrong, or undefined (JAX has none)."""

    name: str
    what: str
    how: str
    why: str


def outcomes(names: list[str]) -> Iterator[Outcome]:
    for name in names:
        function, *given = FUNCTIONS[name]
        arguments = [made(name, index, one) for index, one in enumerate(given)]
        for what, tried in (("forward", function), ("gradient", _gradient(function, arguments))):
            how, why = ("undefined", "") if tried is None else _ended(tried, arguments)
            yield Outcome(name, what, how, why)


def _gradient(function: Callable[..., Any], arguments: list[Any]) -> Callable[..., Any] | None:
    """The gradient by all arguments of floats, of a weighted sum of the results; None where JAX has none."""
    over = tuple(i for i, x in enumerate(arguments) if x.dtype == np.float32)

    def total(*given: Any) -> Any:
        parts = [x for x in jax.tree.leaves(function(*given)) if jnp.issubdtype(x.dtype, jnp.inexact)]
        if not parts:
            raise TypeError("no result of floats")
        return sum(jnp.sum(jnp.real(x) * _weights(x.shape)) for x in parts)

    if not over:
        return None
    gradient = jax.grad(total, argnums=over)
    try:
        jax.eval_shape(gradient, *arguments)
    except (TypeError, ValueError, NotImplementedError):
        return None
    return gradient


def _weights(shape: tuple[int, ...]) -> Any:
    return np.cos(np.arange(np.prod(shape, dtype=int), dtype=np.float32)).reshape(shape)


def _ended(function: Callable[..., Any], arguments: list[Any]) -> tuple[str, str]:
    jitted = jax.jit(lambda *given: jax.tree.leaves(function(*given)))
    expected = [np.asarray(x) for x in jitted(*arguments)]
    exported = jax.export.export(jitted)(*arguments)
    kept = [arguments[index] for index in exported.module_kept_var_idx]
    try:
        found = canonicalize(exported.mlir_module_serialized, "stablehlo")
        compiled = compile_spec(
            found.spec_text, found.arg_spec, "x86-64-v3", CompileOptions(), lambda _: None
        )
    except CompilerError as error:
        return "refused", str(error)
    constants = [np.frombuffer(c.content, NUMPY[c.type.dtype]).reshape(c.type.dims) for c in found.constants]
    got = Kernel(compiled)(*kept, *constants)
    why = next((text for text in map(_apart, got, expected) if text), "")
    return ("wrong", why) if why else ("right", "")


def _apart(got: np.ndarray, expected: np.ndarray) -> str:
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{got.dtype}{got.shape} should be {expected.dtype}{expected.shape}"
    if got.dtype.kind in "iub":
        return "" if np.array_equal(got, expected) else f"{_where(got != expected, got, expected)}"
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    x, y = got.astype(wide), expected.astype(wide)
    finite = np.abs(y[np.isfinite(y)])
    scale = float(finite.max()) if finite.size else 0.0
    narrow = 400.0 if got.dtype.itemsize == 2 else 1.0
    near = np.isclose(x, y, rtol=RELATIVE * narrow, atol=OF_LARGEST * narrow * scale, equal_nan=True)
    return "" if near.all() else _where(~near, x, y)


def _where(off: np.ndarray, got: np.ndarray, expected: np.ndarray) -> str:
    at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(off)))
    count = int(np.count_nonzero(off))
    return f"{count} differ, at {at}: {np.atleast_1d(got)[at]} should be {np.atleast_1d(expected)[at]}"
