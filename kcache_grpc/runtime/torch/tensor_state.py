"""Whether PyTorch tensors changed since they were read: other tensors, other memory, updates in place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from kcache_grpc.runtime.cpu.fast_call import extension


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
