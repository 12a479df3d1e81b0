"""f32 and f64: seeded samples and hard cases within the claim of the table."""

import numpy as np
import pytest
from mpmath import mpf

from kcache_compiler.codegen.math import functions
from tests.math.harness import compiled, ulp_distance
from tests.math.reference import IN_F64, IN_F64_OF_TWO, exact, exact_of_two
from tests.math.samples import arguments
from tests.math.sweep import sweep

BY_NAME = {f.name: f for f in functions()}


def check(name: str, got: np.ndarray, want: list[mpf], where: list[object]) -> None:
    """Distances from the correctly rounded f64 result; near a zero, in units of 1.0."""
    entry = BY_NAME[name]
    rounded = np.array([float(w) for w in want])
    distance = ulp_distance(got, rounded).astype(np.float64)
    if entry.near_zero:
        near = np.array([abs(float(w)) < 1 and np.isfinite(g) for g, w in zip(got, want, strict=True)])
        absolute = [float(abs(mpf(float(g)) - w)) * 2.0**52 if n else np.inf for g, w, n in zip(got, want, near, strict=True)]
        distance = np.minimum(distance, absolute)
    worst = int(np.argmax(distance))
    assert distance[worst] <= entry.ulp, (where[worst], got[worst], rounded[worst])


def check_pairs(name: str, a: np.ndarray, b: np.ndarray) -> None:
    pairs = [(float(p), float(q)) for p, q in zip(a, b, strict=True)]
    check(name, compiled(name, "f64", 2)(a, b), [exact_of_two(name, *pair) for pair in pairs], list(pairs))


@pytest.mark.parametrize("name", list(IN_F64))
def test_f64_of_one_argument(name: str) -> None:
    x = arguments(name, 900)
    check(name, compiled(name, "f64")(x), [exact(name, float(v)) for v in x], list(x))


@pytest.mark.parametrize("name", list(IN_F64))
def test_f32_of_one_argument(name: str) -> None:
    """One value in 9,973 of all."""
    worst, where, _ = sweep(name, BY_NAME[name].near_zero, step=9973, offset=17)
    assert worst <= BY_NAME[name].ulp, where


def pow_pairs(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    a = np.exp(rng.uniform(-700, 700, count))
    a[: count // 2] = 1 + rng.uniform(-0.5, 1, count // 2) * 2.0 ** rng.uniform(-40, 0, count // 2)
    with np.errstate(divide="ignore", over="ignore"):
        b = rng.uniform(-745, 709, count) / np.log(a)
    usable = np.isfinite(b)
    return a[usable], b[usable]


def test_pow_f64() -> None:
    a, b = pow_pairs(1500)
    check_pairs("pow", a, b)


def test_atan2_f64() -> None:
    rng = np.random.default_rng(12)
    y = rng.normal(size=1500) * 2.0 ** rng.integers(-60, 60, 1500)
    x = rng.normal(size=1500)
    y[:300] *= 2.0 ** rng.integers(-1000, 900, 300)
    x[150:450] *= 2.0 ** rng.integers(-1000, 1000, 300)
    check_pairs("atan2", y, x)


@pytest.mark.parametrize("name", ["pow", "atan2", "rem"])
def test_f32_of_two_arguments(name: str) -> None:
    rng = np.random.default_rng(13)
    a, b = (rng.normal(size=400_000) * 10.0 ** rng.uniform(-12, 12, 400_000) for _ in range(2))
    if name == "pow":
        a = np.exp(rng.uniform(-87, 87, a.size))
        b = rng.uniform(-103, 88, a.size) / np.log(a)
    a, b = a.astype(np.float32), b.astype(np.float32)
    with np.errstate(all="ignore"):
        want = IN_F64_OF_TWO[name](a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
    distance = ulp_distance(compiled(name, "f32", 2)(a, b), want)
    worst = int(np.argmax(distance))
    assert distance[worst] <= BY_NAME[name].ulp, (a[worst], b[worst], want[worst])


def test_rem_f64_is_exact() -> None:
    rng = np.random.default_rng(14)
    a = np.ldexp(rng.uniform(1, 2, 20_000), rng.integers(-1074, 1024, 20_000))
    b = np.ldexp(rng.uniform(1, 2, 20_000), rng.integers(-1074, 1024, 20_000))
    assert np.array_equal(compiled("rem", "f64", 2)(a, b), np.fmod(a, b), equal_nan=True)


ZETA = {
    "small": ((1.0, 3.0), (0.0, 20.0)),
    "middle": ((1.0, 60.0), (0.0, 30.0)),
    "large": ((1.0, 300.0), (30.0, 1000.0)),
}


@pytest.mark.parametrize("region", list(ZETA))
def test_zeta_f64(region: str) -> None:
    rng = np.random.default_rng(15)
    s, q = (rng.uniform(*bounds, 120) for bounds in ZETA[region])
    check_pairs("zeta", s, q)


@pytest.mark.parametrize(("orders", "low", "high"), [((1, 5), 0.0, 20.0), ((1, 170), 0.2, 300.0), ((1, 8), -15.0, 0.0)])
def test_polygamma_f64(orders: tuple[int, int], low: float, high: float) -> None:
    rng = np.random.default_rng(16)
    n, x = rng.integers(*orders, 120).astype(np.float64), rng.uniform(low, high, 120)
    check_pairs("polygamma", n, x)


@pytest.mark.parametrize("name", ["zeta", "polygamma"])
def test_f32_follows_f64(name: str) -> None:
    """The f32 functions against the f64 ones, which other tests hold to mpmath."""
    rng = np.random.default_rng(17)
    n = (rng.integers(1, 30, 3000) if name == "polygamma" else rng.uniform(1, 60, 3000)).astype(np.float32)
    x = rng.uniform(0.01, 50, 3000).astype(np.float32)
    wide = compiled(name, "f64", 2)(n.astype(np.float64), x.astype(np.float64))
    with np.errstate(over="ignore"):
        want = wide.astype(np.float32)
    assert np.max(ulp_distance(compiled(name, "f32", 2)(n, x), want)) <= BY_NAME[name].ulp


@pytest.mark.long
@pytest.mark.parametrize("name", list(IN_F64))
def test_every_f32(name: str) -> None:
    worst, where, _ = sweep(name, BY_NAME[name].near_zero)
    assert worst <= BY_NAME[name].ulp, where
