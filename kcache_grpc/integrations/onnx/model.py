"""Kernels of an ONNX model, called with arrays in the order of its inputs."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from kcache_grpc.client.client import Client
from kcache_grpc.errors import InvalidProgram, UnsupportedOp

onnx: Any = import_module("onnx")

#: A NumPy array, whose own types say too little for strict checks.
Array = Any

#: Integers of an input that may be shapes, axes and counts; longer inputs are not.
_SIZE_ELEMENTS = 16
#: Kernels that a model keeps for values of inputs that sizes depend on.
_SPECIALIZED_KERNELS = 16

_INTEGERS = {"int4": np.int8, "int2": np.int8, "uint4": np.uint8, "uint2": np.uint8}


class CompiledModel:
    """A model and its kernels, for any number of threads.

    Where an operator needs a small input as a constant (axes, shapes, counts), a kernel is compiled for each
    value of such inputs, at the sizes of the call.
    """

    def __init__(self, model: Any, client: Client, path: Path | None = None, **compile_options: Any) -> None:
        """``model``: an ``onnx.ModelProto``, without its external data if ``path`` is the file that it was
        read from. ``compile_options``: of ``Client.compile``. Raises ``InvalidProgram``, ``UnsupportedOp``.
        """
        self._path, self._client, self._options = path, client, compile_options
        initializers = {tensor.name for tensor in model.graph.initializer}
        #: What the kernel takes: an initializer that is an input is one since IR version 4.
        self.inputs = [
            _copy(info)
            for info in model.graph.input
            if model.ir_version >= 4 or info.name not in initializers
        ]
        self._outputs = [dtype_of(info) for info in model.graph.output]
        #: For kernels with constants; a model with one kernel is not held, as it may be large.
        self._model: Any = None
        self._kernel: Any = None
        self._specialized: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()
        try:
            self._kernel = client.compile(path or model, **compile_options)
        except (UnsupportedOp, InvalidProgram) as error:
            if not _may_be_sizes(error):
                raise
            self._model = model if path is None else onnx.load(path)

    @property
    def is_specialized(self) -> bool:
        """Whether calls compile kernels for their sizes and the values of their small inputs."""
        return self._kernel is None

    @property
    def kernels(self) -> tuple[Any, ...]:
        """The kernels that calls use, without those that are no longer kept."""
        return tuple(self._specialized.values()) if self._kernel is None else (self._kernel,)

    def run(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Call the kernel with C-contiguous arrays in the order of ``inputs``.

        Returns NumPy arrays of the types that the model declares. Raises ``ArgumentError``.
        """
        if self._kernel is not None:
            results = self._kernel(*map(_carried, arrays))
        else:
            results = self._run_specialized(arrays)
        return tuple(map(_declared, results, self._outputs))

    def _run_specialized(self, arrays: Sequence[Array]) -> tuple[Any, ...]:
        fixed = [_is_size(info.name, x) for info, x in zip(self.inputs, arrays, strict=True)]
        key = tuple((x.shape, x.tobytes() if size else None) for x, size in zip(arrays, fixed, strict=True))
        with self._lock:
            kernel = self._specialized.get(key)
        if kernel is None:
            kernel = self._client.compile(self._with_constants(arrays, fixed), **self._options)
        with self._lock:
            self._specialized[key] = kernel
            self._specialized.move_to_end(key)
            while len(self._specialized) > _SPECIALIZED_KERNELS:
                self._specialized.popitem(last=False)
        return kernel(*(_carried(x) for x, size in zip(arrays, fixed, strict=True) if not size))

    def _with_constants(self, arrays: Sequence[Array], fixed: Sequence[bool]) -> Any:
        """The model at these sizes, with some of its inputs as constants."""
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        arguments: list[Any] = []
        for info, array, size in zip(self.inputs, arrays, fixed, strict=True):
            value_info = _copy(info)
            for dim, extent in zip(value_info.type.tensor_type.shape.dim, array.shape, strict=False):
                dim.dim_value = extent
            if size:
                model.graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))
            else:
                arguments.append(value_info)
        names = {info.name for info in self.inputs}
        others = [info for info in model.graph.input if info.name not in names]
        del model.graph.input[:]
        model.graph.input.extend([*arguments, *others])
        return model


@functools.cache
def shared_client() -> Client:
    """The client of the process, made from the environment."""
    return Client()


def dtype_of(info: Any) -> Any:
    """The NumPy type of a tensor."""
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))


def _copy(info: Any) -> Any:
    """A ``ValueInfoProto`` that does not hold its model."""
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(info)
    return copy


def _may_be_sizes(error: Exception) -> bool:
    """Whether a call's values and sizes may help."""
    text = str(error)
    return "as a constant" in text or "leaves" in text or "open" in text or "has no shape" in text


def _is_size(name: str, array: Array) -> bool:
    if name in ("scales", "roi"):
        return True
    return (
        array.size <= _SIZE_ELEMENTS and (array.dtype.kind in "iubV" or array.size == 1) and array.ndim <= 1
    )


def _carried(array: Array) -> Array:
    """What a buffer has of elements below 16 bits: bits of floats, numbers of integers, a byte each."""
    if array.dtype.isbuiltin == 1:
        return array
    name = array.dtype.name
    if name.startswith(("float8", "float4")):
        return array.view(np.uint8)
    return array.astype(_INTEGERS[name]) if name in _INTEGERS else array


def _declared(result: Any, dtype: Any) -> Array:
    """A result in the type that the model declares for it."""
    array: Array = np.asarray(result)
    if dtype == array.dtype:
        return array
    return array.view(dtype) if dtype.name.startswith(("float8", "float4")) else array.astype(dtype)
