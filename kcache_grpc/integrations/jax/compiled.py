"""A function of JAX, exported for the types of one call's arguments, and its kernel.

The kernel is called with the leaves of the function's arguments.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from kcache_grpc.errors import ArgumentError, UnsupportedOp
from kcache_grpc.integrations.jax.arguments import Call, Leaf, extension_attribute, is_key

jax: Any = import_module("jax")
_export: Any = import_module("jax.export")
#: Makes an array of JAX from a DLPack capsule. ``jax.numpy.from_dlpack`` calls it, and takes four times as
#: long; ``None`` where a version of JAX lacks it.
_from_capsule: Any = extension_attribute("dlpack_managed_tensor_to_buffer")
#: NumPy arrays, or what calls a kernel with them.
Run = Callable[..., Sequence[Any]]


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


class Compiled:
    """A kernel for one signature of a function.

    ``leaves`` are those of a call with this signature. ``bound``: positions, of the leaves that are arguments
    of the module, that were compiled as bound.
    """

    def __init__(
        self, kernel: Any, exported: Exported, leaves: Sequence[Leaf], bound: tuple[int, ...]
    ) -> None:
        self.kernel = kernel
        self._exported = exported
        self._device = jax.local_devices(backend="cpu")[0]
        self._conversions = [_conversion(result) for result in exported.results]
        avals = exported.program.in_avals
        self._free = [
            (leaf, _reader(leaves[leaf], np.dtype(avals[leaf].dtype)))
            for position, leaf in enumerate(exported.kept)
            if position not in bound
        ]
        self._weights = _Weights(kernel, [(p, exported.kept[p]) for p in bound]) if bound else None

    def __call__(self, leaves: list[Leaf], *, uncommitted: bool = False) -> Any:
        """The function's results, arrays of JAX in its tree. Raises ``ArgumentError``.

        ``uncommitted``: they may be used with arrays on any device, and are copied for that.
        """
        arrays = [read(leaves[leaf]) for leaf, read in self._free]
        run: Run = self.kernel if self._weights is None else self._weights.bound_kernel(leaves)
        to_jax = jax.numpy.array if uncommitted else self._to_jax
        results = [
            to_jax(array) if convert is None else convert(to_jax(array))
            for array, convert in zip(run(*arrays), self._conversions, strict=True)
        ]
        return jax.tree_util.tree_unflatten(self._exported.tree, results)

    def _to_jax(self, array: Any) -> Any:
        """An array of JAX in the memory of one of NumPy, where its dtype has DLPack."""
        try:
            if _from_capsule is not None:
                return _from_capsule(array.__dlpack__(), self._device, None)
            return jax.numpy.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, ValueError):  # NumPy cannot export bfloat16
            return jax.device_put(array, self._device)


class _Weights:
    """Bound kernels of the weights of the last calls. Arrays of JAX never change, so identity is enough."""

    #: Sets of weights whose prepared values are in memory.
    SETS = 4

    def __init__(self, kernel: Any, places: Sequence[tuple[int, int]]) -> None:
        """``places``: (argument of the kernel, leaf) of each bound argument."""
        self._kernel, self._places = kernel, places
        self._sets: list[tuple[tuple[weakref.ref[Any], ...], Any]] = []
        self._lock = threading.Lock()

    def bound_kernel(self, leaves: list[Leaf]) -> Run:
        """The kernel with these weights, which are prepared unless they were."""
        weights = [leaves[leaf] for _, leaf in self._places]
        for references, bound in self._sets:
            if all(reference() is weight for reference, weight in zip(references, weights, strict=True)):
                return bound
        with self._lock:
            return self._bind(weights)

    def _bind(self, weights: list[Any]) -> Run:
        for weight in weights:
            if not isinstance(weight, jax.Array):
                raise ArgumentError(
                    f"a bound argument is a {type(weight).__qualname__}, which may change after it was "
                    "prepared; pass jax.numpy.asarray of it"
                )
        values = {p: np.asarray(data_of(w)) for (p, _), w in zip(self._places, weights, strict=True)}
        bound = self._kernel.bind(values, keep=False)
        references = tuple(weakref.ref(weight, self._drop_dead) for weight in weights)
        self._sets = [(references, bound), *self._sets][: self.SETS]
        return bound

    def _drop_dead(self, _: Any) -> None:
        """Free what was prepared of weights that are gone, without the lock, which this thread may hold."""
        self._sets = [entry for entry in self._sets if all(reference() is not None for reference in entry[0])]


def _reader(leaf: Leaf, dtype: np.dtype[Any]) -> Callable[[Leaf], Any]:
    """What makes an argument of the kernel of leaves like this one, without a copy where it can.

    Arrays of JAX are complete, and in row-major order, when NumPy has read them.
    """
    if isinstance(leaf, jax.Array):
        return _key_data if is_key(leaf) else np.asarray
    return functools.partial(_converted, dtype=dtype)


def _conversion(result: Result) -> Callable[[Any], Any] | None:
    """What gives an array the type of a result; ``None`` for an array as it is."""
    if result.key_impl is not None:
        return functools.partial(jax.random.wrap_key_data, impl=result.key_impl)
    if result.weak_type is None:
        return None
    aval = result.weak_type
    weak = jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=True)
    return jax.jit(_identity).lower(weak).compile()  # takes an array whose type is not weak, too


def _identity(x: Any) -> Any:
    return x


def _key_data(leaf: Leaf) -> Any:
    return np.asarray(jax.random.key_data(leaf))


def _converted(leaf: Leaf, dtype: np.dtype[Any]) -> Any:
    """An array of NumPy or a number, in the dtype that JAX gives it; a copy of one that is not aligned."""
    array: Any = np.array(leaf, dtype, order="C", copy=None)
    return array if array.flags.aligned else array.copy()
