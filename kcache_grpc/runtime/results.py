"""Outputs in the framework of the arguments, cut to the counts that the kernel gives with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kcache_grpc.errors import IntegrityError
from kcache_grpc.model.manifest import CountedOutput, TensorSpec
from kcache_grpc.runtime.cpu._abi import CData, ffi
from kcache_grpc.runtime.cpu.memory import ALIGNMENT, Array
from kcache_grpc.runtime.cpu.torch_run import aligned_tensor, tensor_makers

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


def cut(outputs: tuple[Any, ...], counted: Sequence[CountedOutput]) -> tuple[Any, ...]:
    """The program's own results: row-major copies of as many elements as there are, without the counts.

    Arrays of any framework; on a GPU this waits for the kernel. Raises ``IntegrityError`` for a count beyond
    the axis.
    """
    results = list(outputs[: min(entry.count for entry in counted)])
    for entry in counted:
        whole, count = results[entry.output], int(outputs[entry.count])
        if not 0 <= count <= whole.shape[entry.axis]:
            raise IntegrityError(
                f"the kernel counts {count} elements along axis {entry.axis} of output {entry.output}, "
                f"which has shape {tuple(whole.shape)}"
            )
        results[entry.output] = whole[(*[slice(None)] * entry.axis, slice(0, count))]
    for index in {entry.output for entry in counted}:
        results[index] = _own(results[index])
    return tuple(results)


def _own(part: Any) -> Any:
    """A copy without the buffer behind it, where the framework's arrays may share one."""
    if hasattr(part, "clone"):
        return part.clone().contiguous()
    return part.copy() if hasattr(part, "copy") else part
