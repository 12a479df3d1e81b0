"""Functions of complex numbers: NumPy in long double, mpmath, and the tables of C's Annex G."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest
from mpmath import mp, mpc, mpf

from kcache_compiler.passes.math import COMPLEX
from tests.compiler.codegen_harness import runs_here
from tests.math.harness import DTYPES, Compiled, ForTarget

INF, NAN = math.inf, math.nan
WHOLE = {"f32": np.complex64, "f64": np.complex128}
LONG = np.clongdouble
PARTS = ("f32", "f64")
#: The widest of our targets for x86-64 that this machine runs.
WIDEST = "x86-64-v4" if runs_here("x86-64-v4") else "x86-64-v3"
EXTENDED = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps

#: f(z) in long double; infinities and signed zeros as C has them.
IN_LONG_DOUBLE: dict[str, Callable[..., np.ndarray]] = {
    "abs": lambda z: np.abs(z).astype(LONG),
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}
#: Where NumPy has nothing, or nothing exact.
IN_MPMATH: dict[str, Callable[..., mpc]] = {
    "atan2": lambda y, x: -1j * mp.log((x + 1j * y) / mp.sqrt(x * x + y * y)),
    "divide": lambda a, b: a / b,
    "expm1": lambda z: mp.exp(z) - 1,
    "log1p": lambda z: mp.log(1 + z),
    "logistic": lambda z: 1 / (1 + mp.exp(-z)),
    "pow": lambda z, w: mp.exp(w * mp.log(z)),
    "rsqrt": lambda z: 1 / mp.sqrt(z),
    "sign": lambda z: z / abs(z),
}


class Function:
    """A function over arrays of complex numbers, made of the functions of its parts."""

    def __init__(self, name: str, part: str, target: str | None = None) -> None:
        count = 2 * COMPLEX[name].arity
        halves = ("re",) if COMPLEX[name].real else ("re", "im")
        symbols = [f"complex_{name}_{half}_{part}" for half in halves]
        arguments = (part,) * count
        if target is None:
            self._parts = [Compiled(symbol, arguments, part, 1) for symbol in symbols]
        else:
            self._parts = [ForTarget(symbol, arguments, part, target, 2) for symbol in symbols]
        self._whole = WHOLE[part]

    def __call__(self, *numbers: np.ndarray) -> np.ndarray:
        parts = [part.copy() for z in numbers for part in (z.real, z.imag)]
        result = np.zeros(numbers[0].shape, self._whole)
        for half, compute in zip(("real", "imag"), self._parts, strict=False):
            setattr(result, half, compute(*parts))
        return result


@functools.cache
def compiled(name: str, part: str) -> Function:
    return Function(name, part)


def grid(part: str) -> np.ndarray:
    """Every pair of zeros, numbers below the normal ones, at the ends of the range, infinities and NaN."""
    info = np.finfo(DTYPES[part])
    near = float(np.nextafter(DTYPES[part].type(1), DTYPES[part].type(2)))
    sizes = [0.0, float(info.smallest_subnormal), float(info.tiny), 1e-20, 0.5, 1.0, near]
    sizes += [2.5, 100.0, 1e10, float(info.max) / 4, float(info.max), INF]
    values = np.array([*sizes, *(-size for size in sizes), NAN], DTYPES[part])
    re, im = np.meshgrid(values, values, indexing="ij")
    return _complex(re.ravel(), im.ravel(), part)


def sample(part: str, seed: int, count: int = 600) -> np.ndarray:
    """Numbers of all sizes, and around the unit circle."""
    rng = np.random.default_rng(seed)
    parts = rng.normal(size=(2, count)) * 10.0 ** rng.choice([0, 0, 0, 1, -2, -8, 5], (2, count))
    turn = rng.uniform(-4, 4, count // 3)
    size = 1 + rng.normal(size=count // 3) * 1e-5
    re, im = np.concatenate([parts, [size * np.cos(turn), size * np.sin(turn)]], axis=1)
    return _complex(re, im, part)


def _complex(re: np.ndarray, im: np.ndarray, part: str) -> np.ndarray:
    numbers = np.empty(re.size, WHOLE[part])
    numbers.real, numbers.imag = re, im
    return numbers


def in_mpmath(name: str, *arguments: np.ndarray, bits: int = 300) -> np.ndarray:
    """Rounded to long double."""
    results = np.empty(arguments[0].shape, LONG)
    with mp.workprec(bits):
        for place, numbers in enumerate(zip(*arguments, strict=True)):
            value = mpc(IN_MPMATH[name](*(mpc(float(z.real), float(z.imag)) for z in numbers)))
            results.real[place], results.imag[place] = _long(value.real), _long(value.imag)
    return results


def _long(value: mpf) -> np.longdouble:
    high = float(value)
    return (
        np.longdouble(high) + np.longdouble(float(value - high))
        if math.isfinite(high)
        else np.longdouble(high)
    )


def units(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance of finite numbers in units of the length of what is wanted."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        distance = np.hypot(got.real - want.real, got.imag - want.imag)
        length = np.maximum(np.hypot(want.real, want.imag), np.longdouble(info.tiny))
        return np.where(np.isfinite(got), distance / length / info.eps, 0)


def same_kind(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """NaN and infinities in the same places, and the same signs, which C leaves open beside a NaN."""
    same = np.ones(got.shape, bool)
    loose = np.isnan(want.real) | np.isnan(want.imag)
    for mine, theirs in ((got.real, want.real), (got.imag, want.imag)):
        same &= (np.isinf(mine) == np.isinf(theirs)) & (np.isnan(mine) == np.isnan(theirs))
        same &= loose | (np.signbit(mine) == np.signbit(theirs))
    return same


@pytest.mark.sampled(36)
@pytest.mark.skipif(not EXTENDED, reason="long double is f64 here")
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", list(IN_LONG_DOUBLE))
def test_every_kind_of_part(name: str, part: str) -> None:
    z = np.concatenate([grid(part), sample(part, 3)])
    got = compiled(name, part)(z)
    with np.errstate(all="ignore"):
        want = IN_LONG_DOUBLE[name](z.astype(LONG))
        rounded = want.astype(WHOLE[part])
    same = same_kind(got, rounded)
    assert same.all(), [(z[i], got[i], rounded[i]) for i in np.flatnonzero(~same)[:5]]
    distance = units(got, want)
    worst = int(np.argmax(distance))
    assert distance[worst] <= 2, (z[worst], got[worst], want[worst])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", list(IN_MPMATH))
def test_samples(name: str, part: str) -> None:
    numbers = [sample(part, 5 + place) for place in range(COMPLEX[name].arity)]
    if name == "pow":  # off by units times the size of w log z
        numbers = [z[(np.abs(z) > 1e-4) & (np.abs(z) < 1e4)][:300] for z in numbers]
        numbers[1] = numbers[1] / np.maximum(1, np.abs(numbers[1])).astype(DTYPES[part])
    count = min(len(z) for z in numbers)
    numbers = [z[:count] for z in numbers]
    want = in_mpmath(name, *numbers)
    distance = units(compiled(name, part)(*numbers), want)
    worst = int(np.argmax(distance))
    limit = {"pow": 32}.get(name, 4) if part == "f64" else 1
    assert distance[worst] <= limit, ([z[worst] for z in numbers], want[worst])


C = complex
#: name -> (arguments, result): what the specifications leave to the mathematics, and C's Annex G.
VALUES: dict[str, list[tuple[tuple[complex, ...], complex]]] = {
    "pow": [
        ((C(0, 0), C(2.5, 0)), C(0, 0)),
        ((C(-0.0, 0), C(1, 100)), C(0, 0)),
        ((C(0, 0), C(0, 0)), C(1, 0)),
        ((C(3, -4), C(0, -0.0)), C(1, 0)),
        ((C(NAN, 1), C(0, 0)), C(1, 0)),
        ((C(0, 0), C(-1, 0)), C(INF, NAN)),
        ((C(0, 0), C(0, 1)), C(NAN, NAN)),
        ((C(-1, 0.0), C(0.5, 0)), C(6.123233995736766e-17, 1)),
        ((C(-1, -0.0), C(0.5, 0)), C(6.123233995736766e-17, -1)),
    ],
    "log1p": [
        ((C(-1, 1e-40),), C(-92.10340371976183, math.pi / 2)),
        ((C(-1, 0.0),), C(-INF, 0)),
        ((C(-2, -0.0),), C(0, -math.pi)),
        ((C(1e-30, -0.0),), C(1e-30, -0.0)),
        ((C(NAN, INF),), C(INF, NAN)),
    ],
    "divide": [
        ((C(1, 1), C(0, 0)), C(INF, INF)),
        ((C(0, 0), C(0, 0)), C(NAN, NAN)),
        ((C(INF, 1), C(1, 2)), C(INF, -INF)),
        ((C(1, 2), C(INF, -INF)), C(0, 0)),
        ((C(1e38, -1e38), C(1, 2.5)), C(-1.5e38 / 7.25, -3.5e38 / 7.25)),
    ],
    "sign": [
        ((C(0, -0.0),), C(0, 0)),
        ((C(INF, 1),), C(NAN, NAN)),
        ((C(3e38, 3e38),), C(0.5**0.5, 0.5**0.5)),
    ],
    "rsqrt": [((C(0, 0),), C(INF, NAN)), ((C(INF, 3),), C(0, 0)), ((C(-4, 0.0),), C(0, -0.5))],
    "expm1": [((C(1e-30, -0.0),), C(1e-30, -0.0)), ((C(-INF, NAN),), C(-1, 0)), ((C(INF, 0),), C(INF, 0))],
    "logistic": [((C(-INF, 3),), C(0, 0)), ((C(INF, NAN),), C(1, 0)), ((C(-1e5, 1),), C(0, 0))],
    "atan2": [
        ((C(1, 0), C(-1, 0)), C(0.75 * math.pi, 0)),
        ((C(0, 0), C(-1, 0)), C(math.pi, 0)),
        ((C(0, 0), C(0, 0)), C(NAN, NAN)),
        ((C(INF, 0), C(1, 0)), C(NAN, NAN)),
    ],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", list(VALUES))
def test_value(name: str, part: str) -> None:
    for arguments, want in VALUES[name]:
        got = compiled(name, part)(*(np.array([z], WHOLE[part]) for z in arguments))[0]
        for mine, theirs in ((got.real, want.real), (got.imag, want.imag)):
            near = mine == pytest.approx(theirs, rel=1e-6, abs=1e-7) or (
                np.isnan(mine) and math.isnan(theirs)
            )
            assert near, (arguments, got, want)
            zero = theirs == 0 and math.copysign(1, theirs) < 0
            assert not zero or np.signbit(mine), (arguments, got, want)


@pytest.mark.parametrize("part", PARTS)
def test_edges_of_two_arguments_are_finite_or_said_to_be_not(part: str) -> None:
    """Quotients over all pairs of kinds of number, as f64 has them where f32 is far inside of its range."""
    z = grid(part)
    rng = np.random.default_rng(8)
    a, b = z[rng.integers(0, z.size, 3000)], z[rng.integers(0, z.size, 3000)]
    finite = np.isfinite(a) & np.isfinite(b) & (b != 0)
    a, b = a[finite], b[finite]
    want = in_mpmath("divide", a, b)
    got = compiled("divide", part)(a, b)
    with np.errstate(all="ignore"):
        rounded = want.astype(WHOLE[part])
    assert np.array_equal(np.isinf(got.real), np.isinf(rounded.real))
    assert np.array_equal(np.isinf(got.imag), np.isinf(rounded.imag))
    assert units(got, want).max() <= 2


def any_sizes(part: str, rng: np.random.Generator, count: int) -> np.ndarray:
    """Parts of all sizes that the format has, each by itself."""
    info = np.finfo(DTYPES[part])
    ends = np.log2(float(info.smallest_subnormal)), np.log2(float(info.max))
    re, im = 2.0 ** rng.uniform(*ends, (2, count)) * rng.choice([-1, 1], (2, count))
    return _complex(re, im, part)


@pytest.mark.parametrize("part", PARTS)
def test_atan2_of_numbers_of_any_two_sizes(part: str) -> None:
    """Beside its branch cuts and its poles too: mpmath with more bits than the exponents' range has."""
    rng = np.random.default_rng(32)
    edges = grid(part)
    edges = edges[np.isfinite(edges) & (edges.real != 0) & (edges.imag != 0)]  # -0 is 0 in mpmath
    some, others = (edges[rng.integers(0, edges.size, 200)] for _ in range(2))
    plain = rng.normal(size=60) + 1j * rng.normal(size=60)
    apart = 1 + 2.0 ** rng.uniform(-50, 0, 60) * np.exp(1j * rng.uniform(0, 7, 60))
    pairs = [
        (some, others),
        (any_sizes(part, rng, 200), any_sizes(part, rng, 200)),
        (plain * apart * 1j, plain),
        (plain * apart.conj() * -1j, plain),
    ]
    if part == "f64":
        pairs.append((np.array([2.95 - 6.1e-9j]), np.array([complex(-5e-324, -1.79e308)])))
        pairs.append((np.array([1e-300 + 0j]), np.array([1e-100 + 1e-100j])))
    y, x = (np.concatenate(parts).astype(WHOLE[part]) for parts in zip(*pairs, strict=True))
    pole = (y == 1j * x) | (y == -1j * x)
    y, x = y[~pole], x[~pole]
    want = in_mpmath("atan2", y, x, bits=5000 if part == "f64" else 1000)
    distance = units(compiled("atan2", part)(y, x), want)
    worst = int(np.argmax(distance))
    assert distance[worst] <= (4 if part == "f64" else 1), (y[worst], x[worst], want[worst])


@pytest.mark.sampled(36)
@pytest.mark.parametrize("name", list(COMPLEX))
def test_same_bits_on_every_target(name: str) -> None:
    numbers = [np.concatenate([grid("f64"), sample("f64", 9 + n, 200)]) for n in range(COMPLEX[name].arity)]
    numbers = [np.roll(z, 7 * n) for n, z in enumerate(numbers)]
    ours = [Function(name, "f64", target)(*numbers) for target in (WIDEST, "x86-64-v2")]
    for left, other in ((ours[0].real, ours[1].real), (ours[0].imag, ours[1].imag)):
        assert np.array_equal(left, other, equal_nan=True)
        assert np.array_equal(np.signbit(left) | np.isnan(left), np.signbit(other) | np.isnan(left))
