"""How each contender makes a program callable: ``build(program, arguments)`` returns the call.

A call returns all results, flattened; in programs that update a state it passes the one of the call before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from benchmarks.jax_programs.catalog import Arguments, Program

Call = Callable[[], list[Any]]
Build = Callable[[Program, Arguments], Call]


class Absent(Exception):
    """Why a contender takes no part."""


def _carried(program: Program, leaves: list[Any], state: int, run: Callable[..., Any]) -> Call:
    """Calls of ``run`` with flat arguments, of which the first ``state`` are replaced by its results."""

    def call() -> list[Any]:
        results = run(*leaves)
        if program.updates:
            leaves[:state] = results[:state]
        return list(results)

    return call


def _on_device(arguments: Arguments) -> tuple[list[Any], int]:
    """The arguments as arrays of JAX, flat, and how many belong to the first one."""
    leaves = [jax.numpy.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    return leaves, len(jax.tree.leaves(arguments[0]))


def _kcache(bound: bool) -> Build:
    def build(program: Program, arguments: Arguments) -> Call:
        import kcache_grpc as kcache

        if bound and program.updates:
            raise Absent("it updates its weights")
        exported: Any = jax.export.export(jax.jit(program.function))(*arguments)
        leaves, first = _on_device(arguments)
        kept = [leaves[index] for index in exported.module_kept_var_idx]
        if len(kept) != len(leaves):
            raise Absent("the program does not read all of its arguments")
        client = kcache.Client()
        if not bound:
            return _carried(program, leaves, first, client.compile(exported))
        kernel = client.compile(exported, bound=list(range(first)))
        run = kernel.bind(dict(enumerate(leaves[:first])))
        others = leaves[first:]
        return lambda: list(run(*others))

    return build


def _jax(donated: bool) -> Build:
    def build(program: Program, arguments: Arguments) -> Call:
        if donated and not program.updates:
            raise Absent("it updates no state")
        structure = jax.tree.structure(arguments)
        leaves, first = _on_device(arguments)

        def flat(*values: Any) -> list[Any]:
            return jax.tree.leaves(program.function(*jax.tree.unflatten(structure, values)))

        donates = tuple(range(first)) if donated else ()
        jitted = jax.jit(flat, donate_argnums=donates)
        return _carried(program, leaves, first, lambda *values: jax.block_until_ready(jitted(*values)))

    return build


#: In the order of the table. The first two are ours.
CONTENDERS: dict[str, Build] = {
    "kcache": _kcache(bound=False),
    "kcache-bound": _kcache(bound=True),
    "jax": _jax(donated=False),
    "jax-donated": _jax(donated=True),
}
