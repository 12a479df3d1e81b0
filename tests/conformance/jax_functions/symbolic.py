"""Programs whose sizes are symbols: exported once, compiled once, compared with JAX at several sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import numpy as np

from tests.conformance.jax_functions.compare import apart
from tests.conformance.jax_functions.compiled import compiled
from tests.conformance.jax_functions.values import Given, argument

#: What is added to each size of the list, run by run.
GROWN = (0, 1, 6)


class NoExport(Exception):
    """JAX does not export the function with sizes that are symbols, or there are none."""


def at_sizes(name: str, function: Callable[..., Any], specs: list[Given]) -> str:
    """What is wrong, and at which sizes; nothing where all agree.

    Raises ``NoExport``, and what the compiler raises.
    """
    sizes = sorted({size for spec in specs for size in spec.shape if size > 1})
    if not sizes:
        raise NoExport("no sizes that may be symbols")
    jitted = jax.jit(lambda *arguments: jax.tree.leaves(function(*arguments)))
    exported = _exported(jitted, specs, sizes)
    program = compiled(exported)
    for grown in GROWN:
        arguments = [argument(name, index, _grown(spec, grown)) for index, spec in enumerate(specs)]
        try:
            expected = [np.asarray(x) for x in jitted(*arguments)]
        except (TypeError, ValueError, IndexError):
            continue  # the function takes the sizes of the list only
        got = program(arguments)
        why = apart(got, expected)
        if why and got and _shapes(got) != _shapes(expected):  # what JAX itself decides by symbols
            why = apart(got, [np.asarray(x) for x in exported.call(*arguments)])
        if why:
            return f"sizes {grown} larger: {why}"
    return ""


def _exported(jitted: Any, specs: list[Given], sizes: list[int]) -> Any:
    """Equal sizes of the list are one symbol."""
    scope = jax.export.SymbolicScope([f"n{size} >= {size}" for size in sizes])
    names = {size: jax.export.symbolic_shape(f"n{size}", scope=scope)[0] for size in sizes}
    types = [jax.ShapeDtypeStruct([names.get(size, size) for size in g.shape], g.dtype) for g in specs]
    try:
        return jax.export.export(jitted)(*types)
    except Exception as error:
        raise NoExport(f"JAX: {str(error).strip().split(chr(10), 1)[0][:200]}") from error


def _shapes(arrays: Sequence[Any]) -> list[tuple[int, ...]]:
    return [tuple(array.shape) for array in arrays]


def _grown(spec: Given, by: int) -> Given:
    shape = tuple(size + by if size > 1 else size for size in spec.shape)
    return spec._replace(shape=shape)
