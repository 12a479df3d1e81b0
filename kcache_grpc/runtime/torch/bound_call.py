"""Calls of a kernel whose bound arguments are PyTorch tensors: prepared again when one of them changed."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kcache_grpc.errors import ArgumentError
from kcache_grpc.runtime.kernel import Kernel
from kcache_grpc.runtime.torch.call import TorchCall, require_callable
from kcache_grpc.runtime.torch.fused_optimizers import observe_fused_steps
from kcache_grpc.runtime.torch.tensor_state import TensorState, identities_of, state_of

if TYPE_CHECKING:
    import torch

#: Bindings that are kept: a graph that all layers of a model share has one for each of them.
_MAX_BINDINGS = 256
#: Preparations of one call, while other threads update the tensors.
_ATTEMPTS = 3

_Key = tuple[int, ...]


class _Binding(NamedTuple):
    """A kernel with the prepared values of some tensors."""

    state: TensorState
    call: TorchCall
    #: The memory that was read, so that no other storage gets its address.
    storages: tuple[Any, ...]
    #: What forgets the binding when one of the tensors dies.
    references: tuple[weakref.ref[Any], ...]


class _Preparing:
    """One preparation at a time in a process, so that few prepared buffers exist at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def after_fork(self) -> None:
        """In a child: another thread of the parent may have held the lock."""
        self.lock = threading.Lock()


_PREPARING = _Preparing()
os.register_at_fork(after_in_child=_PREPARING.after_fork)


class BoundTorchCall:
    """Calls a kernel with the tensors that are not bound, and the bound ones, which are prepared when needed.

    Each call compares identity, address and version counter of the bound tensors with those of the last
    preparation, and prepares them again if one differs: updates in place, ``load_state_dict``,
    ``parameter.data = other`` and other tensors are noticed, and so are steps of fused optimizers. Writes
    through ``tensor.data`` are not, as PyTorch does not count them. Inference tensors have no counter, and
    are prepared at each call. ``frozen``: only the identity is compared, and a tensor is prepared once.

    A prepared buffer lives as long as its tensors. Several sets of tensors in turns have one each. Other
    arguments and promises are those of ``TorchCall``. Safe from many threads at once, and after ``os.fork``;
    a call reads the values of one preparation.
    """

    def __init__(self, kernel: Kernel, *, share_threads: bool = True, frozen: bool = False) -> None:
        """Raises ``ArgumentError`` for a kernel without bound arguments, else as ``TorchCall``."""
        if kernel.manifest.preparation is None:
            raise ArgumentError("the kernel has no bound arguments")
        require_callable(kernel)
        self.kernel = kernel
        self._share_threads = share_threads
        self._state_of = identities_of if frozen else state_of
        self._last: _Binding | None = None
        self._bindings: dict[_Key, _Binding] = {}
        with _PREPARING.lock:
            if not frozen:
                _CALLS.add(self)
        if not frozen:
            observe_fused_steps(_forget_storages)

    def __call__(
        self,
        tensors: Sequence[torch.Tensor],
        bound: list[torch.Tensor],
        row_major: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]],
    ) -> tuple[torch.Tensor, ...]:
        """The outputs for ``tensors``, one for each input that is not bound, and ``bound``, in order.

        ``row_major(bound)`` returns the latter, detached, as the kernel takes them. Raises what ``Kernel``
        raises.
        """
        binding = self._last
        if binding is None or not binding.state.holds(bound):
            binding = self._binding(bound, row_major)
        return binding.call(tensors)

    def _binding(self, bound: list[Any], row_major: Callable[[Sequence[Any]], list[Any]]) -> _Binding:
        """That of ``bound``; an earlier one of the same tensors ends."""
        key = tuple(map(id, bound))
        with _PREPARING.lock:
            binding = self._bindings.get(key)
            if binding is None or not binding.state.holds(bound):
                self._last = binding = None  # frees the memory of the earlier one
                self._bindings.pop(key, None)
                if len(self._bindings) >= _MAX_BINDINGS:
                    self._bindings.pop(next(iter(self._bindings)), None)
                binding = self._prepared(key, bound, row_major)
                self._bindings[key] = binding
            self._last = binding
        return binding

    def _prepared(
        self, key: _Key, bound: list[Any], row_major: Callable[[Sequence[Any]], list[Any]]
    ) -> _Binding:
        indices = self.kernel.manifest.options.bound
        forget = _forgetting(weakref.ref(self), key)
        references = tuple([weakref.ref(tensor, forget) for tensor in bound])
        attempts = 0
        while True:
            state = self._state_of(bound)
            storages = tuple([tensor.untyped_storage() for tensor in bound])
            kernel = self.kernel.prepare(dict(zip(indices, row_major(bound), strict=True)))
            attempts += 1
            if attempts == _ATTEMPTS or state.holds(bound):
                call = TorchCall(kernel, share_threads=self._share_threads)
                return _Binding(state, call, storages, references)

    def forget_storages(self, storages: frozenset[int]) -> None:
        """Discard the bindings of tensors in storages with these addresses. Called with the lock."""
        for key, binding in list(self._bindings.items()):
            if any(storage.data_ptr() in storages for storage in binding.storages):
                self.forget(key)

    def forget(self, key: _Key) -> None:
        """Discard the binding of tensors with these identities. Takes no lock: tensors die anywhere."""
        binding = self._bindings.pop(key, None)
        if binding is not None and binding is self._last:
            self._last = None


_CALLS: weakref.WeakSet[BoundTorchCall] = weakref.WeakSet()


def _forget_storages(storages: frozenset[int]) -> None:
    """After preparations that may have read these storages earlier."""
    with _PREPARING.lock:
        for call in list(_CALLS):
            call.forget_storages(storages)


def _forgetting(owner: weakref.ref[BoundTorchCall], key: _Key) -> Callable[[object], None]:
    def forget(_: object) -> None:
        call = owner()
        if call is not None:
            call.forget(key)

    return forget
