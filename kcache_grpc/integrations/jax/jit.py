"""``kcache_grpc.jax.jit``: as ``jax.jit``, with kernels of kcache."""

from __future__ import annotations

import functools
import math
import threading
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, overload

from kcache_grpc.client.client import Client
from kcache_grpc.errors import ArgumentError, KcacheError
from kcache_grpc.integrations.jax.arguments import (
    Call,
    Names,
    Positions,
    StaticArguments,
    UnsupportedArgument,
    left_to_jax,
    on_one_cpu,
)
from kcache_grpc.integrations.jax.compiled import Compiled, Untraceable, export
from kcache_grpc.local_files import KcacheWarning
from kcache_grpc.model.options import Options

jax: Any = import_module("jax")

_FALLBACKS = ("jax", "error")
#: Seconds until a request is made again that failed as the service was away.
_RETRY_SECONDS = 30.0


@dataclass(frozen=True)
class _Settings:
    client: Client | None
    target: str
    options: Options | None
    bound: tuple[int, ...]
    fallback: str


@dataclass(frozen=True)
class _Failure:
    """Why a signature has no kernel, and until when, in seconds of ``time.monotonic``."""

    error: KcacheError
    until: float


class Jitted:
    """A function whose calls run kernels of kcache; made by ``jit``.

    ``lower``, ``trace`` and ``eval_shape`` are those of ``jax.jit`` of the same function.
    """

    def __init__(
        self, function: Callable[..., Any], static: StaticArguments, settings: _Settings, by_jax: Any
    ) -> None:
        functools.update_wrapper(self, function)
        self._function, self._static, self._settings = function, static, settings
        #: The function of ``jax.jit``, which runs calls without a kernel.
        self.by_jax = by_jax
        self._entries: dict[Any, Compiled | _Failure] = {}
        self._failures: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.lower, self.trace, self.eval_shape = by_jax.lower, by_jax.trace, by_jax.eval_shape

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function. Raises what it raises, and ``KcacheError`` if ``fallback`` is "error"."""
        if left_to_jax():
            return self.by_jax(*args, **kwargs)
        try:
            call = Call.of(self._static, args, kwargs)
            several_devices = not on_one_cpu()
            signature = call.signature(check_devices=several_devices)
            entry = self._entries.get(signature)
        except (UnsupportedArgument, TypeError, ValueError):  # JAX runs it, or raises its own error
            return self.by_jax(*args, **kwargs)
        if not isinstance(entry, Compiled):
            try:
                entry = self._entry(signature, call, entry)
            except Untraceable:
                return self.by_jax(*args, **kwargs)
        if isinstance(entry, Compiled):
            return entry(call.leaves, uncommitted=several_devices and not call.committed)
        if self._settings.fallback == "error":
            raise entry.error
        return self.by_jax(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method: the instance is the first argument, so it must be static or a tree of arrays."""
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> str:
        """Copies are the function itself; pickles have its name, as those of other functions."""
        return getattr(self, "__qualname__", type(self).__qualname__)

    @property
    def kernels(self) -> tuple[Any, ...]:
        """The kernels (``kcache_grpc.Kernel``) of all signatures that were called."""
        return tuple(entry.kernel for entry in self._entries.values() if isinstance(entry, Compiled))

    @property
    def failures(self) -> Mapping[str, int]:
        """Reasons for which JAX runs a signature, and how many signatures each one concerns."""
        return dict(self._failures)

    def clear_cache(self) -> None:
        """Forget the kernels and failures of all signatures; the client's tiers still have the kernels."""
        with self._lock:
            self._entries.clear()
            self._failures.clear()
        self.by_jax.clear_cache()

    def _entry(self, signature: Any, call: Call, known: Compiled | _Failure | None) -> Compiled | _Failure:
        if isinstance(known, _Failure) and time.monotonic() < known.until:
            return known
        with self._lock:
            entry = self._entries.get(signature)
            if isinstance(entry, Compiled) or (entry is not None and entry is not known):
                return entry
            entry = self._entries[signature] = self._compiled(call)
        return entry

    def _compiled(self, call: Call) -> Compiled | _Failure:
        weights = self._bound_leaves(call)
        try:
            exported = export(self._function, call)
            bound = tuple(position for position, leaf in enumerate(exported.kept) if leaf in weights)
            kernel = _client(self._settings.client).compile(
                exported.program,
                target=self._settings.target,
                options=self._settings.options,
                bound=bound or None,
            )
        except KcacheError as error:
            self._report(error)
            return _Failure(error, time.monotonic() + _RETRY_SECONDS if error.retryable else math.inf)
        return Compiled(kernel, exported, call.leaves, bound)

    def _bound_leaves(self, call: Call) -> frozenset[int]:
        """The leaves of arguments that are bound."""
        if not self._settings.bound:
            return frozenset()
        args, _ = jax.tree_util.tree_unflatten(call.tree, range(len(call.leaves)))
        if max(self._settings.bound) >= len(args):
            raise ArgumentError(
                f"bound_argnums names argument {max(self._settings.bound)}, and the call passes {len(args)} "
                "by position; pass bound arguments by position"
            )
        return frozenset(leaf for p in self._settings.bound for leaf in jax.tree_util.tree_leaves(args[p]))

    def _report(self, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        self._failures[reason] += 1
        if self._failures[reason] == 1 and self._settings.fallback != "error":
            name = getattr(self, "__name__", "a function")
            warnings.warn(f"JAX runs {name} itself: {reason}", KcacheWarning, stacklevel=5)


@overload
def jit(
    function: Callable[..., Any],
    *,
    static_argnums: Positions = None,
    static_argnames: Names = None,
    donate_argnums: Positions = None,
    donate_argnames: Names = None,
    bound_argnums: Positions = None,
    client: Client | None = None,
    target: str = "host",
    options: Options | None = None,
    fallback: str = "jax",
) -> Jitted: ...


@overload
def jit(
    function: None = None,
    *,
    static_argnums: Positions = None,
    static_argnames: Names = None,
    donate_argnums: Positions = None,
    donate_argnames: Names = None,
    bound_argnums: Positions = None,
    client: Client | None = None,
    target: str = "host",
    options: Options | None = None,
    fallback: str = "jax",
) -> Callable[[Callable[..., Any]], Jitted]: ...


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnums: Positions = None,
    static_argnames: Names = None,
    donate_argnums: Positions = None,
    donate_argnames: Names = None,
    bound_argnums: Positions = None,
    client: Client | None = None,
    target: str = "host",
    options: Options | None = None,
    fallback: str = "jax",
) -> Any:
    """As ``jax.jit``, with kernels of kcache: ``@jit``, ``@jit(static_argnums=1)`` or ``jit(function)``.

    The function is exported once for each signature of its arguments, as ``jax.jit`` traces it, and the
    client compiles the program or takes the kernel that somebody else compiled. Arguments and results are
    trees of arrays, as for ``jax.jit``. Results are complete when a call returns.

    ``static_argnums``, ``static_argnames``: as for ``jax.jit``. ``donate_argnums``, ``donate_argnames`` are
    accepted; kernels leave the memory of arguments as it is.
    ``bound_argnums``: positional arguments that are weights. What depends only on them is computed at the
    first call with these arrays (docs/guide/bound-arguments.md). They must be arrays of JAX, which never
    change.
    ``client``: a ``kcache_grpc.Client``; ``None``: one of the process, made from the environment.
    ``target``, ``options``: those of ``Client.compile``.
    ``fallback``: what follows if a signature has no kernel. "jax": JAX runs it, with a ``KcacheWarning``, and
    ``failures`` of the function has the reason. "error": the ``KcacheError`` is raised.

    JAX also runs calls inside its transformations (``jax.grad``, ``jax.vmap``, ``jax.jit``, control flow) and
    calls with arrays on other devices than the first CPU: make this the outermost one, ``jit(jax.grad(f))``.
    Raises ``ArgumentError`` for ``fallback``.
    """
    if fallback not in _FALLBACKS:
        raise ArgumentError(f"fallback is {fallback!r}; use one of {', '.join(_FALLBACKS)}")
    bound = (bound_argnums,) if isinstance(bound_argnums, int) else tuple(bound_argnums or ())
    if any(position < 0 for position in bound):
        raise ArgumentError("bound_argnums counts from the first argument; use numbers from 0")
    settings = _Settings(client, target, options, bound, fallback)
    for_jax = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
    }

    def decorate(wrapped: Callable[..., Any]) -> Jitted:
        by_jax = jax.jit(wrapped, **{name: value for name, value in for_jax.items() if value is not None})
        return Jitted(wrapped, StaticArguments.of(wrapped, static_argnums, static_argnames), settings, by_jax)

    return decorate if function is None else decorate(function)


@functools.cache
def _shared_client() -> Client:
    return Client()


def _client(client: Client | None) -> Client:
    return client or _shared_client()
