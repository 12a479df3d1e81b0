"""The tuner beside the recording driver, for which a launch takes a microsecond for each of its blocks."""

from __future__ import annotations

import json
import sys
from typing import Any

import kcache_grpc as kcache
from tests.runtime.gpu.cases import error_of

STREAM = """
func.func @main(%x: tensor<8192xf32>) -> tensor<8192xf32> {
  %0 = stablehlo.add %x, %x : tensor<8192xf32>
  return %0 : tensor<8192xf32>
}
"""
ANY_SIZE = STREAM.replace("8192", "?")
CHOICES = {"gpu_threads": ["128", "512"], "gpu_items": ["4"], "gpu_tile": ["64x64"]}


def tunes() -> Any:
    with kcache.Client() as client:
        tuning = client.autotune(STREAM, target="sm_90", choices=CHOICES, budget=60.0)
        recorded = client.compile(STREAM, target="sm_90", options=kcache.Options(schedule="recorded"))
        again = client.autotune(STREAM, target="sm_90", choices={"gpu_items": []}, budget=1.0)
        opened = client.autotune(
            ANY_SIZE,
            target="sm_90",
            dynamic=True,
            sizes=[{"s0": 4096}, {"s0": 65536}],
            choices={"gpu_threads": ["512"]},
            budget=60.0,
        )
    return {
        "schedule": tuning.schedule,
        "device": tuning.device,
        "timings": {timing.schedule: timing.nanoseconds for timing in tuning.timings},
        "recorded": recorded.manifest.options.schedule,
        "blocks": recorded.manifest.gpu_launches[0].grid[0],
        "new": [tuning.recorded, again.recorded],
        "rejected": dict(tuning.rejected),
        "opened": sorted([timing.sizes, timing.schedule, timing.nanoseconds] for timing in opened.timings),
    }


def rejected() -> Any:
    def why(target: str, *choices: str) -> str:
        return error_of(lambda: client.autotune(STREAM, target=target, choices=choices, budget=1.0))[1]

    with kcache.Client() as client:
        plain = client.compile(STREAM, target="sm_90", options=kcache.Options(schedule="recorded"))
        return {
            "sm_90": why("sm_90", "gpu_items", "grain"),
            "host": why("host", "gpu_items", "grain"),
            "device": why("sm_90", "gpu_items"),
            "recorded": plain.manifest.options.schedule,
        }


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
