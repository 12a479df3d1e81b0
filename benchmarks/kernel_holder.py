"""What a hit of a ``KernelHolder`` costs beside its kernel, and loading a table of 20,000 entries.

``python -m benchmarks.kernel_holder [--json FILE]``. Compiles ``aten::add.Tensor`` for f32[8,16] with the
embedded service in a temporary cache directory; then interleaved rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import torch

import kcache_grpc as kcache
from benchmarks.environment import clear_and_restart, description
from benchmarks.rounds import Contender, interleave
from kcache_grpc.integrations.torch.eager_kernel_table import EagerKernelTable
from kcache_grpc.torch import KernelHolder, register

ENTRIES = 20_000


def repeated(call: Any) -> Contender:
    """A contender that does nothing but call."""

    def run(count: int) -> None:
        for _ in range(count):
            call()

    return run


def hits(rounds: int, calls: int) -> dict[str, Any]:
    """Microseconds a call, and the differences round by round."""
    x, y = torch.rand(8, 16), torch.rand(8, 16)
    with tempfile.TemporaryDirectory() as folder, kcache.Client(cache_dir=Path(folder) / "c") as client:
        holder = KernelHolder("aten::add.Tensor", client=client, strict=True)
        holder(x, y)
        kernel = next(iter(holder._calls.values())).kernel  # type: ignore[union-attr]
        dispatched = register("aten::mul.Tensor", client=client)
        contenders = {
            "kernel": repeated(lambda: kernel(x, y)),
            "holder": repeated(lambda: holder(x, y)),
            "registered": repeated(lambda: torch.mul(x, y)),
            "torch.add": repeated(lambda: torch.add(x, y)),
        }
        samples = interleave(contenders, rounds=rounds, calls=calls)
        dispatched.unregister()
    base = samples["kernel"].seconds
    microseconds = {name: sample.median * 1e6 for name, sample in samples.items()}
    beyond = {
        name: statistics.median((a - b) * 1e6 for a, b in zip(samples[name].seconds, base, strict=True))
        for name in ("holder", "registered")
    }
    return {"microseconds": microseconds, "beyond_kernel": beyond}


def loading(rounds: int) -> dict[str, float]:
    """Milliseconds to load a table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.jsonl"
        toolchain = "0" * 16
        metadata = [{"name": "self", "kind": "tensor", "sizes": [8, 16], "strides": [16, 1]}] * 3
        EagerKernelTable(path, toolchain).add("0" * 32, {"metadata": metadata, "program": "0" * 64})
        rest = path.read_bytes()[len('{"check":"') + 8 : -1]
        keyed = [rest.replace(b'"key":"' + b"0" * 32, b'"key":"%032x' % n, 1) for n in range(ENTRIES)]
        path.write_bytes(b"".join(b'{"check":"%08x%b\n' % (zlib.crc32(line), line) for line in keyed))
        seconds: list[float] = []
        for _ in range(rounds):
            table = EagerKernelTable(path, toolchain)
            started = time.perf_counter()
            table.refresh()
            seconds.append(time.perf_counter() - started)
            assert len(table) == ENTRIES
    return {"entries": ENTRIES, "median_ms": statistics.median(seconds) * 1e3, "best_ms": min(seconds) * 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the report there")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=5_000)
    options = parser.parse_args()
    result = {
        "environment": description(),
        "table": loading(options.rounds),
        "hit": hits(options.rounds, options.calls),
    }
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    for name, value in result["hit"]["microseconds"].items():
        print(f"{name:12} {value:7.2f} us")
    for name, value in result["hit"]["beyond_kernel"].items():
        print(f"{name:12} {value:+7.2f} us beyond the kernel")
    print(f"{ENTRIES} entries load in {result['table']['median_ms']:.0f} ms (median)")


if __name__ == "__main__":
    clear_and_restart("benchmarks.kernel_holder")
    main()
