"""What it costs that PyTorch and kernels have threads of their own: a kernel alone, and after ``torch.add``.

``python -m benchmarks.shared_threads [--json FILE]``. The kernel computes 8 multiply-adds an element. It runs
on the threads of PyTorch's OpenMP runtime, on the kernels' own pool, and on one thread.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

from benchmarks.call_overhead import repeated
from benchmarks.environment import clear_and_restart, description
from benchmarks.rounds import Contender, Sample, interleave
from kcache_grpc.runtime.torch.call import TorchCall
from tests.runtime.c_kernels import make

SIZES = (40_000, 131_072)
BODY = """
typedef struct { const float *x; float *y; } closure_t;
static int32_t task(void *data, int64_t begin, int64_t end, int64_t worker) {
    closure_t *c = data;
    for (int64_t i = begin; i < end; i++) {
        float value = c->x[i];
        for (int k = 0; k < 8; k++) value = value * 0.999f + 0.5f;
        c->y[i] = value;
    }
    return 0;
}
RUN {
    closure_t c = { buffers[0], buffers[1] };
    return host ? host->parallel_for(host->ctx, SIZE, 4096, task, &c) : task(&c, 0, SIZE, 0);
}
"""


def contenders(size: int) -> dict[str, Contender]:
    """All by name, for a vector of so many elements."""
    torch: Any = importlib.import_module("torch")
    x, y = torch.rand(size), torch.rand(size)

    def kernel(launches: list[tuple[str, str]], share: bool) -> TorchCall:
        vector, body = [f"f32[{size}]"], BODY.replace("SIZE", str(size))
        return TorchCall(make(body, vector, vector, launches=launches, pool=True), share_threads=share)

    launches = [(str(size), "4096")]
    calls = {
        "OpenMP": kernel(launches, share=True),
        "own pool": kernel(launches, share=False),
        "one thread": kernel([], share=False),
    }
    contenders: dict[str, Any] = {"torch.add": lambda: torch.add(x, y)}
    for name, call in calls.items():
        contenders[f"{name}, alone"] = lambda call=call: call([x])
        contenders[f"{name}, after torch.add"] = lambda call=call: (torch.add(x, y), call([x]))
    return {name: repeated(call) for name, call in contenders.items()}


def report(samples: dict[str, Sample]) -> dict[str, dict[str, float]]:
    """Microseconds: median, and the fastest round, which other processes disturbed least."""
    return {
        name: {"median": sample.median * 1e6, "fastest": sample.spread[0] * 1e6}
        for name, sample in samples.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the report there")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=20)
    options = parser.parse_args()
    sizes = {
        str(size): report(interleave(contenders(size), rounds=options.rounds, calls=options.calls))
        for size in SIZES
    }
    result = {"environment": description(), "sizes": sizes}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(", ".join(f"{name} {value}" for name, value in description().items() if name != "versions"))
    for size, rows in sizes.items():
        print(f"{size} elements")
        for name, row in rows.items():
            print(f"  {name:28} {row['median']:10.1f} us, fastest round {row['fastest']:10.1f} us")


if __name__ == "__main__":
    clear_and_restart("benchmarks.shared_threads")
    main()
