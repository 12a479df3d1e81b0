"""Arguments that find errors: spread over all exponents, dense where functions turn, and hard cases."""

import math

import numpy as np

from tests.math.harness import DTYPES

#: Functions that are NaN outside an interval: samples are drawn inside it.
DOMAIN = {
    "log": (0.0, math.inf),
    "log2": (0.0, math.inf),
    "log10": (0.0, math.inf),
    "log1p": (-1.0, math.inf),
    "rsqrt": (0.0, math.inf),
    "sqrt": (0.0, math.inf),
    "acos": (-1.0, 1.0),
    "asin": (-1.0, 1.0),
    "acosh": (1.0, math.inf),
    "atanh": (-1.0, 1.0),
    "erf_inv": (-1.0, 1.0),
}

#: Doubles whose distance from a multiple of pi/2 is unusually small, or whose result is near a midpoint
#: or an end of the range.
HARD = {
    "sin": [6381956970095103.0 * 2.0**797, 3.141592653589793, 22.0, 355.0, 1e22, 1.7976931348623157e308],
    "cos": [6381956970095103.0 * 2.0**797, 1.5707963267948966, 11.0, 1e22, 1.7976931348623157e308],
    "tan": [6381956970095103.0 * 2.0**797, 1.5707963267948966, 3.141592653589793, 1e22, 1e300],
    "exp": [709.782712893384, -745.1332191019411, -708.3964185322641, 1e-17, -1e-17],
    "expm1": [709.782712893384, 1e-300, -37.42994775023705, 0.6931471805599453, -0.35],
    "exp2": [1023.9999999999999, -1074.0, -1074.5, -1075.0, -1022.5],
    "log": [5e-324, 2.2250738585072014e-308, 0.9999999999999999, 1.0000000000000002, 1.7976931348623157e308],
    "log1p": [5e-324, -0.9999999999999999, 1e-16, 1e300],
    "sinh": [710.4758600739439, 1.0, 0.9999999999999999],
    "cosh": [710.4758600739439],
    "logistic": [-745.0, -709.0, 37.0, -37.0],
    "erfc": [26.543258430632299, 27.226017111108366, 0.5, 0.49999999999999994],
    "lgamma": [-2.4570247382208006, -2.7476826467274127, 1.0000000001, 1.9999999999, -1e-200, 2.5e305],
    "digamma": [1.4616321449683622, -0.5040830082644554, 1e-200, -10.5],
}


def arguments(name: str, count: int, seed: int = 5) -> np.ndarray:
    """About ``count`` f64 values from the domain of ``name``, finite, no zeros."""
    rng = np.random.default_rng(seed)
    part = count // 7
    signs = rng.choice([-1.0, 1.0], part)
    parts = [np.ldexp(rng.uniform(1, 2, part), rng.integers(-1074, 1024, part)) * signs]
    parts += [rng.uniform(-s, s, part) for s in (1.0, 4.0, 40.0, 800.0)]
    parts.append(1.0 + rng.uniform(-1, 1, part) * 2.0 ** rng.uniform(-50, -1, part))
    parts.append(rng.uniform(-8, 8, part))
    x = np.concatenate([*parts, np.array(HARD.get(name, [1.0]))])
    low, high = DOMAIN.get(name, (-math.inf, math.inf))
    x = np.where(x < low, low + (low - x), x)
    if name in ("lgamma", "digamma"):
        x = x[(x > -170) & (np.abs(x) < 1e300)]
    return x[np.isfinite(x) & (x > low) & (x < high) & (x != 0)]


def narrowed(values: np.ndarray, dtype: str) -> np.ndarray:
    """f64 to the narrow type in one rounding: through f32, rounded to odd."""
    single = values.astype(np.float32)
    back = single.astype(np.float64)
    raw = single.view(np.int32)
    raw = np.where(np.abs(back) > np.abs(values), raw - 1, raw)
    raw = np.where((back != values) & np.isfinite(values), raw | 1, raw)
    return raw.astype(np.int32).view(np.float32).astype(DTYPES[dtype])


#: Bounds of the arguments of functions of two, per region.
REGIONS: dict[str, list[tuple[tuple[float, float], tuple[float, float]]]] = {
    "zeta": [((1.0, 3.0), (0.0, 20.0)), ((1.0, 60.0), (0.0, 30.0)), ((1.0, 300.0), (30.0, 1000.0))],
    "polygamma": [((1, 5), (0.0, 20.0)), ((1, 170), (0.2, 300.0)), ((1, 8), (-15.0, 0.0))],
}


def pairs(name: str, count: int, seed: int = 11) -> tuple[np.ndarray, np.ndarray]:
    """About ``count`` pairs of f64 arguments with finite results."""
    rng = np.random.default_rng(seed)
    if name == "pow":
        a = np.exp(rng.uniform(-700, 700, count))
        half = count // 2
        a[:half] = 1 + rng.uniform(-0.5, 1, half) * 2.0 ** rng.uniform(-40, 0, half)
        with np.errstate(divide="ignore", over="ignore"):
            b = rng.uniform(-745, 709, count) / np.log(a)
        return a[np.isfinite(b)], b[np.isfinite(b)]
    if name == "atan2":
        y, x = rng.normal(size=(2, count))
        part = count // 5
        y[:part] *= 2.0 ** rng.integers(-1000, 900, part)
        x[part // 2 : part // 2 + part] *= 2.0 ** rng.integers(-1000, 1000, part)
        return y * 2.0 ** rng.integers(-30, 30, count), x
    # These references are slow: fewer points.
    part = max(count // 20, 40)
    drawn = [[rng.uniform(*bounds, part) for bounds in region] for region in REGIONS[name]]
    first, second = (np.concatenate(column) for column in zip(*drawn, strict=True))
    return (np.floor(first) if name == "polygamma" else first), second
