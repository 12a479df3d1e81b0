"""Derive the coefficients of the math library: ``python -m tests.math.tools.derive [NAME...]``.

Writes ``kcache_compiler/passes/math/coefficients.py`` (only the entries named, or all).
Each entry is a minimax polynomial found by `remez`, or a set of constants computed from their
definition; the comment beside it is the base-2 logarithm of its largest weighted error.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from pathlib import Path

from mpmath import mp, mpf

from tests.math.tools.minimax import Real, remez

OUTPUT = Path(__file__).parents[3] / "compiler/kcache_compiler/passes/math/coefficients.py"
HEADER = '"""Coefficients, written by ``python -m tests.math.tools.derive``; do not edit."""\n\n'
TINY = mpf(10) ** -25

mp.prec = 420


def rounded(value: mpf, dtype: str) -> float:
    """``value`` in the format, as a Python float."""
    double = float(value)
    return struct.unpack("<f", struct.pack("<f", double))[0] if dtype == "f32" else double


def head(value: mpf, bits: int) -> float:
    """The leading ``bits`` bits of ``value``, truncated."""
    mantissa, exponent = mp.frexp(value)
    return float(mp.ldexp(mp.floor(mp.ldexp(mantissa, bits)), exponent - bits))


def away(f: Real) -> Real:
    """``f``, with 0 moved to where its removable singularity can be evaluated."""
    return lambda x: f(x if abs(x) > TINY else TINY)


def polynomial(
    f: Real, low: mpf | float, high: mpf | float, degree: int, dtype: str, weight: Real = lambda x: mpf(1)
) -> Callable[[], tuple[tuple[float, ...], float]]:
    def derive() -> tuple[tuple[float, ...], float]:
        coefficients, error = remez(away(f), low, high, degree, away(weight))
        return tuple(rounded(c, dtype) for c in coefficients), float(mp.log(error, 2)) if error else -999.0

    return derive


def constants(values: Callable[[], list[float]]) -> Callable[[], tuple[tuple[float, ...], float]]:
    return lambda: (tuple(values()), -999.0)


def pair(value: mpf, bits: int, dtype: str) -> list[float]:
    """``value`` as a head of ``bits`` bits and a rounded tail."""
    first = head(value, bits)
    return [first, rounded(value - mpf(first), dtype)]


LN2 = mp.log(2)
SQ = lambda f: lambda z: f(mp.sqrt(z))  # noqa: E731
ROOT = mp.sqrt(mpf(1) / 2)


def chunks(value: mpf, start: int, widths: list[int]) -> list[float]:
    """The bits of ``value`` below weight 2**start, cut into pieces of the given widths."""
    rest = value - mp.floor(mp.ldexp(value, -start)) * mpf(2) ** start
    pieces: list[float] = []
    for width in widths[:-1]:
        start -= width
        piece = mp.floor(mp.ldexp(rest, -start)) * mpf(2) ** start
        pieces.append(float(piece))
        rest -= piece
    return [*pieces, float(rest)]


def log1p_tail(f: mpf) -> mpf:
    return (mp.log1p(f) - f + f * f / 2) / f**3


def atanh_tail(z: mpf) -> mpf:
    """log((1+s)/(1-s)) = 2s + s*z*R(z), z = s*s."""
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s) / s**3


ENTRIES: dict[str, Callable[[], tuple[tuple[float, ...], float]]] = {}


def _exponential() -> None:
    half = LN2 / 2 * mpf("1.0005")
    for dtype, degree in (("f32", 4), ("f64", 10)):
        ENTRIES[f"EXP_{dtype}"] = polynomial(
            lambda r: (mp.expm1(r) - r) / r**2, -half, half, degree, dtype, lambda r: r**2 / mp.expm1(r)
        )
        ENTRIES[f"EXP2_{dtype}"] = polynomial(
            lambda r: (mpf(2) ** r - 1) / r, -0.5005, 0.5005, degree + 1, dtype, lambda r: r
        )
    ENTRIES["EXP_FAST_f32"] = polynomial(
        lambda r: mp.expm1(r) / r, -half, half, 4, "f32", lambda r: r / mp.exp(r)
    )
    ENTRIES["LN2_f32"] = constants(lambda: pair(LN2, 15, "f32"))
    ENTRIES["LN2_f64"] = constants(lambda: pair(LN2, 41, "f64"))
    ENTRIES["LN2_FULL"] = constants(lambda: pair(LN2, 53, "f64"))
    # Argument reduced by half an integer power of two, result to about 40 bits: for f32 by way of f64.
    ENTRIES["EXP2_MIXED"] = polynomial(
        lambda r: (mpf(2) ** r - 1) / r, -0.5005, 0.5005, 6, "f64", lambda r: r
    )


def _logarithm() -> None:
    low, high = ROOT - 1, 2 * ROOT - 1
    ENTRIES["LOG_f32"] = polynomial(log1p_tail, low, high, 7, "f32", lambda f: f**3 / mp.log1p(f))
    limit = ((high) / (2 + high)) ** 2 * mpf("1.0001")
    ENTRIES["LOG_f64"] = polynomial(atanh_tail, 0, limit, 6, "f64", lambda z: z)
    ENTRIES["LOG2_MIXED"] = polynomial(
        SQ(lambda s: 2 * mp.atanh(s) / s / LN2), 0, limit, 5, "f64", lambda z: mpf(1)
    )
    for dtype in ("f32", "f64"):
        bits = 24 if dtype == "f32" else 53
        for name, value in (("LOG2E", 1 / LN2), ("LOG10E", 1 / mp.log(10))):
            ENTRIES[f"{name}_{dtype}"] = constants(lambda v=value, b=bits, d=dtype: pair(v, b, d))
        short = 15 if dtype == "f32" else 41
        ENTRIES[f"LOG10_2_{dtype}"] = constants(lambda b=short, d=dtype: pair(LN2 / mp.log(10), b, d))


def _trigonometry() -> None:
    end = (mp.pi / 4 * mpf("1.001")) ** 2
    for dtype, degree in (("f32", 2), ("f64", 5)):
        ENTRIES[f"SIN_{dtype}"] = polynomial(
            SQ(lambda r: (mp.sin(r) - r) / r**3), 0, end, degree, dtype, lambda z: z
        )
        ENTRIES[f"COS_{dtype}"] = polynomial(
            SQ(lambda r: (mp.cos(r) - 1 + r * r / 2) / r**4), 0, end, degree, dtype, lambda z: z * z
        )
    bands = [chunks(2 / mp.pi, 25 - 32 * band, [29, 29, 53]) for band in range(4)]
    ENTRIES["TWO_OVER_PI_f32"] = constants(lambda: [piece for band in bands for piece in band])


def _large_trigonometry() -> None:
    """2/pi in pieces of 53 bits, piece n below weight 2**(54 - 53 n), all times 2**200."""

    def pieces() -> list[float]:
        scaled = 2 / mp.pi * mpf(2) ** 200
        with mp.workprec(1700):
            scaled = 2 / mp.pi * mpf(2) ** 200
            return chunks(scaled, 254, [53] * 24)

    ENTRIES["TWO_OVER_PI_f64"] = constants(pieces)
    ENTRIES["HALF_PI_f32"] = constants(lambda: pair(mp.pi / 2, 24, "f32"))
    ENTRIES["HALF_PI_f64"] = constants(lambda: pair(mp.pi / 2, 53, "f64"))


def _inverse_trigonometry() -> None:
    for dtype, atan, asin in (("f32", 8, 4), ("f64", 19, 11)):
        ENTRIES[f"ATAN_{dtype}"] = polynomial(
            SQ(lambda x: (mp.atan(x) - x) / x**3), 0, 1, atan, dtype, SQ(lambda x: x**3 / mp.atan(x))
        )
        ENTRIES[f"ASIN_{dtype}"] = polynomial(
            SQ(lambda x: (mp.asin(x) - x) / x**3), 0, 0.2501, asin, dtype, SQ(lambda x: x**3 / mp.asin(x))
        )


def _hyperbolic() -> None:
    for dtype, sinh, asinh, atanh in (("f32", 2, 4, 5), ("f64", 6, 11, 12)):
        ENTRIES[f"SINH_{dtype}"] = polynomial(
            SQ(lambda x: (mp.sinh(x) - x) / x**3), 0, 1, sinh, dtype, SQ(lambda x: x**3 / mp.sinh(x))
        )
        ENTRIES[f"ASINH_{dtype}"] = polynomial(
            SQ(lambda x: (mp.asinh(x) - x) / x**3), 0, 0.25, asinh, dtype, SQ(lambda x: x**3 / mp.asinh(x))
        )
        ENTRIES[f"ATANH_{dtype}"] = polynomial(
            SQ(lambda x: (mp.atanh(x) - x) / x**3), 0, 0.25, atanh, dtype, SQ(lambda x: x**3 / mp.atanh(x))
        )


def _hyperbolic_tangent() -> None:
    for dtype, degree in (("f32", 4), ("f64", 9)):
        ENTRIES[f"TANH_{dtype}"] = polynomial(
            SQ(lambda x: (mp.tanh(x) - x) / x**3), 0, 0.3026, degree, dtype, SQ(lambda x: x**3 / mp.tanh(x))
        )


def _powers() -> None:
    # log(1+f) - 2s - 2/3 s^3 = s^5 Q(s^2): what pow needs beyond the two leading terms.
    limit = ((2 * ROOT - 1) / (1 + 2 * ROOT)) ** 2 * mpf("1.0001")
    ENTRIES["LOG_PAIR_f64"] = polynomial(
        SQ(lambda s: (2 * mp.atanh(s) - 2 * s - 2 * s**3 / 3) / s**5), 0, limit, 6, "f64", lambda z: z * z
    )
    ENTRIES["TWO_THIRDS"] = constants(lambda: pair(mpf(2) / 3, 53, "f64"))
    ENTRIES["CBRT"] = polynomial(lambda m: 1 / mp.cbrt(m), 1, 8, 6, "f64", lambda m: mp.cbrt(m))


def erfcx(x: mpf) -> mpf:
    return mp.exp(x * x) * mp.erfc(x)


#: The variable t = (x - 2) / (x + 2) makes (1 + 2x) erfcx(x) nearly linear.
ERFCX_CENTER = 2


def _erfcx_of(t: mpf) -> mpf:
    x = ERFCX_CENTER * (1 + t) / (1 - t)
    return (1 + 2 * x) * erfcx(x)


def _t_of(x: float) -> mpf:
    return (mpf(x) - ERFCX_CENTER) / (mpf(x) + ERFCX_CENTER)


def _erfcx_above(w: mpf) -> mpf:
    """erfcx(x) / v for v = 1 / (1 + 7/8 x) = w + 3/8."""
    v = w + mpf(3) / 8
    return erfcx((1 / v - 1) * 8 / 7) / v


def _w_of(x: float) -> mpf:
    return 1 / (1 + mpf(x) * 7 / 8) - mpf(3) / 8


def _erfcx_f32() -> tuple[tuple[float, ...], float]:
    """The first coefficient as a sum of two."""
    coefficients, error = remez(_erfcx_above, _w_of(10.2), _w_of(0.4998), 9, lambda w: 1 / _erfcx_above(w))
    first = rounded(coefficients[0], "f32")
    below = rounded(coefficients[0] - mpf(first), "f32")
    return (first, below, *(rounded(c, "f32") for c in coefficients[1:])), float(mp.log(error, 2))


#: Powers are taken from here: over so long a range they must not grow large and cancel.
GELU_CENTER = 4


def _normal_tail(t: mpf) -> mpf:
    """(log2(2 P(-a)) + a^2 log2(e)/2) / -a for the distribution function P of the normal distribution,
    a = t + 4.
    """
    a = max(t + GELU_CENTER, TINY)
    return mp.log(erfcx(a * ROOT)) / LN2 / -a


def _tail_weight(t: mpf) -> mpf:
    """Small values may be off by some units more."""
    return (t + GELU_CENTER) * (1 if t < 0 else mpf(1) / 4)


def _error_functions() -> None:
    for name, dtype, high, degree in (("ERFC_SMALL", "f32", mpf(0.501) ** 2, 4), ("ERF_SMALL", "f64", 1, 12)):
        ENTRIES[f"{name}_{dtype}"] = polynomial(
            SQ(lambda x: mp.erf(x) / x - 1), 0, high, degree, dtype, SQ(lambda x: x / mp.erf(x))
        )
    ENTRIES["ERF_LOG_f32"] = polynomial(
        lambda x: mp.log(mp.erfc(x)) / x + 1, 0, 3.95, 8, "f32", lambda x: x * mp.erfc(x) / mp.erf(x)
    )
    ENTRIES["ERFCX_f32"] = _erfcx_f32
    ENTRIES["HALF_LOG2E_f32"] = constants(lambda: pair(1 / LN2 / 2, 24, "f32"))
    ENTRIES["GELU_f32"] = polynomial(_normal_tail, -GELU_CENTER, 14.4 - GELU_CENTER, 15, "f32", _tail_weight)
    ENTRIES["ERFCX_f64"] = polynomial(
        _erfcx_of, _t_of(0.4999), _t_of(27.5), 22, "f64", lambda t: 1 / _erfcx_of(t)
    )


def inside(f: Real) -> Real:
    """``f`` on [-1/2, 1/2], its ends moved in to where removable singularities can be evaluated."""
    return lambda t: f(t * (1 - TINY))


def lgamma_ratio(t: mpf) -> mpf:
    x = t + mpf(3) / 2
    return mp.loggamma(x) / ((x - 1) * (x - 2))


def stirling_rest(w: mpf) -> mpf:
    """x (log gamma(x) - ((x - 1/2) log x - x + log(2 pi)/2)), w = 1/x^2."""
    x = 1 / mp.sqrt(w)
    return x * (mp.loggamma(x) - ((x - 0.5) * mp.log(x) - x + mp.log(2 * mp.pi) / 2))


def digamma_rest(w: mpf) -> mpf:
    """x^2 (log x - 1/(2x) - digamma(x)), w = 1/x^2."""
    x = 1 / mp.sqrt(w)
    return (mp.log(x) - 1 / (2 * x) - mp.digamma(x)) / w


def digamma_zero() -> mpf:
    return mp.findroot(mp.digamma, mpf("1.4616321449683623412626595423257213"))


def digamma_ratio(t: mpf) -> mpf:
    x, zero = t + mpf(3) / 2, digamma_zero()
    if abs(x - zero) < mpf(10) ** -40:
        return mp.psi(1, zero)
    return mp.digamma(x) / (x - zero)


def _gamma_functions() -> None:
    near = "1.0e-12"
    for dtype, ratio, rest in (("f64", 22, 11), ("MIXED", 11, 3)):
        end = mpf(1) / 9
        ENTRIES[f"LGAMMA_{dtype}"] = polynomial(
            inside(lgamma_ratio), -0.5, 0.5, ratio, "f64", inside(lambda t: 1 / lgamma_ratio(t))
        )
        ENTRIES[f"STIRLING_{dtype}"] = polynomial(
            stirling_rest, mpf(near), end, rest, "f64", lambda w: mp.sqrt(w)
        )
        ENTRIES[f"DIGAMMA_{dtype}"] = polynomial(
            digamma_ratio, -0.5, 0.5, ratio, "f64", lambda t: 1 / digamma_ratio(t)
        )
        ENTRIES[f"DIGAMMA_REST_{dtype}"] = polynomial(digamma_rest, mpf(near), end, rest, "f64", lambda w: w)
    ENTRIES["DIGAMMA_ZERO"] = constants(lambda: pair(digamma_zero(), 53, "f64"))
    ENTRIES["HALF_LOG_2PI"] = constants(lambda: pair(mp.log(2 * mp.pi) / 2, 53, "f64"))
    ENTRIES["LOG_PI"] = constants(lambda: pair(mp.log(mp.pi), 53, "f64"))
    ENTRIES["BERNOULLI"] = constants(
        lambda: [float(mp.bernoulli(2 * j) / mp.factorial(2 * j)) for j in range(1, 11)]
    )


def i1e(x: mpf) -> mpf:
    return mp.besseli(1, x) * mp.exp(-x)


def _i1e_ratio(x: mpf) -> mpf:
    return i1e(x) / x if x > TINY else mpf(1) / 2


def _i1e_far(t: mpf) -> mpf:
    if t + 1 < mpf(10) ** -9:
        return 1 / mp.sqrt(2 * mp.pi)
    x = 16 / (t + 1)
    return mp.sqrt(x) * i1e(x)


def shifted(middle: mpf) -> Real:
    return lambda t: _i1e_ratio(middle + t)


def inverted(middle: mpf) -> Real:
    return lambda t: 1 / _i1e_ratio(middle + t)


def _bessel() -> None:
    for dtype, near, far in (("f64", 22, 23), ("MIXED", 12, 7)):
        # x = 1.5 + t on [0, 3] and 5.5 + t on [3, 8].
        for name, middle, half in (("LOW", mpf("1.5"), mpf("1.5")), ("MIDDLE", mpf("5.5"), mpf("2.5"))):
            ENTRIES[f"I1E_{name}_{dtype}"] = polynomial(
                shifted(middle), -half, half, near, "f64", inverted(middle)
            )
        ENTRIES[f"I1E_FAR_{dtype}"] = polynomial(_i1e_far, -1, 1, far, "f64", lambda t: 1 / _i1e_far(t))


def _erfinv_tail(v: mpf) -> mpf:
    return mp.erfinv(1 - mp.exp(-v * v))


def _inverse_error_function() -> None:
    ENTRIES["ERFINV_CENTER"] = polynomial(
        SQ(lambda x: mp.erfinv(x) / x), 0, 0.5626, 9, "f64", SQ(lambda x: x / mp.erfinv(x))
    )
    # In t = v - 3, v = sqrt(-log(1 - x)).
    ENTRIES["ERFINV_TAIL"] = polynomial(
        lambda t: _erfinv_tail(t + 3),
        mpf("1.17") - 3,
        mpf("6.1") - 3,
        15,
        "f64",
        lambda t: 1 / _erfinv_tail(t + 3),
    )


_exponential()
_logarithm()
_trigonometry()
_large_trigonometry()
_inverse_trigonometry()
_hyperbolic()
_hyperbolic_tangent()
_powers()
_error_functions()
_gamma_functions()
_bessel()
_inverse_error_function()


def _known() -> dict[str, str]:
    if not OUTPUT.exists():
        return {}
    text = OUTPUT.read_text().removeprefix(HEADER)
    return {part.split(":")[0]: part for part in text.split("\n\n") if part.strip()}


def main(names: list[str]) -> None:
    parts = _known()
    for name in names or list(ENTRIES):
        values, error = ENTRIES[name]()
        note = f"  # 2**{error:.1f}" if error > -999 else ""
        body = "".join(f"    {value!r},\n" for value in values)
        parts[name] = f"{name}: tuple[float, ...] = ({note}\n{body})"
        print(name, note)
    OUTPUT.write_text(HEADER + "\n\n".join(parts[n].strip() for n in ENTRIES if n in parts) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
