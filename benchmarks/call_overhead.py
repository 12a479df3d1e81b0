"""What a call of a ``Kernel`` costs beside the code that it runs: two f32[4,8] in, one out.

``python -m benchmarks.call_overhead [--json FILE]``. The kernel is a C function with kcache's ABI, so that
nothing but the way to it differs; NumPy's and PyTorch's own addition stand beside it. Calls with NumPy arrays
go through the extension module, if it is installed, and through cffi.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import importlib
import importlib.util
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.environment import clear_and_restart, description
from benchmarks.rounds import Contender, Sample, interleave, ratio
from kcache_grpc.runtime.cpu import fast_call
from kcache_grpc.runtime.cpu._abi import ffi
from tests.runtime.c_kernels import ADD, make, shared_object

SHAPE = (4, 8)
OURS = "kcache Kernel, NumPy"
OURS_CFFI = "kcache Kernel, NumPy, cffi"
OURS_TORCH = "kcache Kernel, torch"
#: Contender -> what it is measured against.
RIVALS = {
    OURS: ("raw call (cffi, buffers ready)", "cffi, output ready", "ctypes, output ready", "numpy.add"),
    OURS_CFFI: (OURS,),
    OURS_TORCH: ("torch.add",),
}


def repeated(call: Any) -> Contender:
    """A contender that does nothing but call."""

    def run(count: int) -> None:
        for _ in range(count):
            call()

    return run


def contenders() -> dict[str, Contender]:
    """All by name, in the order of the report."""
    x, y, out = np.ones(SHAPE, np.float32), np.ones(SHAPE, np.float32), np.empty(SHAPE, np.float32)
    kernel = make(ADD, ["f32[4,8]"] * 2, ["f32[4,8]"])
    through_cffi = make(ADD, ["f32[4,8]"] * 2, ["f32[4,8]"])
    with mock.patch.object(fast_call, "extension", return_value=None):
        through_cffi(x, y)  # the first call decides
    path = _write(shared_object(ADD))
    library, plain = ffi.dlopen(path), ctypes.CDLL(path)
    raw, null, view = library.kcache_run, ffi.NULL, ffi.from_buffer
    ready = ffi.new("void *[]", [view(array) for array in (x, y, out)])
    table = ctypes.c_void_p * 3

    def with_ctypes() -> None:
        pointers = table(x.ctypes.data, y.ctypes.data, out.ctypes.data)
        plain.kcache_run(pointers, None, None, None)

    calls: dict[str, Any] = {
        OURS: lambda: kernel(x, y),
        OURS_CFFI: lambda: through_cffi(x, y),
        "raw call (cffi, buffers ready)": lambda: raw(ready, null, null, null),
        "cffi, output ready": lambda: raw([view(x), view(y), view(out)], null, null, null),
        "ctypes, output ready": with_ctypes,
        "numpy.add": lambda: np.add(x, y),
    }
    if importlib.util.find_spec("torch"):
        torch: Any = importlib.import_module("torch")
        a, b = torch.ones(SHAPE), torch.ones(SHAPE)
        calls[OURS_TORCH] = functools.partial(make(ADD, ["f32[4,8]"] * 2, ["f32[4,8]"]), a, b)
        calls["torch.add"] = lambda: torch.add(a, b)
    return {name: repeated(call) for name, call in calls.items()}


def _write(shared_object_bytes: bytes) -> str:
    descriptor = os.memfd_create("rival")
    os.write(descriptor, shared_object_bytes)
    return f"/proc/self/fd/{descriptor}"


def report(samples: dict[str, Sample]) -> dict[str, Any]:
    """Microseconds a call and ratios with their spread over the rounds."""
    microseconds = {
        name: {"median": sample.median * 1e6, "spread": [value * 1e6 for value in sample.spread]}
        for name, sample in samples.items()
    }
    ratios = {
        f"{ours} / {rival}": dict(
            zip(("median", "low", "high"), ratio(samples[ours], samples[rival]), strict=True)
        )
        for ours, rivals in RIVALS.items()
        for rival in rivals
        if ours in samples
    }
    environment = {**description(), "extension": fast_call.extension() is not None}
    return {"environment": environment, "microseconds": microseconds, "ratios": ratios}


def measure(rounds: int = 15, calls: int = 20_000) -> dict[str, Any]:
    """The whole report."""
    return report(interleave(contenders(), rounds=rounds, calls=calls))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the report there")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=20_000)
    options = parser.parse_args()
    result = measure(options.rounds, options.calls)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    for name, entry in result["microseconds"].items():
        low, high = entry["spread"]
        print(f"{name:34} {entry['median']:7.2f} us   ({low:.2f} to {high:.2f})")
    for name, entry in result["ratios"].items():
        print(f"{name:58} {entry['median']:6.2f}x  ({entry['low']:.2f} to {entry['high']:.2f})")


if __name__ == "__main__":
    clear_and_restart("benchmarks.call_overhead")
    main()
