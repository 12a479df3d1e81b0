"""f16 and bf16: every value of every one-argument function, at most one unit from the rounded result."""

import numpy as np
import pytest

from kcache_compiler.passes.math import functions
from tests.math.harness import DTYPES, compiled, ulp_distance
from tests.math.reference import IN_F64, IN_F64_OF_TWO
from tests.math.samples import narrowed

BY_NAME = {f.name: f for f in functions()}
EXACT = {
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "roundeven": np.rint,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "sign": lambda x: np.where(x == 0, x, np.sign(x)),
    "absf": np.abs,
}


@pytest.mark.sampled(24)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", [*IN_F64, *EXACT])
def test_every_value(name: str, dtype: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(DTYPES[dtype])
    with np.errstate(all="ignore"):
        want = narrowed((IN_F64 | EXACT)[name](x.astype(np.float64)), dtype)
        distance = ulp_distance(compiled(name, dtype)(x), want)
    worst = int(np.argmax(distance))
    assert distance[worst] <= (1 if BY_NAME[name].ulp else 0), (x[worst], want[worst])


def special_pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    tiny = {"f16": 6e-8, "bf16": 1e-40}[dtype]
    edge = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        3.0,
        -3.0,
        0.5,
        -0.5,
        7.5,
        np.inf,
        -np.inf,
        np.nan,
        tiny,
        -tiny,
        6e4,
    ]
    a, b = np.meshgrid(np.array(edge), np.array(edge))
    rng = np.random.default_rng(7)
    sample = rng.normal(size=(2, 20000)) * 10.0 ** rng.uniform(-4, 4, (2, 20000))
    first, second = (
        np.concatenate(p).astype(DTYPES[dtype]) for p in ((a.ravel(), sample[0]), (b.ravel(), sample[1]))
    )
    return first, second


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["pow", "atan2", "rem"])
def test_pairs(name: str, dtype: str) -> None:
    a, b = special_pairs(dtype)
    with np.errstate(all="ignore"):
        want = narrowed(IN_F64_OF_TWO[name](a.astype(np.float64), b.astype(np.float64)), dtype)
        distance = ulp_distance(compiled(name, dtype, 2)(a, b), want)
    worst = int(np.argmax(distance))
    assert distance[worst] <= (1 if BY_NAME[name].ulp else 0), (a[worst], b[worst], want[worst])


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_neighbors(dtype: str) -> None:
    a, b = special_pairs(dtype)
    got = compiled("next_after", dtype, 2)(a, b)
    with np.errstate(all="ignore"):
        want = np.nextafter(a, b)
    want = np.where((a == 0) & (b == 0), b, want)
    assert np.all((got == want) | (np.isnan(got) & np.isnan(want)))
