"""What becomes of a case: exported, compiled, run, compared with JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from kcache_compiler.errors import CompilerError
from tests.conformance.jax_functions.compare import apart
from tests.conformance.jax_functions.compiled import compiled
from tests.conformance.jax_harnesses import symbols
from tests.conformance.jax_harnesses.agree import differs
from tests.conformance.jax_harnesses.cases import CASES

#: The sizes of the batch in the mode ``batched``.
SIZES = (3, 1, 5)
_DTYPES = {"": "float32", "i32": "int32", "u32": "uint32", "bool": "bool"}


class NoOracle(Exception):
    """JAX itself does not run or export the case."""


def outcome(name: str, mode: str) -> tuple[str, str]:
    """How, and why. How: right, rejected, wrong, or undefined, of which JAX gives no result."""
    judge = {"static": _static, "held": _held, "batched": _batched, "symbols": _symbols}[mode]
    try:
        why = judge((symbols.CASES if mode == "symbols" else CASES)[name])
    except NoOracle as error:
        return "undefined", str(error)
    except CompilerError as error:
        return "rejected", f"{type(error).__name__}: {error}"
    return ("wrong", why) if why else ("right", "")


def _static(case: Any) -> str:
    arguments = _arguments(case, 0)
    function = _flat(case.dyn_fun)
    expected = _expected(function, arguments)
    got = compiled(_exported(function, arguments))(arguments)
    return differs(case, got, expected, arguments)


def _held(case: Any) -> str:
    arguments = _arguments(case, 0)
    expected = _expected(_flat(case.dyn_fun), arguments)
    exported = _exported(_flat(lambda: case.dyn_fun(*arguments)), [])
    return differs(case, compiled(exported)([]), expected, arguments)


def _batched(case: Any) -> str:
    single = [_arguments(case, seed) for seed in range(max(SIZES))]
    function = _flat(jax.vmap(case.dyn_fun))
    (size,) = jax.export.symbolic_shape("b")
    types = [jax.ShapeDtypeStruct((size, *x.shape), x.dtype) for x in single[0]]
    exported = _exported(function, types)
    program = compiled(exported)
    for count in SIZES:
        arguments = [np.stack(column) for column in zip(*single[:count], strict=True)]
        why = differs(case, program(arguments), _expected(function, arguments), arguments, 1)
        if why:
            return f"batch of {count}: {why}"
    return ""


def _symbols(case: symbols.Case) -> str:
    used = "".join(shape_text.partition(":")[0] for shape_text in case.shapes)
    least = [f"{name} >= {min(row[i] for row in case.sizes)}" for i, name in enumerate("bc") if name in used]
    scope = jax.export.SymbolicScope(least)
    pairs = [text.partition(":")[::2] for text in case.shapes]
    dtypes = [np.dtype(_DTYPES[dtype.strip()]) for _, dtype in pairs]
    shapes = [jax.export.symbolic_shape(shape.strip(), scope=scope) for shape, _ in pairs]
    function = _flat(case.function)
    exported = _exported(function, [jax.ShapeDtypeStruct(*spec) for spec in zip(shapes, dtypes, strict=True)])
    program = compiled(exported)
    rng = np.random.RandomState(0)
    for b, c in case.sizes:
        sizes = [
            jax.export.symbolic_shape(shape.strip().replace("b", str(b)).replace("c", str(c)))
            for shape, _ in pairs
        ]
        arguments = [_random(rng, *spec) for spec in zip(sizes, dtypes, strict=True)]
        why = apart(program(arguments), _expected(function, arguments))
        if why:
            return f"b = {b}, c = {c}: {why}"
    return ""


def _random(rng: np.random.RandomState, shape: Any, dtype: np.dtype[Any]) -> np.ndarray:
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(shape), dtype)
    return np.asarray(rng.randint(0, 2 if dtype.kind == "b" else 4, shape), dtype)


def _arguments(case: Any, seed: int) -> list[np.ndarray]:
    return [np.asarray(x) for x in case.dyn_args_maker(np.random.RandomState(seed))]


def _flat(function: Callable[..., Any]) -> Any:
    def leaves(*arguments: Any) -> list[Any]:
        return [_raw(x) for x in jax.tree.leaves(function(*arguments))]

    return jax.jit(leaves)


def _raw(x: Any) -> Any:
    """Keys of random numbers as the integers that they are."""
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def _expected(function: Any, arguments: Sequence[Any]) -> list[np.ndarray]:
    try:
        return [np.asarray(x) for x in function(*arguments)]
    except Exception as error:
        raise NoOracle(f"JAX: {_line(error)}") from error


def _exported(function: Any, arguments: Sequence[Any]) -> Any:
    try:
        return jax.export.export(function, platforms=["cpu"])(*arguments)
    except Exception as error:
        raise NoOracle(f"JAX: {_line(error)}") from error


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().split(chr(10), 1)[0][:200]}"
