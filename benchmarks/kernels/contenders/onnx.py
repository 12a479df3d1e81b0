"""ONNX Runtime: the PyTorch function exported to ONNX; outputs bound to memory that it uses again."""

from __future__ import annotations

import functools
import importlib
import io
import logging
import time
import warnings
from typing import Any, cast

import torch

from benchmarks.kernels.case import Array, Case
from benchmarks.kernels.contenders import Absent, Built
from benchmarks.kernels.contenders.pytorch import tensor

NAME = "ONNX Runtime"


class _Module(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arrays: Any) -> Any:
        return self.function(*arrays)


def build(case: Case, inputs: list[Array], threads: int) -> Built:
    """Seconds to compile are those of the session, from the model's bytes."""
    if any(array.dtype.name == "bfloat16" for array in inputs):
        raise Absent("few bf16 kernels on a CPU")
    try:
        onnxruntime: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise Absent("onnxruntime is not installed") from error
    model = _exported(case, inputs)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    started = time.perf_counter()
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's errors have no common base
        raise Absent(str(error).partition("\n")[0][:100]) from error
    seconds = time.perf_counter() - started
    binding = session.io_binding()
    for entry, array in zip(session.get_inputs(), inputs, strict=True):
        binding.bind_ortvalue_input(entry.name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    for entry in session.get_outputs():
        binding.bind_output(entry.name)
    call = functools.partial(session.run_with_iobinding, binding)
    return Built(call, lambda _: binding.copy_outputs_to_cpu(), compile_s=seconds)


def _exported(case: Case, inputs: list[Array]) -> bytes:
    buffer = io.BytesIO()
    names = [f"x{index}" for index in range(len(inputs))]
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            arrays = tuple(map(tensor, inputs))
            module = _Module(case.torch)
            torch.onnx.export(
                module, arrays, cast(Any, buffer), input_names=names, opset_version=18, dynamo=False
            )
    except Exception as error:  # a tracer runs the function: anything may come
        raise Absent(f"no export: {str(error).strip().partition(chr(10))[0][:100]}") from error
    return buffer.getvalue()
