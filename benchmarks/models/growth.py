"""Memory of a process that calls a bound model many times.

``python -m benchmarks.models.growth [--models NAMES] [--contenders NAMES] [--calls N] [--json FILE]``. A
process calls a model with bound weights on one thread, without a pause. It samples twenty times during the
calls its resident memory that is not of files, the bytes that ``malloc`` has handed out, and the number of
allocated blocks of Python. Printed are, of the samples after the first tenth of the calls, the least squares
slope for 1,000 calls, and the difference of the last and the first one.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.environment import clear_and_restart
from benchmarks.models.arguments import names
from benchmarks.models.memory import last_line, resident
from tests.serving import ServerProcess

SAMPLES = 20
#: Samples of the first tenth of the calls, in which caches are filled.
SETTLING = 2
#: Of both frontends, as ``benchmarks.models.contenders`` names them.
BOUND = ("kcache-bound", "kcache-export")
_KIB = 1 << 10


class _Mallinfo2(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def allocated() -> int:
    """Bytes that ``malloc`` has handed out and that were not freed, of all threads."""
    mallinfo2 = ctypes.CDLL("libc.so.6").mallinfo2
    mallinfo2.restype = _Mallinfo2
    info = mallinfo2()
    return info.uordblks + info.hblkhd


def sampled(call: Callable[[], Any], calls: int) -> dict[str, list[int]]:
    """Samples after each twentieth of the calls, by name."""
    samples: dict[str, list[int]] = {"resident": [], "malloc": [], "blocks": []}
    for _ in range(SAMPLES):
        for _ in range(calls // SAMPLES):
            call()
        gc.collect()
        samples["resident"].append(resident())
        samples["malloc"].append(allocated())
        samples["blocks"].append(sys.getallocatedblocks())
    return samples


def slope(samples: Sequence[int], calls: int) -> float:
    """By least squares, for 1,000 calls, after the first tenth."""
    settled = samples[SETTLING - 1 :]
    middle, mean = (len(settled) - 1) / 2, sum(settled) / len(settled)
    square = sum((index - middle) ** 2 for index in range(len(settled)))
    step = sum((index - middle) * (value - mean) for index, value in enumerate(settled)) / square
    return step / (calls // SAMPLES) * 1000


def child(model: str, contender: str, calls: int, folder: Path) -> dict[str, list[int]]:
    """Measured in this process."""
    import torch

    from benchmarks.models.catalog import instantiate
    from benchmarks.models.contenders import CONTENDERS

    torch.set_num_threads(1)
    module, inputs = instantiate(model)
    with torch.no_grad():
        call, _ = CONTENDERS[contender](module, inputs, 1, folder)
        call()
        return sampled(call, calls)


def measured(model: str, contender: str, calls: int, address: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="kcache-growth-") as folder:
        command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--child", folder, address]
        done = subprocess.run(
            [*command, "--models", model, "--contenders", contender, "--calls", str(calls)],
            check=True,
            capture_output=True,
            text=True,
        )
    return {"calls": calls, "samples": json.loads(done.stdout.splitlines()[-1])}


def row(model: str, contender: str, report: dict[str, Any]) -> str:
    calls, samples = report["calls"], report["samples"]
    cells = [f"{samples['resident'][-1] / _KIB / _KIB:.1f}"]
    for name, unit in (("resident", _KIB), ("malloc", _KIB), ("blocks", 1)):
        settled = samples[name][SETTLING - 1 :]
        cells.append(f"{slope(samples[name], calls) / unit:+.2f} ({(settled[-1] - settled[0]) / unit:+.1f})")
    return f"| {' | '.join([model, contender, f'{calls:,}', *cells])} |"


def arguments() -> argparse.Namespace:
    from benchmarks.models.catalog import MODELS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=names(MODELS), default=list(MODELS))
    parser.add_argument("--contenders", type=names(BOUND), default=list(BOUND), help=f"of {', '.join(BOUND)}")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.child:
        folder, address = options.child
        os.environ |= {
            "KCACHE_ADDR": address,
            "KCACHE_CACHE_DIR": str(Path(folder) / "cache"),
            "KCACHE_NUM_THREADS": "1",
        }
        print(json.dumps(child(options.models[0], options.contenders[0], options.calls, Path(folder))))
        return
    clear_and_restart(__spec__.name)
    print("| model | contender | calls | resident, MiB | slope, KiB | `malloc`, KiB | blocks of Python |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="kcache-growth-") as name, ServerProcess(Path(name)) as server:
        for model, contender in ((each, other) for each in options.models for other in options.contenders):
            try:
                report = measured(model, contender, options.calls, server.address)
            except subprocess.CalledProcessError as error:
                print(f"| {model} | {contender} | not measured: {last_line(error.stderr)} |", flush=True)
                continue
            rows[f"{model}, {contender}"] = report
            print(row(model, contender, report), flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
