"""Exact results: limits, poles, signed zeros, subnormals, NaN."""

import math

import numpy as np
import pytest

from kcache_compiler.passes.math import functions
from tests.math.harness import DTYPES, Compiled, compiled
from tests.math.reference import exact_of_two

INF, NAN = math.inf, math.nan
PI = math.pi

#: name -> (argument, result), the same in f16, bf16, f32 and f64.
VALUES: dict[str, list[tuple[float, float]]] = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0)],
    "exp2": [(0.0, 1.0), (3.0, 8.0), (-4.0, 0.0625), (INF, INF), (-INF, 0.0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0)],
    "log": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN), (-INF, NAN)],
    "log2": [(0.0, -INF), (1.0, 0.0), (8.0, 3.0), (0.25, -2.0), (INF, INF), (-1.0, NAN)],
    "log10": [(0.0, -INF), (1.0, 0.0), (100.0, 2.0), (INF, INF), (-1.0, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (INF, INF), (-2.0, NAN), (-INF, NAN)],
    "logistic": [(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (-1.0, NAN), (INF, INF), (-INF, NAN)],
    "atanh": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (2.0, NAN), (INF, NAN)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (1.0, PI / 2), (-1.0, -PI / 2), (1.5, NAN), (INF, NAN)],
    "acos": [(1.0, 0.0), (-1.0, PI), (0.0, PI / 2), (1.5, NAN), (-INF, NAN)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (INF, PI / 2), (-INF, -PI / 2)],
    "sqrt": [(0.0, 0.0), (-0.0, -0.0), (4.0, 2.0), (INF, INF), (-1.0, NAN), (-INF, NAN)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (4.0, 0.5), (INF, 0.0), (-1.0, NAN)],
    "cbrt": [(0.0, 0.0), (-0.0, -0.0), (8.0, 2.0), (-27.0, -3.0), (INF, INF), (-INF, -INF)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0)],
    "erfc": [(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 2.0)],
    "erf_inv": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN)],
    "lgamma": [(1.0, 0.0), (2.0, 0.0), (0.0, INF), (-0.0, INF), (-3.0, INF), (INF, INF), (-INF, INF)],
    "digamma": [(0.0, NAN), (-0.0, NAN), (-1.0, NAN), (INF, INF), (-INF, NAN)],
    "bessel_i1e": [(0.0, 0.0), (-0.0, -0.0), (INF, 0.0), (-INF, -0.0)],
    "sign": [(0.0, 0.0), (-0.0, -0.0), (5.0, 1.0), (-INF, -1.0)],
    "round": [(0.5, 1.0), (-0.5, -1.0), (-0.25, -0.0), (2.5, 3.0), (INF, INF)],
    "roundeven": [(0.5, 0.0), (-0.5, -0.0), (2.5, 2.0), (3.5, 4.0), (INF, INF)],
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("name", list(VALUES))
def test_value(name: str, dtype: str) -> None:
    x, want = (
        np.array(column, dtype=DTYPES[dtype]) for column in zip(*VALUES[name], (NAN, NAN), strict=True)
    )
    got = compiled(name, dtype)(x)
    for argument, result, expected in zip(x, got, want, strict=True):
        assert result == expected or (np.isnan(result) and np.isnan(expected)), (argument, result)
        assert np.isnan(expected) or np.signbit(result) == np.signbit(expected), (argument, result)


#: Near the ends of the range, where naive formulas lose everything; within one unit.
EDGES: list[tuple[str, str, float, float]] = [
    ("logistic", "f32", -100.0, 3.783505853677006e-44),
    ("exp", "f32", 88.72283, 3.4027977e38),
    ("exp", "f32", 88.72284, INF),
    ("exp", "f32", -103.97207, 1.4012985e-45),
    ("exp", "f32", -104.0, 0.0),
    ("exp", "f32", -87.5, 9.983e-39),
    ("rsqrt", "f32", 1e-45, 2.6713e22),
    ("log", "f32", 1e-45, -103.27893),
    ("log2", "f32", 1e-45, -149.0),
    ("sqrt", "f32", 1e-45, 3.743392e-23),
    ("sin", "f32", 1e-45, 1e-45),
    ("tanh", "f32", 1e-40, 1e-40),
    ("sin", "f32", 3.4028235e38, -0.52187657),
    ("cos", "f32", 3.4028235e38, 0.85302),
    ("exp", "f64", 709.782712893384, 1.797693134862273e308),
    ("exp", "f64", -745.1332191019411, 5e-324),
    ("logistic", "f64", -740.0, 4.2e-322),
    ("log2", "f64", 5e-324, -1074.0),
    ("erfc", "f64", 27.0, 5.237048923789256e-319),
    ("lgamma", "f64", -5e-324, 744.4400719213812),
    ("digamma", "f64", 5e-324, -INF),
]


