"""ONNX's standard backend interface (``onnx.backend.base``) over kernels of kcache.

    import kcache_grpc.onnx as backend

    outputs = backend.run_model(model, inputs)

Needs the ``onnx`` package. ``prepare`` takes ``client=``, else one client for the process is used: that of
``kcache_grpc.Client()``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from kcache_grpc.client.client import Client
from kcache_grpc.errors import InvalidProgram, UnsupportedOp

_base: Any = import_module("onnx.backend.base")
_onnx: Any = import_module("onnx")

#: A NumPy array, whose own types say too little for strict checks.
Array = Any

#: Integers of an input that may be shapes, axes and counts; more are no such thing.
_FEW = 16
#: Kernels that a model keeps for values of inputs that sizes depend on.
_KEPT = 16

_INTEGERS = {"int4": np.int8, "int2": np.int8, "uint4": np.uint8, "uint2": np.uint8}


class Prepared(_base.BackendRep):
    """A model and its kernels. ``run`` takes arrays in the order of the inputs, or by name.

    Where an operator needs a small input as a constant (axes, shapes, counts), a kernel is compiled for each
    value of such inputs, at the sizes of the call.
    """

    def __init__(self, model: Any, client: Client) -> None:
        self._model, self._client = model, client
        weights = {tensor.name for tensor in model.graph.initializer} if model.ir_version < 4 else set[str]()
        self._inputs = [info for info in model.graph.input if info.name not in weights]
        self._kernel: Any = None
        self._special: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()
        try:
            self._kernel = client.compile(model)
        except (UnsupportedOp, InvalidProgram) as error:
            if not _may_be_sizes(error):
                raise

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Return the outputs as NumPy arrays of the types that the model declares."""
        arrays = self._arrays(inputs)
        if self._kernel is not None:
            results = self._kernel(*map(_carried, arrays))
        else:
            results = self._specialized(arrays)
        return tuple(map(_declared, results, self._model.graph.output))

    def _arrays(self, inputs: Any) -> list[Array]:
        listed: list[Any]
        if isinstance(inputs, Mapping):
            listed = [inputs[info.name] for info in self._inputs]
        else:
            listed = [*inputs] if isinstance(inputs, (list, tuple)) else [inputs]
        arrays: list[Array] = [np.asarray(x) for x in listed]
        return [x if x.flags.c_contiguous else x.copy() for x in arrays]

    def _specialized(self, arrays: list[Array]) -> tuple[Any, ...]:
        bound = [_is_size(info.name, x) for info, x in zip(self._inputs, arrays, strict=True)]
        key = tuple((x.shape, x.tobytes() if fixed else None) for x, fixed in zip(arrays, bound, strict=True))
        with self._lock:
            kernel = self._special.get(key)
        if kernel is None:
            kernel = self._client.compile(self._bound(arrays, bound))
        with self._lock:
            self._special[key] = kernel
            self._special.move_to_end(key)
            while len(self._special) > _KEPT:
                self._special.popitem(last=False)
        return kernel(*(_carried(x) for x, fixed in zip(arrays, bound, strict=True) if not fixed))

    def _bound(self, arrays: list[Array], bound: list[bool]) -> Any:
        """The model at these sizes, with some of its inputs as constants."""
        model = _onnx.ModelProto()
        model.CopyFrom(self._model)
        kept: list[Any] = []
        for info, array, fixed in zip(self._inputs, arrays, bound, strict=True):
            value_info = _onnx.ValueInfoProto()
            value_info.CopyFrom(info)
            for dim, size in zip(value_info.type.tensor_type.shape.dim, array.shape, strict=False):
                dim.dim_value = size
            if fixed:
                model.graph.initializer.append(_onnx.numpy_helper.from_array(array, info.name))
            else:
                kept.append(value_info)
        names = {info.name for info in self._inputs}
        others = [info for info in model.graph.input if info.name not in names]
        del model.graph.input[:]
        model.graph.input.extend([*kept, *others])
        return model


class Backend(_base.Backend):
    """Compiles for the CPU of this machine."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models run on ``device``: on "CPU"."""
        return device.partition(":")[0] == "CPU"

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", client: Client | None = None, **_: Any) -> Prepared:
        """Compile ``model``. Raises ``InvalidProgram``, ``UnsupportedOp``, or ``ValueError`` for a device."""
        if not cls.supports_device(device):
            raise ValueError(f"kcache's ONNX backend runs on 'CPU', not on {device!r}")
        return Prepared(model, client or _shared())

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compile and run once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run one node: ``outputs_info`` has dtype and shape of each output."""
        helper = _onnx.helper
        arrays = [np.asarray(x) for x in inputs]
        if outputs_info is None:
            raise ValueError("run_node needs outputs_info: dtype and shape of each output")
        input_specs = [(name, x.dtype, x.shape) for name, x in zip(node.input, arrays, strict=True)]
        outputs = [
            (name, dtype, shape) for name, (dtype, shape) in zip(node.output, outputs_info, strict=True)
        ]
        infos = [
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
                for name, dtype, shape in side
            ]
            for side in (input_specs, outputs)
        ]
        opset = kwargs.pop("opset_version", _onnx.defs.onnx_opset_version())
        graph = helper.make_graph([node], "node", *infos)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)])
        return cls.run_model(model, arrays, device, **kwargs)


_clients: list[Client] = []
_making = threading.Lock()


def _shared() -> Client:
    with _making:
        if not _clients:
            _clients.append(Client())
        return _clients[0]


def _may_be_sizes(error: Exception) -> bool:
    """Whether a call's values and sizes may help."""
    text = str(error)
    return "as a constant" in text or "leaves" in text or "open" in text or "has no shape" in text


def _is_size(name: str, array: Array) -> bool:
    if name in ("scales", "roi"):
        return True
    return array.size <= _FEW and (array.dtype.kind in "iubV" or array.size == 1) and array.ndim <= 1


def _carried(array: Array) -> Array:
    """What a buffer has of elements below 16 bits: bits of floats, numbers of integers, a byte each."""
    name = array.dtype.name
    if name.startswith(("float8", "float4")):
        return array.view(np.uint8)
    return array.astype(_INTEGERS[name]) if name in _INTEGERS else array


def _declared(result: Any, info: Any) -> Array:
    """A result in the type that the model declares for it."""
    dtype: Any = np.dtype(_onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
    array: Array = np.asarray(result)
    if dtype == array.dtype:
        return array
    return array.view(dtype) if dtype.name.startswith(("float8", "float4")) else array.astype(dtype)


prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
is_compatible = Backend.is_compatible
