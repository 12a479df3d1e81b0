"""``python -m benchmarks.gpu [--only GLOB] [--rounds N] [--json FILE]``: kernels on this machine's GPU.

Beside PyTorch eager (cuBLAS for matrix products), Inductor and, for attention, PyTorch's flash attention
("special"; 0: there is none), in turns on one stream, timed by CUDA events.
Without a GPU, or a PyTorch for it, it says so and measures nothing.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.gpu.target import GPU_TARGETS, GpuTarget
from kcache_grpc.runtime.gpu.device import Device, device_numbered

#: Calls between two events: short kernels are timed together.
_CALLS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="GLOB", default="*")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    try:
        device = device_numbered(0)
    except ArgumentError as error:
        sys.exit(f"no GPU: nothing was measured ({error.message})")
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        sys.exit("no GPU for PyTorch: nothing was measured (this PyTorch has no CUDA)")
    report = measured(torch, device, arguments.only, arguments.rounds)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


def measured(torch: Any, device: Device, only: str, rounds: int) -> dict[str, Any]:
    """All cases, printed as they come."""
    import kcache_grpc as kcache
    from benchmarks.gpu.cases import cases

    runs = [name for name in GPU_TARGETS if GpuTarget(name).runs_on(device.capability) and name[-1].isdigit()]
    copied = _copy_bandwidth(torch, rounds)
    report: dict[str, Any] = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(0),
        "cuda": ".".join(map(str, device.driver.version)),
        "torch": torch.__version__,
        "target": runs[-1],
        "copy_gb_per_s": copied,
        "cases": [],
    }
    print(json.dumps({name: value for name, value in report.items() if name != "cases"}))
    print(
        f"{'case':18} {'us':>9} {'of copy':>8} {'TFLOP/s':>8} {'x eager':>8} {'x inductor':>10} "
        f"{'x special':>9}  error"
    )
    with tempfile.TemporaryDirectory() as folder, kcache.Client(cache_dir=folder) as client:
        for case in cases():
            if fnmatch.fnmatch(case.name, only):
                result = _case(torch, client, case, runs[-1], rounds, copied)
                report["cases"].append(result)
    report["call_us"] = _overhead(torch, runs[-1])
    print(f"a call of a kernel of 1,024 elements takes {report['call_us']:.1f} us of this CPU")
    return report


def _case(torch: Any, client: Any, case: Any, target: str, rounds: int, copied: float) -> dict[str, Any]:
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[case.dtype]
    arguments = [torch.randn(shape, device="cuda").to(dtype) for shape in case.shapes]
    kernel = client.compile(case.program, target=target)
    compiled = torch.compile(case.eager)
    ways: dict[str, Callable[[], Any]] = {
        "ours": lambda: kernel(*arguments)[0],
        "eager": lambda: case.eager(*arguments),
        "inductor": lambda: compiled(*arguments),
    }
    if case.special is not None:
        special = case.special
        ways["special"] = lambda: special(*arguments)
    wanted = case.eager(*(argument.double() for argument in arguments)) if not case.flops else ways["eager"]()
    error = float((ways["ours"]().double() - wanted.double()).abs().max())
    times = _times(torch, ways, rounds)
    best = {name: statistics.median(each) for name, each in times.items()}
    result = {
        "name": case.name,
        "us": best,
        "spread_us": {name: [min(each), max(each)] for name, each in times.items()},
        "share_of_copy": case.moved / best["ours"] / 1e3 / copied,
        "tflops": case.flops / best["ours"] / 1e6,
        "max_error": error,
    }
    print(
        f"{case.name:18} {best['ours']:9.1f} {result['share_of_copy']:8.2f} {result['tflops']:8.1f} "
        f"{best['eager'] / best['ours']:8.2f} {best['inductor'] / best['ours']:10.2f} "
        f"{best['special'] / best['ours'] if 'special' in best else 0:9.2f}  {error:.1e}"
    )
    return result


def _times(torch: Any, ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Microseconds a call, ways in turn, after a round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, call in ways.items():
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            call()
            first.record()
            for _ in range(_CALLS):
                call()
            last.record()
            last.synchronize()
            if number:
                times[name].append(first.elapsed_time(last) * 1e3 / _CALLS)
    return times


def _copy_bandwidth(torch: Any, rounds: int) -> float:
    """GB/s of a copy inside the GPU's memory, read and written."""
    source = torch.empty(1 << 28, device="cuda")
    target = torch.empty_like(source)
    [times] = _times(torch, {"copy": lambda: target.copy_(source)}, rounds).values()
    return 2 * source.nbytes / statistics.median(times) / 1e3


def _overhead(torch: Any, target: str) -> float:
    """Microseconds of CPU that a call takes, the GPU being faster."""
    import kcache_grpc as kcache

    kind = "tensor<1024xf32>"
    text = (
        f"func.func @main(%a: {kind}) -> {kind} {{ %r = stablehlo.add %a, %a : {kind}\nreturn %r : {kind} }}"
    )
    with tempfile.TemporaryDirectory() as folder, kcache.Client(cache_dir=folder) as client:
        kernel = client.compile(text, target=target)
        x = torch.ones(1024, device="cuda")
        best = float("inf")
        for _ in range(20):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(200):
                kernel(x)
            best = min(best, (time.perf_counter() - began) / 200)
        torch.cuda.synchronize()
    return best * 1e6


if __name__ == "__main__":
    main()