@pytest.mark.parametrize(("name", "dtype", "x", "want"), EDGES)
def test_edge(name: str, dtype: str, x: float, want: float) -> None:
    got = compiled(name, dtype)(np.array([x], DTYPES[dtype]))[0]
    assert got == pytest.approx(DTYPES[dtype].type(want), rel=1e-4, abs=0)


GRID = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 2.5, 1e30, -1e30, 1e-30, INF, -INF, NAN]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("name", "reference"), [("pow", np.power), ("atan2", np.arctan2), ("rem", np.fmod)])
def test_table_of_two(name: str, reference: np.ufunc, dtype: str) -> None:
    a, b = (p.ravel().astype(DTYPES[dtype]) for p in np.meshgrid(GRID, GRID))
    got = compiled(name, dtype, 2)(a, b)
    with np.errstate(all="ignore"):
        want = reference(a.astype(np.float64), b.astype(np.float64)).astype(DTYPES[dtype])
    same = np.isclose(got, want, rtol=1e-6 if dtype == "f32" else 1e-15, atol=0) & (
        np.signbit(got) == np.signbit(want)
    )
    bad = ~(same | (np.isnan(got) & np.isnan(want)))
    assert not bad.any(), list(zip(a[bad], b[bad], got[bad], want[bad], strict=True))


