"""How each contender makes a model callable: ``build(module, inputs, threads, folder)`` returns ``Call``."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from benchmarks.models.child import first_line

Inputs = tuple[torch.Tensor, ...]
#: Runs the model once; the outputs are read by the second function, if they are no tensors.
Call = tuple[Callable[[], Any], Callable[[Any], list[torch.Tensor]]]
Build = Callable[[nn.Module, Inputs, int, Path], Call]


class Absent(Exception):
    """Why a contender takes no part."""


def _tensors(outputs: Any) -> list[torch.Tensor]:
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def eager(module: nn.Module, inputs: Inputs, threads: int, folder: Path) -> Call:
    return lambda: module(*inputs), _tensors


def _kcache(options: dict[str, Any]) -> Build:
    """As users call it: a graph that no kernel computes is left to PyTorch, and is reported."""

    def build(module: nn.Module, inputs: Inputs, threads: int, folder: Path) -> Call:
        compiled = torch.compile(module, backend="kcache", dynamic=False, options=options)
        return lambda: compiled(*inputs), _tensors

    return build


def kcache_export(module: nn.Module, inputs: Inputs, threads: int, folder: Path) -> Call:
    """Exported and frozen, as for the other runtimes: a call has no guards of Dynamo."""
    from kcache_grpc.torch import load

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(module, cast(Any, inputs))
    loaded = load(exported, bound="frozen")
    return lambda: loaded(*inputs), _tensors


def _inductor(mode: str, freezing: bool) -> Build:
    def build(module: nn.Module, inputs: Inputs, threads: int, folder: Path) -> Call:
        config: Any = importlib.import_module("torch._inductor.config")
        config.freezing = freezing
        config.autotune_num_choices_displayed = 0
        compiled = torch.compile(module, mode=mode, dynamic=False)
        return lambda: compiled(*inputs), _tensors

    return build


def onnx_runtime(
    module: nn.Module, inputs: Inputs, threads: int, folder: Path, config: Mapping[str, str] | None = None
) -> Call:
    """Inputs and outputs are bound to memory that it uses again. ``config``: entries of the session's."""
    onnxruntime = _installed("onnxruntime")
    path = _exported(module, inputs, folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    for key, value in (config or {}).items():
        options.add_session_config_entry(key, value)
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for entry, tensor in zip(session.get_inputs(), inputs, strict=True):
        binding.bind_ortvalue_input(entry.name, onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy()))
    for entry in session.get_outputs():
        binding.bind_output(entry.name)

    def read(_: Any) -> list[torch.Tensor]:
        return [torch.from_numpy(array) for array in binding.copy_outputs_to_cpu()]

    return lambda: session.run_with_iobinding(binding), read


def _exported(module: nn.Module, inputs: Inputs, folder: Path) -> Path:
    """The model as ONNX, by the exporter that is based on ``torch.export``, else by TorchScript's."""
    path = folder / "model.onnx"
    reasons = [reason for dynamo in (True, False) if (reason := _export(module, inputs, path, dynamo))]
    if len(reasons) == 2:
        raise Absent(f"no export to ONNX: {'; '.join(reasons)}")
    return path


def _export(module: nn.Module, inputs: Inputs, path: Path, dynamo: bool) -> str:
    """Write the model, unless it is there; returns why that failed."""
    if path.exists():
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(module, cast(Any, inputs), path, opset_version=18, dynamo=dynamo, verbose=False)
    except Exception as error:  # noqa: BLE001 - an exporter runs the model: anything may come
        path.unlink(missing_ok=True)
        return first_line(error)
    return ""


def openvino(module: nn.Module, inputs: Inputs, threads: int, folder: Path) -> Call:
    """Converted from PyTorch in f32; one request, tuned for latency, in f32, or bf16 if the weights are."""
    sys.modules["openvino_telemetry"] = cast(Any, None)  # a benchmark reports nothing to anybody
    ov = _installed("openvino")
    narrow = any(each.dtype == torch.bfloat16 for each in module.parameters())
    module, inputs = module.float(), tuple(_widened(each) for each in inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ov.convert_model(module, example_input=inputs)
    for parameter, tensor in zip(model.inputs, inputs, strict=True):
        parameter.get_node().set_partial_shape(ov.PartialShape(list(tensor.shape)))
    model.validate_nodes_and_infer_types()
    config = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "bf16" if narrow else "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = ov.Core().compile_model(model, "CPU", config).create_infer_request()
    for index, tensor in enumerate(inputs):
        request.set_input_tensor(index, ov.Tensor(tensor.numpy(), shared_memory=True))

    def call(_read: Inputs = inputs) -> None:  # keeps the memory of the inputs
        request.infer()

    def read(_: Any) -> list[torch.Tensor]:
        return [torch.from_numpy(tensor.data.copy()) for tensor in request.output_tensors]

    return call, read


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def jax(module: nn.Module, inputs: Inputs, threads: int, folder: Path) -> Call:
    """A port of the model, jitted; the weights are arguments that lie on its device."""
    xla = _installed("jax")
    from benchmarks.models.jax_ports import PORTS

    port = PORTS.get(type(module))
    if port is None:
        raise Absent("no port of this model to JAX in this repository")
    weights = {name: xla.numpy.asarray(value.detach().numpy()) for name, value in module.state_dict().items()}
    arrays = [xla.numpy.asarray(tensor.numpy()) for tensor in inputs]
    function = xla.jit(port(module))

    def read(outputs: Any) -> list[torch.Tensor]:
        numpy: Any = importlib.import_module("numpy")
        return [torch.from_numpy(numpy.array(output)) for output in _tensors(outputs)]

    return lambda: xla.block_until_ready(function(weights, *arrays)), read


def _installed(name: str) -> Any:
    if importlib.util.find_spec(name) is None:
        raise Absent(f"{name} is not installed")
    return importlib.import_module(name)


def decisions() -> list[str]:
    """What became of the graphs of kcache in this process."""
    with contextlib.suppress(ImportError):
        from kcache_grpc.torch import decisions as list_decisions

        return [str(decision) for decision in list_decisions()]
    return []


#: In the order of the table.
CONTENDERS: dict[str, Build] = {
    "kcache": _kcache({}),
    "kcache-bound": _kcache({"bound": "weights"}),
    "kcache-export": kcache_export,
    "eager": eager,
    "inductor": _inductor("default", freezing=False),
    "inductor-freezing": _inductor("default", freezing=True),
    "inductor-max-autotune": _inductor("max-autotune", freezing=False),
    "onnxruntime": onnx_runtime,
    "openvino": openvino,
    "jax": jax,
}
