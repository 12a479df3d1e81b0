"""Measure what a sweep does not: f16 and bf16 over all values, f64 and functions of two on samples.

``python -m tests.math.measure [COUNT]`` asks mpmath at COUNT points a function (default 7,000) and
keeps the largest distances in ``tests/math/measured.json``.
"""

from __future__ import annotations

import sys

import numpy as np

from tests.math.harness import DTYPES, compiled, ulp_distance
from tests.math.reference import IN_F64, exact, exact_of_two
from tests.math.samples import arguments, narrowed, pairs
from tests.math.sweep import distance_of, record

PAIRS = ("pow", "atan2", "zeta", "polygamma")


def halves(name: str, dtype: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(DTYPES[dtype])
    with np.errstate(all="ignore"):
        want = narrowed(IN_F64[name](x.astype(np.float64)), dtype)
        distance = ulp_distance(compiled(name, dtype)(x), want)
    at = int(np.argmax(distance))
    record(f"{name} {dtype}", {"ulp": int(distance[at]), "at": float(x[at]), "values": x.size})


def doubles(name: str, x: np.ndarray, got: np.ndarray, want: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        distance = distance_of(name, x, got, want)
    at = int(np.argmax(distance))
    record(f"{name} f64", {"ulp": int(distance[at]), "at": float(x[at]), "values": got.size})


def main(count: int) -> None:
    for name in IN_F64:
        for dtype in ("f16", "bf16"):
            halves(name, dtype)
        x = arguments(name, count, seed=99)
        want = np.array([float(exact(name, float(v))) for v in x])
        doubles(name, x, compiled(name, "f64")(x), want)
    for name in PAIRS:
        a, b = pairs(name, count)
        want = np.array([float(exact_of_two(name, float(p), float(q))) for p, q in zip(a, b, strict=True)])
        doubles(name, a, compiled(name, "f64", 2)(a, b), want)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7000)
