"""Every f32 value: ``python -m tests.math.sweep [--step=N] [NAME...]`` measures one-argument functions.

Each function is run over all 2**32 arguments in chunks and compared with an f64 reference rounded
to f32. The largest distance, in units of the last place, goes to ``tests/math/measured.json``,
from which ``python -m tests.math.report`` writes docs/results/math-accuracy.md. A minute or more a function;
with a step, only one value in N is asked, and the entry says so.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import sys
import time
from pathlib import Path

import numpy as np

from kcache_compiler.passes.math import functions
from kcache_compiler.passes.math.table import function
from tests.math.harness import compiled, ulp_distance
from tests.math.reference import IN_F64

RESULTS = Path(__file__).parent / "measured.json"
CHUNK = 1 << 22


NEAR_ZERO = frozenset(f.name for f in functions() if f.near_zero)
#: Where a change of sign is looked for: zeros of lgamma lie closer than 1 / n! on both sides of -n.
AROUND = np.concatenate(
    [np.linspace(-0.1, 0.1, 41), *(sign * 0.1 * 2.0 ** -np.arange(1, 40) for sign in (1, -1))]
)


def distance_of(name: str, x: np.ndarray, got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Units of the last place; of 1.0, where the function changes its sign within 0.1 of ``x``."""
    distance = ulp_distance(got, want)
    far = np.flatnonzero(distance > 4) if name in NEAR_ZERO else np.array([], dtype=np.int64)
    if far.size:
        signs = np.sign(IN_F64[name](x[far].astype(np.float64)[:, None] + AROUND))
        unit = 2.0**52 if got.dtype == np.float64 else 2.0**23
        absolute = np.abs(got[far].astype(np.float64) - want[far].astype(np.float64)) * unit
        usable = (signs.min(axis=1) != signs.max(axis=1)) & (absolute < distance[far])
        distance[far] = np.where(usable, np.ceil(np.where(usable, absolute, 0)), distance[far])
    return distance


#: What the negative half is, given the other: the reference is asked for one half only.
ODD = {"tanh", "sinh", "asinh", "atanh", "sin", "tan", "asin", "atan", "cbrt", "erf", "erf_inv", "bessel_i1e"}
EVEN = {"cos", "cosh"}
POSITIVE = {"log", "log2", "log10", "acosh", "sqrt", "rsqrt"}


def _mirrored(name: str, x: np.ndarray, got: np.ndarray, mirror: np.ndarray) -> np.ndarray:
    """Whether ``mirror``, the results at -x, follow from ``got``, those at x."""
    nans = np.isnan(got) & np.isnan(mirror)
    if name in ODD:
        return nans | ((got == -mirror) & (np.signbit(got) != np.signbit(mirror)))
    if name in EVEN:
        return nans | (got == mirror)
    return np.isnan(mirror) | (x == 0)


def sweep(name: str, step: int = 1, offset: int = 0) -> tuple[int, float, int]:
    """(largest distance, an argument where it occurs, arguments asked with a distance above 0)."""
    ours, reference = compiled(name, "f32"), IN_F64[name]
    symmetric = name in ODD | EVEN | POSITIVE
    end = 1 << 31 if symmetric else 1 << 32
    worst, where, inexact = 0, 0.0, 0
    with np.errstate(all="ignore"):
        for start in range(offset, end, CHUNK * step):
            x = (
                np.arange(start, min(start + CHUNK * step, end), step, dtype=np.int64)
                .astype(np.uint32)
                .view(np.float32)
            )
            got = ours(x)
            want = reference(x.astype(np.float64)).astype(np.float32)
            distance = distance_of(name, x, got, want)
            if symmetric and not np.all(_mirrored(name, x, got, ours(-x))):
                raise AssertionError(f"{name}: the negative half is not what the positive one says")
            at = int(np.argmax(distance))
            inexact += int(np.count_nonzero(distance))
            if distance[at] > worst:
                worst, where = int(distance[at]), float(x[at])
    return worst, where, inexact


def code_of(key: str) -> str:
    """A digest of what computes the function: ``key`` is its name and its dtype."""
    name, dtype = key.split()
    return hashlib.sha256(function(name, dtype).text("x").encode()).hexdigest()[:16]


def record(key: str, entry: dict[str, object]) -> None:
    """Keep the entry, unless it is of fewer values than one of the same code that is there."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    old, code = results.get(key, {}), code_of(key)
    if old.get("code") == code and old.get("values", 0) > entry["values"]:
        return
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    results[key] = {**entry, "code": code, "date": today}
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def main(arguments: list[str]) -> None:
    step = next((int(a.removeprefix("--step=")) for a in arguments if a.startswith("--step=")), 1)
    for name in [a for a in arguments if not a.startswith("-")] or list(IN_F64):
        begin = time.monotonic()
        worst, where, inexact = sweep(name, step)
        record(f"{name} f32", {"ulp": worst, "at": where, "values": (1 << 32) // step})
        seconds = time.monotonic() - begin
        print(f"{name}: {worst} at {where!r}, {inexact} not correctly rounded, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