def test_zeta_and_polygamma_at_their_edges() -> None:
    zeta = compiled("zeta", "f64", 2)
    s = np.array([0.5, 1.0, 2.0, 3.0, 2.5, 2.0, 2.0, NAN, 2.0, INF, INF, INF, 1.0, 3.0, 3.0, 4.0])
    q = np.array([1.0, 0.3, -1.0, -1.0, -1.5, INF, NAN, 1.0, -1.5, 2.0, 1.0, 0.5, NAN, 0.0, -0.0, -0.0])
    want = [NAN, INF, INF, NAN, NAN, 0.0, NAN, NAN, 9.379246, 0.0, 1.0, INF, INF, NAN, NAN, INF]
    assert np.allclose(zeta(s, q), want, rtol=1e-6, equal_nan=True)
    polygamma = compiled("polygamma", "f64", 2)
    n = np.array([0.0, 1.0, 2.0, 1.5, -1.0, 1.0, 2.0, 312.0, 1.0, 0.0])
    x = np.array([1.0, 1.0, 1.0, 1.0, 1.0, -2.0, -2.0, 2.36, INF, NAN])
    want = [-0.5772156649, 1.6449340668, -2.4041138063, NAN, NAN, INF, NAN, -INF, 0.0, NAN]
    assert np.allclose(polygamma(n, x), want, rtol=1e-9, equal_nan=True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_zeta_and_polygamma_where_parts_of_them_overflow(dtype: str) -> None:
    """Beside poles the nearer one decides; halfway between two they cancel for odd s."""
    n = np.array([171.0, 300.0, 300.0, 300.0, 300.0, 2.0, 2.0, 171.0], DTYPES[dtype])
    x = np.array([-0.0625, -0.0625, -2.9375, -2.5, 0.0625, -INF, INF, 6e4], DTYPES[dtype])
    got = compiled("polygamma", dtype, 2)(n, x)
    assert np.array_equal(got, np.array([INF, INF, -INF, -INF, -INF, NAN, 0, 0]), equal_nan=True), got
    s, q = np.array([255.0, 255.0, 1200.0, 3.0], DTYPES[dtype]), np.array([-0.03125, -2.96875, -2.5, -1.5])
    got = compiled("zeta", dtype, 2)(s, q.astype(DTYPES[dtype]))
    want = [-INF, INF, INF, 0.1181]
    assert np.allclose(got.astype(np.float64), want, rtol=1e-2), got


def test_polygamma_halfway_between_poles_is_the_rest_of_the_sum() -> None:
    """Its terms beside the poles overflow, and are equal and of different signs."""
    got = compiled("polygamma", "f64", 2)(np.array([170.0, 2.0]), np.array([-50.5, -1.5]))
    want = [float(exact_of_two("polygamma", n, x)) for n, x in ((170.0, 51.5), (2.0, 2.5))]
    assert got == pytest.approx(want, rel=1e-12)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_kinds_of_number(dtype: str) -> None:
    tiny = {"f16": 6e-8, "bf16": 1e-40, "f32": 1e-40, "f64": 1e-310}[dtype]
    x = np.array([0.0, -0.0, 1.0, -2.0, INF, -INF, NAN, tiny, -tiny], DTYPES[dtype])
    wanted = {
        "isnan": [0, 0, 0, 0, 0, 0, 1, 0, 0],
        "isinf": [0, 0, 0, 0, 1, 1, 0, 0, 0],
        "isfinite": [1, 1, 1, 1, 0, 0, 0, 1, 1],
        "isnormal": [0, 0, 1, 1, 0, 0, 0, 0, 0],
    }
    for name, want in wanted.items():
        assert list(Compiled(f"{name}_{dtype}", (dtype,), "i1")(x)) == want, name


def integer_power(base: int, exponent: int, bits: int) -> int:
    if exponent < 0:
        power = {1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0)
    else:
        power = base**exponent
    return (power + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("signed", "unsigned"), [("ipowi", "upowi"), ("ipow", "upow")])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integer_powers(bits: int, signed: str, unsigned: str) -> None:
    rng = np.random.default_rng(bits)
    base, exponent = rng.integers(-12, 12, 1000), rng.integers(-4, 40, 1000)
    got = Compiled(f"{signed}_i{bits}", (f"i{bits}",) * 2, f"i{bits}")(base, exponent)
    assert [integer_power(int(b), int(e), bits) for b, e in zip(base, exponent, strict=True)] == got.tolist()
    kinds = (f"i{bits}",) * 2
    result = Compiled(f"{unsigned}_i{bits}", kinds, f"i{bits}")(np.array([3, -1]), np.array([5, -1]))
    assert result.tolist() == [integer_power(3, 5, bits), -1]


@pytest.mark.parametrize("integer", ["i8", "i32", "i64"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_float_to_integer_powers(dtype: str, integer: str) -> None:
    x = np.array([2.0, -2.0, -2.0, 0.0, -0.0, 5.0, NAN, NAN, INF, -INF, 1.5], DTYPES[dtype])
    n = np.array([10, 3, -2, -1, -1, 0, 0, 1, -1, 3, 7])
    got = Compiled(f"fpowi_{dtype}_{integer}", (dtype, integer), dtype)(x, n)
    want = np.array([1024.0, -8.0, 0.25, INF, -INF, 1.0, 1.0, NAN, 0.0, -INF, 1.5**7], DTYPES[dtype])
    assert np.array_equal(got, want, equal_nan=True)


def test_an_integer_exponent_keeps_its_bits() -> None:
    """An i64 that f64 cannot hold: near 1, its last bits count."""
    x, n = 1.0000000000000002, 9007199254740993
    got = Compiled("fpowi_f64_i64", ("f64", "i64"), "f64")(np.array([x]), np.array([n]))[0]
    assert got == pytest.approx(math.exp(n * math.log(x)), rel=1e-12)


def test_clamp_keeps_nan() -> None:
    x = np.array([-3.0, 0.5, 3.0, NAN], np.float32)
    ones = np.ones(4, np.float32)
    assert np.array_equal(
        compiled("clampf", "f32", 3)(x, -ones, ones), np.array([-1, 0.5, 1, NAN], np.float32), equal_nan=True
    )


def test_every_function_has_a_claim() -> None:
    names = [f.name for f in functions()]
    assert len(set(names)) == len(names)
    assert all(0 <= f.ulp <= 4 for f in functions())
