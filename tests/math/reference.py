"""References for the library: NumPy and SciPy in f64 for f32 results, mpmath for f64 results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.special as special
from mpmath import mp, mpf

Array = np.ndarray


def _logistic(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


def _lgamma(x: Array) -> Array:
    return np.where(np.isneginf(x), np.inf, special.gammaln(x))


def _digamma(x: Array) -> Array:
    return np.where((x <= 0) & (np.floor(x) == x), np.nan, special.psi(x))


#: f64 functions of f64 arrays, right to a few units of f64.
IN_F64: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "logistic": _logistic,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "cbrt": np.cbrt,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "erf": special.erf,
    "erfc": special.erfc,
    # Outside of its domain scipy takes microseconds a value.
    "erf_inv": lambda x: np.copysign(special.erfinv(np.where(np.abs(x) <= 1, x, np.nan)), x),
    "lgamma": _lgamma,
    "digamma": _digamma,
    "bessel_i1e": lambda x: np.copysign(special.i1e(x), x),
}

IN_F64_OF_TWO: dict[str, Callable[[Array, Array], Array]] = {
    "pow": np.power,
    "atan2": np.arctan2,
    "rem": np.fmod,
    "zeta": special.zeta,
}

_MP = {
    "exp2": lambda x: mpf(2) ** x,
    "log2": lambda x: mp.log(x) / mp.log(2),
    "logistic": lambda x: 1 / (1 + mp.exp(-x)),
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "erf_inv": mp.erfinv,
    "lgamma": lambda x: mp.log(abs(mp.gamma(x))),
    "bessel_i1e": lambda x: mp.besseli(1, x) * mp.exp(-abs(x)),
}

#: f(x) / x as x goes to 0, for the functions that vanish there: below 1e-60 mpmath need not be asked.
_SLOPE = {
    **dict.fromkeys(("expm1", "sinh", "asinh", "log1p", "tanh", "sin", "tan", "atan", "asin", "atanh"), 1),
    "erf": 2 / mp.sqrt(mp.pi),
    "erf_inv": mp.sqrt(mp.pi) / 2,
    "bessel_i1e": mpf(1) / 2,
}

_INFINITE_ABOVE = {"exp": 710, "exp2": 1024, "expm1": 710, "sinh": 711, "cosh": 711}


def exact(name: str, value: float) -> mpf:
    """The function in multiple precision, for a finite ``value`` of its domain."""
    x = mpf(value)
    if name in _SLOPE and abs(x) < mpf(10) ** -60:
        return x * _SLOPE[name]
    if name in _INFINITE_ABOVE and abs(x) > _INFINITE_ABOVE[name] + 400:
        return {"cosh": mpf("inf"), "sinh": mp.sign(x) * mpf("inf")}.get(
            name, mpf("inf") if x > 0 else mpf(-1 if name == "expm1" else 0)
        )
    if name in ("logistic", "erfc") and (x < -1000 if name == "logistic" else x > 40):
        return mpf(0)
    if name == "lgamma" and x <= 0 and x == mp.floor(x):
        return mpf("inf")
    if name == "digamma" and x <= 0 and x == mp.floor(x):
        return mpf("nan")
    function = _MP.get(name) or getattr(mp, name)
    with mp.workprec(1300 if name in ("sin", "cos", "tan") and abs(x) > 1e15 else 220):
        return +function(x)


def hurwitz(s: float, q: float) -> mpf:
    """zeta(s, q) by Euler and Maclaurin's formula with 25 terms and 25 corrections; integer s where q < 0."""
    with mp.workprec(160):
        power, base = mpf(s), mpf(q)
        total = mpf(0)
        while base <= 0:
            total += base ** -int(power)
            base += 1
        total += mp.fsum((base + k) ** -power for k in range(25))
        end = base + 25
        total += end ** (1 - power) / (power - 1) + end**-power / 2
        factor = power * end ** (-power - 1)
        for j in range(1, 26):
            total += mp.bernoulli(2 * j) / mp.factorial(2 * j) * factor
            factor *= (power + 2 * j - 1) * (power + 2 * j) / end**2
        return +total


def exact_of_two(name: str, a: float, b: float) -> mpf:
    with mp.workprec(220):
        match name:
            case "pow":
                return mp.power(mpf(a), mpf(b))
            case "atan2":
                return mp.atan2(mpf(a), mpf(b))
            case "zeta":
                return hurwitz(a, b)
            case "polygamma":
                return (-1) ** (int(a) + 1) * mp.factorial(int(a)) * hurwitz(a + 1, b)
            case _:
                raise ValueError(name)
