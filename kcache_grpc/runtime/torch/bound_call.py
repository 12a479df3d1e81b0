"""Calls of a kernel whose bound arguments are PyTorch tensors: prepared again when one of them changed.

A tensor changes when it is another tensor, has other memory, or is updated in place. Operators increment the
version counter of a tensor that they update; steps of optimizers with ``fused=True`` do not, and are noticed
by a hook.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kcache_grpc.errors import ArgumentError
from kcache_grpc.runtime.cpu.fast_call import extension
from kcache_grpc.runtime.kernel import Kernel
from kcache_grpc.runtime.torch.call import TorchCall, require_callable

if TYPE_CHECKING:
    import torch

#: Bindings that are kept: a graph that all layers of a model share has one for each of them.
_MAX_BINDINGS = 256
#: Preparations of one call, while other threads update the tensors.
_ATTEMPTS = 3

_Key = tuple[int, ...]
_CALLS: weakref.WeakSet[BoundTorchCall] = weakref.WeakSet()
Observer = Callable[[frozenset[int]], None]
_lock = threading.Lock()
_observers: list[Observer] = []


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

    def use_own_threads(self) -> None:
        """Run the launches of later preparations on the kernel's own pool, as without ``share_threads``."""
        self._share_threads = False

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


def observe_fused_steps(observer: Observer) -> None:
    """From now on call ``observer`` after each fused step of an optimizer, with the addresses of the storages
    that it may have updated. An observer is kept until the process ends; adding it again has no effect.
    """
    with _lock:
        if not _observers:
            optimizer: Any = import_module("torch.optim.optimizer")
            optimizer.register_optimizer_step_post_hook(_after_step)
        if observer not in _observers:
            _observers.append(observer)


def _after_step(optimizer: Any, _arguments: object, _keywords: object) -> None:
    torch: Any = import_module("torch")
    if torch.compiler.is_compiling():  # compiled updates are counted
        return
    storages = frozenset(_updated(optimizer.param_groups))
    if storages:
        for observer in _observers:
            observer(storages)


def _updated(groups: Iterable[dict[str, Any]]) -> Iterable[int]:
    for group in groups:
        if group.get("fused"):
            for parameter in group["params"]:
                if parameter.device.type == "cpu":
                    yield parameter.untyped_storage().data_ptr()


class TensorState(Protocol):
    """The identity, the address and the version counter of each tensor of a list."""

    def holds(self, tensors: list[Any], /) -> bool:
        """Whether a list has the same tensors, at the same addresses, and none was updated in place."""
        ...


class _PythonState:
    """For installations without the extension module."""

    def __init__(self, tensors: list[Any]) -> None:
        self._state = _read(tensors)

    def holds(self, tensors: list[Any], /) -> bool:
        return self._state == _read(tensors)


def _read(tensors: list[Any]) -> list[tuple[Any, ...]]:
    return [(id(tensor), tensor.data_ptr(), tensor._version, _content(tensor)) for tensor in tensors]


class _Uncounted:
    """Of tensors whose updates nothing tells, those of inference mode among them."""

    def holds(self, tensors: list[Any], /) -> bool:
        return not tensors


class _Identities:
    """Which tensors they are, and nothing else."""

    def __init__(self, tensors: list[Any]) -> None:
        self._identities = list(map(id, tensors))

    def holds(self, tensors: list[Any], /) -> bool:
        return self._identities == list(map(id, tensors))


def identities_of(tensors: list[Any]) -> TensorState:
    """A state that holds as long as the tensors are the same, whatever their values are then.

    As that of ``state_of``, it does not keep the tensors alive.
    """
    return _Identities(tensors)


def state_of(tensors: list[Any]) -> TensorState:
    """The state of PyTorch tensors now.

    It does not keep the tensors alive: discard it when one of them dies, since another tensor may have its
    identity then. The caller keeps their storage alive, so that no other storage gets its address.

    Writes through ``tensor.data`` are not counted by PyTorch, and not noticed. Neither does it count what
    ``batch_norm`` writes to its statistics: of vectors that are no parameters the elements are compared.
    Raises what ``data_ptr`` raises for tensors without memory.
    """
    if any(
        tensor.is_inference() or (_is_vector(tensor) and not tensor.is_contiguous()) for tensor in tensors
    ):
        return _Uncounted()
    module = extension()
    if module is None:
        return _PythonState(tensors)
    try:
        return module.tensor_state_type(_data_ptr(), tensors, tuple(map(_content, tensors)))
    except TypeError:  # data_ptr is no method of C
        return _PythonState(tensors)


def _is_vector(tensor: Any) -> bool:
    """Whether a tensor may have statistics of ``batch_norm``."""
    return tensor.dim() == 1 and not isinstance(tensor, sys.modules["torch"].nn.Parameter)


def _content(tensor: Any) -> bytes | None:
    if not _is_vector(tensor):
        return None
    torch: Any = sys.modules["torch"]
    content: bytes = tensor.detach().view(torch.uint8).numpy().tobytes()
    return content


def _data_ptr() -> Callable[[], int]:
    torch: Any = sys.modules["torch"]
    return torch.Tensor().data_ptr
