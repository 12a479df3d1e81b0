"""What a launch costs: the pool that kernels bring along, Python's threads, PyTorch's.

``python -m benchmarks.launches [--json FILE] [--threads N]``. An empty launch has slices without work: what
is left is the way to the threads and back. The others add two f32 arrays of so many elements, all in cache,
on the pool, on Python's threads, on one thread, and with PyTorch's own addition on its threads and on one.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.environment import clear_and_restart, description
from benchmarks.rounds import Contender, Sample, interleave
from kcache_grpc.runtime.cpu.library import load_library
from kcache_grpc.runtime.cpu.native_pool import NativeThreads
from kcache_grpc.runtime.cpu.python_pool import PythonThreads
from kcache_grpc.runtime.cpu.threads import available_cpus
from tests.runtime.c_kernels import make, shared_object

SIZES = (1 << 13, 1 << 15, 1 << 17, 1 << 19)
POOL, PYTHON, ALONE = "kcache pool", "Python threads", "one thread"
#: A kernel of so many launches, so that the call around them does not count.
LAUNCHES = 200
BODY = """
static __attribute__((unused)) int32_t add(void *c, int64_t begin, int64_t end, int64_t worker) {
    float *const *p = c;
    const float *restrict x = p[0], *restrict y = p[1];
    float *restrict out = p[2];
    for (int64_t i = begin; i < end; i++) out[i] = x[i] + y[i];
    return 0;
}
static __attribute__((unused)) int32_t nothing(void *c, int64_t begin, int64_t end, int64_t worker) {
    return 0;
}
RUN {
    int32_t code = 0;
    void *c[3] = { buffers[0], buffers[1], buffers[2] };
    for (int i = 0; i < COUNT && !code; i++)
        code = host ? host->parallel_for(host->ctx, N, GRAIN, TASK, c) : TASK(c, 0, N, 0);
    return code;
}
"""


def kernel(size: int, task: str, threads: Any) -> Contender:
    """So many launches of ``task``; a round counts launches, not calls."""
    values = {"COUNT": LAUNCHES, "TASK": task, "N": size, "GRAIN": max(size // 4, 1)}
    body = "".join(f"#define {name} {value}\n" for name, value in values.items()) + BODY
    kind = f"f32[{size}]"
    launches = [(str(size), str(values["GRAIN"]))] if threads else []
    built = make(
        f'#pragma GCC optimize("O3")\n{body}', [kind] * 2, [kind], launches=launches, threads=threads
    )
    x = np.ones(size, np.float32)

    def run(count: int) -> None:
        for _ in range(max(count // LAUNCHES, 1)):
            built(x, x)

    return run


def contenders(threads: int) -> dict[str, Contender]:
    """All by name, in the order of the report."""
    brought = load_library(shared_object("RUN { return 0; }", pool=True), "pool", 1)
    pools = {POOL: NativeThreads(brought, threads), PYTHON: PythonThreads(threads), ALONE: None}
    calls = {f"empty, {name}": kernel(4, "nothing", pool) for name, pool in pools.items()}
    for size in SIZES:
        for name, pool in pools.items():
            calls[f"add {size}, {name}"] = kernel(size, "add", pool)
        if importlib.util.find_spec("torch"):
            for count in dict.fromkeys((threads, 1)):
                calls[f"add {size}, torch, {count} threads"] = _torch(size, count)
    return calls


def _torch(size: int, threads: int) -> Contender:
    torch: Any = importlib.import_module("torch")
    x, out = torch.ones(size), torch.empty(size)

    def run(count: int) -> None:
        torch.set_num_threads(threads)
        for _ in range(count):
            torch.add(x, x, out=out)

    return run


def measure(rounds: int = 15, launches: int = 1000, threads: int | None = None) -> dict[str, Any]:
    """Microseconds a launch: median and spread over the rounds."""
    samples: dict[str, Sample] = interleave(
        contenders(threads or available_cpus()), rounds=rounds, calls=launches
    )
    microseconds = {
        name: {"median": sample.median * 1e6, "spread": [value * 1e6 for value in sample.spread]}
        for name, sample in samples.items()
    }
    return {"environment": description(), "microseconds": microseconds}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the report there")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--launches", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=available_cpus())
    options = parser.parse_args()
    result = measure(options.rounds, options.launches, options.threads)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    for name, entry in result["microseconds"].items():
        low, high = entry["spread"]
        print(f"{name:34} {entry['median']:8.2f} us   ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    clear_and_restart("benchmarks.launches")
    main()
