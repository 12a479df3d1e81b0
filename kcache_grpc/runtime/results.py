"""Outputs in the framework of the arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kcache_grpc.model.manifest import TensorSpec
from kcache_grpc.runtime.cpu._abi import CData, ffi
from kcache_grpc.runtime.cpu.memory import ALIGNMENT, Array
from kcache_grpc.runtime.cpu.torch_outputs import aligned_tensor, tensor_makers

_VOID = ffi.typeof("void *")


#: Makes a tensor, and tells its address.
TorchMaker = Callable[[], tuple[Any, CData]]


def torch_makers(
    outputs: tuple[TensorSpec, ...], shapes: tuple[tuple[int, ...], ...]
) -> tuple[TorchMaker, ...]:
    """For each output what makes a CPU tensor. Raises ``ArgumentError`` for a dtype that PyTorch lacks."""
    return tuple(_torch_maker(*maker) for maker in tensor_makers(outputs, shapes))


def _torch_maker(make: Callable[..., Any], arguments: tuple[Any, ...]) -> TorchMaker:
    cast = ffi.cast

    def new() -> tuple[Any, CData]:
        tensor = make(*arguments)
        address = tensor.data_ptr()
        if address % ALIGNMENT:
            tensor = aligned_tensor(tensor)
            address = tensor.data_ptr()
        return tensor, cast(_VOID, address)

    return new


def in_namespace_of(like: Any, outputs: tuple[Array, ...]) -> tuple[Any, ...]:
    """The same results as arrays of ``like``'s framework (the array API standard's ``from_dlpack``)."""
    namespace = like.__array_namespace__()
    return tuple(_adopt(namespace, output) for output in outputs)


def _adopt(namespace: Any, output: Array) -> Any:
    try:
        return namespace.from_dlpack(output)
    except (BufferError, RuntimeError, TypeError, ValueError):  # NumPy cannot export bfloat16
        return namespace.asarray(output)
