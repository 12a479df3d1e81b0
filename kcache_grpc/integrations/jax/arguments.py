"""Arguments of a jitted call: static ones, the leaves of the others, and what a traced program depends on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import numpy as np

jax: Any = import_module("jax")


def extension_attribute(name: str) -> Any:
    """What JAX's extension module has of this name, or ``None``: it is faster than what is public."""
    try:
        return getattr(import_module("jaxlib._jax"), name, None)
    except ImportError:
        return None


#: A leaf of the arguments: an array of JAX or NumPy, or a Python number.
Leaf = Any
#: Arguments by position, or their names.
Positions = int | Sequence[int] | None
Names = str | Iterable[str] | None

#: The type of arrays that are not traced, to recognize them sooner; ``None`` where JAX lacks the name.
_ARRAY: Any = extension_attribute("ArrayImpl")
_NUMBERS = (bool, int, float, complex)
#: Settings of JAX that change what a function is traced to.
_SETTINGS = (
    *("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion"),
    *("jax_numpy_rank_promotion", "jax_default_prng_impl", "jax_threefry_partitionable"),
    *("jax_random_seed_offset", "jax_high_dynamic_range_gumbel", "jax_explicit_x64_dtypes"),
    *("jax_softmax_custom_jvp", "jax_default_device"),
)
#: Settings that ``jax.jit`` acts upon at each call, and kernels do not.
_SETTINGS_OF_CALLS = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs")
#: Whether no transformation of JAX is tracing in this thread; JAX has no public name for it.
_is_untraced: Any = getattr(import_module("jax._src.core"), "trace_state_clean", None)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class UnsupportedArgument(Exception):
    """A leaf that JAX has to handle: a tracer, an array on another device, no array at all."""


@dataclass(frozen=True)
class StaticArguments:
    """Arguments whose values are part of the program: positions, and names for those passed by keyword."""

    positions: tuple[int, ...] = ()
    names: frozenset[str] = frozenset()

    @staticmethod
    def of(function: Callable[..., Any], positions: Positions, names: Names) -> StaticArguments:
        """Those of ``static_argnums`` and ``static_argnames`` of ``jax.jit``.

        If only one of them is given, the other follows from the signature, as in ``jax.jit``.
        """
        if positions is None and names is None:
            return StaticArguments()
        parameters = _parameters(function)
        at = (positions,) if isinstance(positions, int) else tuple(positions or ())
        at = tuple(p + len(parameters) if p < 0 else p for p in at)
        by_name = frozenset((names,) if isinstance(names, str) else names or ())
        if names is None:
            by_name = frozenset(parameters[p] for p in at if p < len(parameters))
        elif positions is None:
            at = tuple(p for p, name in enumerate(parameters) if name in by_name)
        return StaticArguments(at, by_name)

    def split(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...]]:
        """``args`` with ``None`` for static ones, the other keyword arguments, and (place, value) of those
        that are static.
        """
        fixed: list[tuple[int | str, Any]] = [(p, args[p]) for p in self.positions if p < len(args)]
        fixed += [(name, kwargs[name]) for name in sorted(self.names) if name in kwargs]
        rest = tuple(None if p in self.positions else value for p, value in enumerate(args))
        return rest, {name: value for name, value in kwargs.items() if name not in self.names}, tuple(fixed)


@dataclass(frozen=True)
class Call:
    """The arguments of a call: leaves of all that are not static, their tree, and the static values."""

    leaves: list[Leaf]
    tree: Any
    static: tuple[tuple[int | str, Any], ...]

    @staticmethod
    def of(static: StaticArguments, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Flatten the arguments of a call."""
        fixed: tuple[Any, ...] = ()
        if static.positions or static.names:
            args, kwargs, fixed = static.split(args, kwargs)
        leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
        return Call(leaves, tree, fixed)

    def signature(self, *, check_devices: bool) -> Any:
        """What the traced program depends on, hashable: the tree, types of leaves, static values, settings.

        Raises ``UnsupportedArgument`` for leaves that are not arrays on the first CPU or numbers, and
        ``TypeError`` for static values without a hash.
        """
        types = tuple([_leaf_type(leaf, check_devices) for leaf in self.leaves])
        if check_devices and not self.committed and not _first_cpu_is_default():
            raise UnsupportedArgument("arrays without a device are for another one than the first CPU device")
        static = tuple((place, cast("object", type(value)), value) for place, value in self.static)
        settings = tuple([getattr(jax.config, name, None) for name in _SETTINGS])
        return self.tree, types, static, settings

    @property
    def committed(self) -> bool:
        """Whether an array was put on a device by name, so that results have to stay there."""
        return any(getattr(leaf, "committed", False) for leaf in self.leaves)

    def rebuild(self, leaves: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of the function with ``leaves`` in place of those of this call."""
        args, kwargs = jax.tree_util.tree_unflatten(self.tree, leaves)
        positional, named = [*args], dict(kwargs)
        for place, value in self.static:
            if isinstance(place, int):
                positional[place] = value
            else:
                named[place] = value
        return positional, named


def is_key(leaf: Leaf) -> bool:
    """Whether it is an array of random keys (``jax.random.key``), whose data is in another array."""
    return bool(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def left_to_jax() -> bool:
    """Whether JAX has to run the call whatever its arguments are: something is being traced, which the
    function may close over, or JAX examines results.
    """
    if _is_untraced is not None and not _is_untraced():
        return True
    return any(getattr(jax.config, name, False) for name in _SETTINGS_OF_CALLS)


def on_one_cpu() -> bool:
    """Whether all arrays of the process are on one CPU device."""
    return jax.default_backend() == "cpu" and jax.device_count() == 1


def _leaf_type(leaf: Leaf, check_devices: bool) -> Any:
    kind = cast("type[Any]", type(leaf))
    if kind is _ARRAY and not check_devices:
        return leaf.shape, leaf.dtype, leaf.weak_type
    if isinstance(leaf, jax.core.Tracer):
        raise UnsupportedArgument("the call is traced")
    if isinstance(leaf, jax.Array):
        if check_devices and not _on_first_cpu(leaf):
            raise UnsupportedArgument("an array is not on the first CPU device")
        return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)
    if issubclass(kind, (np.ndarray, np.generic)):
        return leaf.shape, leaf.dtype, None
    if kind in _NUMBERS:
        return kind
    raise UnsupportedArgument(f"an argument is a {kind.__qualname__}")


def _on_first_cpu(array: Any) -> bool:
    devices = array.devices()
    return len(devices) == 1 and jax.local_devices(backend="cpu")[0] in devices


def _first_cpu_is_default() -> bool:
    default = jax.config.jax_default_device or jax.local_devices()[0]
    return default == "cpu" or default is jax.local_devices(backend="cpu")[0]


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return []
    return [parameter.name for parameter in parameters if parameter.kind in _POSITIONAL]
