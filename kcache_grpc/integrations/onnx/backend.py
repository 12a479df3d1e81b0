"""ONNX's standard backend interface (``onnx.backend.base``) over kernels of kcache."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from kcache_grpc.client.client import Client
from kcache_grpc.integrations.onnx.model import Array, CompiledModel, onnx, shared_client

_base: Any = import_module("onnx.backend.base")


class Prepared(_base.BackendRep):
    """A model and its kernels. ``run`` takes arrays in the order of the inputs, or by name.

    Where an operator needs a small input as a constant (axes, shapes, counts), a kernel is compiled for each
    value of such inputs, at the sizes of the call.
    """

    def __init__(self, model: Any, client: Client) -> None:
        self._compiled = CompiledModel(model, client)

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Return the outputs as NumPy arrays of the types that the model declares."""
        return self._compiled.run(self._arrays(inputs))

    def _arrays(self, inputs: Any) -> list[Array]:
        listed: list[Any]
        if isinstance(inputs, Mapping):
            listed = [inputs[info.name] for info in self._compiled.inputs]
        else:
            listed = [*inputs] if isinstance(inputs, (list, tuple)) else [inputs]
        arrays: list[Array] = [np.asarray(x) for x in listed]
        return [x if x.flags.c_contiguous else x.copy() for x in arrays]


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
        return Prepared(model, client or shared_client())

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compile and run once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run one node: ``outputs_info`` has dtype and shape of each output."""
        helper = onnx.helper
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
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        graph = helper.make_graph([node], "node", *infos)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)])
        return cls.run_model(model, arrays, device, **kwargs)


prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
is_compatible = Backend.is_compatible
