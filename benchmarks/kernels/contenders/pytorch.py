"""PyTorch: eager, and compiled by Inductor. Results are new tensors, as PyTorch's users get them."""

from __future__ import annotations

import functools
import importlib
import os
import tempfile
from typing import Any

import numpy as np
import torch

from benchmarks.kernels.case import Array, Case, flat
from benchmarks.kernels.contenders import Absent, Built
from benchmarks.kernels.contenders.stopwatch import Stopwatch

EAGER, INDUCTOR, AUTOTUNED = "torch eager", "Inductor", "Inductor max-autotune"
#: Groups in which autotuning has something to choose on a CPU: templates of contractions.
TUNED_GROUPS = {"matmul", "matmul with epilogue", "matmul bf16", "convolution", "attention", "whole graphs"}


def tensor(array: Array) -> Any:
    """The same memory."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def reference(case: Case, inputs: list[Array]) -> list[Array]:
    """The same function in f64, which all results are compared with."""
    with torch.no_grad():
        tensors = [each if each.dtype == torch.int32 else each.double() for each in map(tensor, inputs)]
        return [np.asarray(result.double()) for result in flat(case.torch(*tensors))]


def build_eager(case: Case, inputs: list[Array]) -> Built:
    """As written."""
    return Built(functools.partial(case.torch, *map(tensor, inputs)), _read)


def build_inductor(case: Case, inputs: list[Array], mode: str = "default") -> Built:
    """Seconds to compile are those of the first call; caches are empty at the start of a run."""
    if mode != "default" and case.group not in TUNED_GROUPS:
        raise Absent("nothing to tune on a CPU")
    torch.compiler.reset()
    inductor: Any = importlib.import_module("torch._inductor.config")
    inductor.autotune_num_choices_displayed = 0
    call = functools.partial(torch.compile(case.torch, mode=mode, dynamic=False), *map(tensor, inputs))
    watch = Stopwatch(os.getpid())
    call()
    return Built(call, _read, *watch.read())


def core() -> str:
    """What PyTorch's MKL says of the kernels that it chose for this machine."""
    if not torch.backends.mkl.is_available():
        return "no MKL"
    told = os.dup(1)
    with tempfile.TemporaryFile("w+") as said:
        os.dup2(said.fileno(), 1)
        try:
            with torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON):
                _ = torch.ones(8, 8) @ torch.ones(8, 8)
        finally:
            os.dup2(told, 1)
            os.close(told)
        said.seek(0)
        first = said.readline().strip()
    return first.removeprefix("MKL_VERBOSE ") or "unknown"


def _read(result: Any) -> list[Array]:
    return [each.contiguous().double().numpy() for each in flat(result)]
