"""f32 and f64: seeded samples and hard cases within the claim of the table."""

import json

import numpy as np
import pytest
from mpmath import mpf

from kcache_compiler.passes.math import functions
from tests.math.harness import compiled, ulp_distance
from tests.math.reference import IN_F64, IN_F64_OF_TWO, exact, exact_of_two
from tests.math.report import BEGIN, DOCUMENT, END, table
from tests.math.samples import arguments, pairs
from tests.math.sweep import RESULTS, code_of, distance_of, sweep

BY_NAME = {f.name: f for f in functions()}


def check(name: str, x: np.ndarray, got: np.ndarray, want: list[mpf]) -> None:
    """Distances from the correctly rounded f64 result are within the claim."""
    rounded = np.array([float(w) for w in want])
    distance = distance_of(name, x, got, rounded)
    worst = int(np.argmax(distance))
    assert distance[worst] <= BY_NAME[name].ulp, (x[worst], got[worst], rounded[worst])


def check_pairs(name: str, a: np.ndarray, b: np.ndarray) -> None:
    both = [(float(p), float(q)) for p, q in zip(a, b, strict=True)]
    check(name, a, compiled(name, "f64", 2)(a, b), [exact_of_two(name, *pair) for pair in both])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", list(IN_F64))
def test_f64_of_one_argument(name: str) -> None:
    x = arguments(name, 900)
    check(name, x, compiled(name, "f64")(x), [exact(name, float(v)) for v in x])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", list(IN_F64))
def test_f32_of_one_argument(name: str) -> None:
    """One value in 9,973 of all."""
    worst, where, _ = sweep(name, step=9973, offset=17)
    assert worst <= BY_NAME[name].ulp, where


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["pow", "atan2", "zeta", "polygamma"])
def test_f64_of_two_arguments(name: str) -> None:
    check_pairs(name, *pairs(name, 1500))


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
    worst, where, _ = sweep(name)
    assert worst <= BY_NAME[name].ulp, where


def test_the_page_has_the_table_of_what_was_measured() -> None:
    """And every measured distance is of the code that there is."""
    results = json.loads(RESULTS.read_text())
    assert [key for key, entry in results.items() if entry["code"] != code_of(key)] == []
    assert BEGIN + table(results) + END in DOCUMENT.read_text()
