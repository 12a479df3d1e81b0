"""``python -m benchmarks.gpu.calls [--rounds N]``: what a call of a GPU kernel costs the CPU, without a GPU.

The CUDA driver is one that runs nothing (tests/runtime/gpu/recording_driver.c, which needs a C compiler), so
what is left is this project's part: checks, memory, parameters, launches. CPU time of one thread, the least
of the rounds, in microseconds a call. PyTorch's CPU tensors stand for its tensors on a GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CALLS = 1000
_INSIDE = "KCACHE_BENCH_RECORDING_DRIVER"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    if _INSIDE not in os.environ:
        _again()
    measured(arguments.rounds)


def _again() -> None:
    """This process again, with the recording driver in the place of NVIDIA's."""
    from tests.runtime.gpu.recorded import driver_folder

    folder = driver_folder()
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), _INSIDE: str(folder)}
    environment.pop("RECORDER_LOG", None)
    root = Path(__file__).parents[2]
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (root, root / "compiler", root / "migrations")))
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.gpu.calls", *sys.argv[1:]], environment)


def measured(rounds: int) -> None:
    """Prints a line for each kind of array and of kernel."""
    import torch

    from kcache_grpc.runtime.gpu.device import device_numbered
    from kcache_grpc.runtime.gpu.repeated_call import for_torch
    from tests.runtime.gpu.cases import SCALE, View, array, kernel

    device = device_numbered(0)
    x, tensor = array(256), torch.zeros(256)
    kernels = {
        "one launch": lambda: kernel(gpu_launches=(SCALE,), workspace_bytes="0"),
        "two launches and a workspace": kernel,
    }
    for name, make in kernels.items():
        compiled: Any = make()
        exported: Any = View(x, 0)
        ways: dict[str, Callable[[], Any]] = {
            "own arrays, context not current": lambda compiled=compiled: compiled(x),
            "arrays through DLPack": lambda compiled=compiled, exported=exported: compiled(exported),
            "of that their export": lambda exported=exported: exported.__dlpack__(stream=1, max_version=None),
        }
        for way, call in ways.items():
            print(f"{name:30} {way:34} {_least(call, rounds):6.1f} us")
        compiled(x)
        (plan,) = compiled._gpu._plans.values()  # pyright: ignore[reportPrivateUsage]
        short = for_torch(plan, torch.device("cpu"), lambda: 0)
        with device.driver.within(device.context):
            ways = {
                "own arrays": lambda compiled=compiled: compiled(x),
                "PyTorch's, but for its allocator": lambda short=short: short((tensor,)),
            }
            for way, call in ways.items():
                print(f"{name:30} {way:34} {_least(call, rounds):6.1f} us")


def _least(call: Callable[[], Any], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        began = time.thread_time()
        for _ in range(_CALLS):
            call()
        best = min(best, (time.thread_time() - began) / _CALLS)
    return best * 1e6


if __name__ == "__main__":
    main()
