"""Kernels whose bound arguments have values: prepared once, read by every call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from kcache_grpc.errors import ArgumentError, IntegrityError
from kcache_grpc.model.manifest import Manifest, TensorSpec
from kcache_grpc.model.sizes.expression import evaluate
from kcache_grpc.runtime.arrays import Buffer
from kcache_grpc.runtime.cpu._abi import CData, Library, ffi
from kcache_grpc.runtime.cpu.library import error_of
from kcache_grpc.runtime.cpu.memory import ALIGNMENT, AlignedBytes
from kcache_grpc.runtime.cpu.plan import flushes_subnormals, flushing_error


class Bindable(Protocol):
    """What a kernel with bound arguments does for those who bind them."""

    manifest: Manifest

    def __call__(self, *arrays: Any, **named: Any) -> tuple[Any, ...]: ...
    def input_names(self) -> tuple[str, ...]: ...
    def argument_error(self, index: int, reason: str) -> ArgumentError: ...
    def prepare(self, values: Mapping[int, Any], share: Path | None = None) -> Any:
        """The kernel of the other arguments, with prepared values; in a file in the directory ``share``.

        Raises ``ArgumentError``.
        """


KernelT = TypeVar("KernelT", bound=Bindable)


class PreparedKernel(Generic[KernelT]):
    """A kernel whose bound arguments were prepared once, by ``kcache_prepare``; from ``Kernel.bind``.

    Callers pass the other arguments. Calls read what ``kcache_prepare`` computed of the bound values: a bound
    array that changes in place changes no result before ``rebind``. Calls and ``rebind`` are safe from many
    threads at once; a call reads the values of one binding. ``kernel`` is the one that the arguments were
    bound to. Without ``keep`` no reference to the values is held.
    """

    def __init__(
        self,
        kernel: KernelT,
        values: Mapping[int | str, Any],
        *,
        keep: bool = True,
        share: Path | None = None,
    ) -> None:
        self.kernel = kernel
        self._keep = keep
        self._share = share
        self._values: dict[int, Any] = {}
        self._current: Bindable = self._prepared(values)

    def __call__(self, *arrays: Any, **named: Any) -> tuple[Any, ...]:
        return self._current(*arrays, **named)

    def rebind(self, values: Mapping[int | str, Any] | None = None) -> None:
        """Prepare the values that the bound arrays have now, some of them replaced by ``values``.

        Later calls read them. Raises as ``Kernel.bind`` does, and then later calls read the earlier ones:
        also where a value is not in ``values`` that was not kept.
        """
        self._current = self._prepared(values or {})

    def _prepared(self, values: Mapping[int | str, Any]) -> Bindable:
        """The kernel with ``values``, and those kept where these have none."""
        updated = {**self._values, **self._by_index(values)}
        missing = [index for index in self.kernel.manifest.options.bound if index not in updated]
        if missing:
            released = "" if self._keep else "; the binding keeps no values: give all of them"
            raise self.kernel.argument_error(missing[0], f"it is bound, and was not given{released}")
        prepared: Bindable = self.kernel.prepare(updated, self._share)
        if self._keep:
            self._values = updated
        return prepared

    def _by_index(self, values: Mapping[int | str, Any]) -> dict[int, Any]:
        """Values of bound inputs. Raises ``ArgumentError`` for other inputs."""
        bound, names = self.kernel.manifest.options.bound, self.kernel.input_names()
        by_index: dict[int, Any] = {}
        for key, value in values.items():
            index = key if not isinstance(key, str) else names.index(key) if key in names else -1
            if index not in bound:
                known = ", ".join(f"{each} ({names[each]})" for each in bound)
                raise ArgumentError(f"argument {key!r} is not bound; bound are {known}", argument=str(key))
            if index in by_index:
                raise ArgumentError(f"argument {index} was given by index and by name", argument=str(key))
            by_index[index] = value
        return by_index


def prepared_values(
    manifest: Manifest, library: Library, buffers: Sequence[Buffer], constants: Sequence[CData], room: int = 0
) -> AlignedBytes:
    """The prepared buffer of the bound inputs, ascending, and ``room`` bytes; bytes between values are zero.

    Runs ``kcache_prepare`` on the calling thread.
    """
    preparation = manifest.preparation
    if preparation is None or preparation.alignment > ALIGNMENT:
        raise IntegrityError(f"a prepared buffer of {preparation}")
    if manifest.options.numerics == "strict" and flushes_subnormals():
        raise flushing_error()
    prepared = AlignedBytes(preparation.prepared_bytes + room)
    prepared.array.fill(0)
    workspace = AlignedBytes(evaluate(preparation.workspace_bytes, {"workers": 1}))
    pointers = [*(buffer.pointer for buffer in buffers), *constants]
    code = library.kcache_prepare(pointers, ffi.NULL, prepared.pointer, workspace.pointer, ffi.NULL)
    if code:
        raise error_of(manifest, code, {})
    return prepared


def require_unbound(manifest: Manifest, names: Sequence[str]) -> None:
    """Raise ``ArgumentError`` for a kernel with bound arguments, which is called after it was bound."""
    if manifest.preparation is not None:
        bound = ", ".join(names[index] for index in manifest.options.bound)
        raise ArgumentError(f"the kernel has bound arguments ({bound}): give them to bind() first")


def without_bound(manifest: Manifest) -> Manifest:
    """``manifest`` as it is for callers that pass the other inputs: what is prepared is its one constant."""
    bound, preparation = set(manifest.options.bound), manifest.preparation
    size = preparation.prepared_bytes if preparation is not None else 0
    others = [index for index in range(len(manifest.inputs)) if index not in bound]
    return replace(
        manifest,
        inputs=tuple(manifest.inputs[index] for index in others),
        constants=(TensorSpec("ui8", (str(size),)),),
        symbols=tuple(replace(symbol, arg=others.index(symbol.arg)) for symbol in manifest.symbols),
        preparation=None,
    )
