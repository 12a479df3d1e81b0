"""A function of JAX, exported for the types of one call's arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kcache_grpc.errors import UnsupportedOp
from kcache_grpc.integrations.jax.arguments import Call, Leaf, is_key

jax: Any = import_module("jax")
_export: Any = import_module("jax.export")


class Untraceable(Exception):
    """The function failed while it was traced; JAX raises its error again."""


@dataclass(frozen=True)
class Result:
    """A leaf of the results. ``weak_type``: its abstract value, if that has a weak type. ``key_impl``: the
    implementation of its random keys, if it has any.
    """

    weak_type: Any
    key_impl: Any


@dataclass(frozen=True)
class Exported:
    """``program``: a ``jax.export.Exported`` of flat arguments and results, without random keys.

    ``kept``: the leaves that are arguments of its module. ``tree`` and ``results`` are those of the
    function's results.
    """

    program: Any
    kept: tuple[int, ...]
    tree: Any
    results: tuple[Result, ...]


def export(function: Callable[..., Any], call: Call) -> Exported:
    """Trace ``function`` for arguments like those of ``call``.

    Raises ``Untraceable`` for an error of the function, and ``UnsupportedOp`` if JAX cannot export it.
    """
    described: list[tuple[Any, list[Any]]] = []
    impls = [jax.random.key_impl(leaf) if _is_key(leaf) else None for leaf in call.leaves]

    def flat(*leaves: Any) -> tuple[Any, ...]:
        arrays = [
            leaf if impl is None else jax.random.wrap_key_data(leaf, impl=impl)
            for leaf, impl in zip(leaves, impls, strict=True)
        ]
        args, kwargs = call.rebuild(arrays)
        results, tree = jax.tree_util.tree_flatten(function(*args, **kwargs))
        described.append((tree, [jax.random.key_impl(x) if _is_key(x) else None for x in results]))
        return tuple(jax.random.key_data(x) if _is_key(x) else x for x in results)

    flat.__name__ = getattr(function, "__name__", "function")
    program = _exported(jax.jit(flat), [*map(data_of, call.leaves)])
    tree, result_impls = described[-1]
    results = tuple(
        Result(aval if getattr(aval, "weak_type", False) else None, impl)
        for aval, impl in zip(program.out_avals, result_impls, strict=True)
    )
    return Exported(program, tuple(program.module_kept_var_idx), tree, results)


def _exported(jitted: Any, arguments: Sequence[Any]) -> Any:
    try:
        jitted.trace(*arguments)
    except Exception as error:
        raise Untraceable from error
    try:
        return _export.export(jitted)(*arguments)  # the trace is in JAX's cache
    except Exception as error:  # such as NotImplementedError for effects, ValueError for custom calls
        raise UnsupportedOp(
            f"JAX cannot export the function: {type(error).__name__}: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def data_of(leaf: Leaf) -> Leaf:
    """The leaf, or the data of its random keys."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _is_key(leaf: Leaf) -> bool:
    return hasattr(leaf, "dtype") and is_key(leaf)
