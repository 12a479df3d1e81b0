"""What the value-changing rewrites make is as near to the function as the worst of the forms that they merge.

Kernels of each framework's own form (``strict``) and of the one that they are raised to (``default``) are
compared with the function in f64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

from kcache_compiler import canonicalize
from kcache_compiler.spec.rendering.stablehlo import render
from kcache_compiler.spec.rewrites.table import VALUE_CHANGING
from kcache_compiler.types import ArgSpec, TensorType
from tests.compiler.codegen_harness import Kernel, kernel_of

EXPORTED = Path(__file__).parents[2] / "functions" / "exported"
UNIT = 2.0**-24


def gelu_erf(x):
    return x * special.ndtr(x)


def gelu_tanh(x):
    return x * special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


def variance(x, ddof=0):
    return x.var(axis=-1, ddof=ddof)


def standardize(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def batch_norm(x, g, b, m, v):
    g, b, m, v = (a[None, :, None, None] for a in (g, b, m, v))
    return (x - m) / np.sqrt(v + 1e-5) * g + b


def cross_entropy(x, t):
    return -(t * special.log_softmax(x, axis=-1)).sum(-1).mean()


def adam(p, g, m, v, t):
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 1e-3 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8), m, v


def rows(rng: np.random.Generator) -> np.ndarray:
    """Rows around different means, at most 30 deviations away from 0."""
    return rng.normal(size=(40, 257)) * rng.choice([0.1, 1, 50], (40, 1)) + rng.choice([0, 1, -3], (40, 1))


def wide(rng: np.random.Generator) -> np.ndarray:
    parts = [rng.normal(size=8000) * 3, np.linspace(-14, 14, 8000), 10.0 ** rng.uniform(-30, 4, 448)]
    return np.concatenate(parts).reshape(64, 257)


@dataclass(frozen=True)
class Case:
    """``bound``: of the error of the raised form, in units of rounding of ``scale``."""

    function: Callable[..., Any]
    arguments: Callable[[np.random.Generator], list[np.ndarray]]
    scale: Callable[..., Any]
    bound: float


CASES = {
    "gelu_erf": Case(gelu_erf, lambda rng: [wide(rng)], np.abs, 8),
    "gelu_tanh": Case(gelu_tanh, lambda rng: [wide(rng)], np.abs, 8),
    "layer_norm": Case(
        lambda x, g, b: standardize(x) * g + b,
        lambda rng: [rows(rng), rng.normal(size=257), rng.normal(size=257)],
        lambda x, g, b: (
            (1 + np.abs(x).max(-1, keepdims=True) / x.std(-1, keepdims=True)) * (np.abs(g) + np.abs(b))
        ),
        16,
    ),
    "standardize": Case(
        standardize,
        lambda rng: [rows(rng)],
        lambda x: 1 + np.abs(x).max(-1, keepdims=True) / x.std(-1, keepdims=True),
        16,
    ),
    "variance": Case(variance, lambda rng: [rows(rng)], variance, 64),
    "variance_unbiased": Case(lambda x: variance(x, 1), lambda rng: [rows(rng)], variance, 64),
    "batch_norm": Case(
        batch_norm,
        lambda rng: [rng.normal(size=(3, 5, 16, 16)) * 4, *rng.normal(size=(3, 5)), rng.uniform(0.01, 9, 5)],
        lambda x, g, b, m, v: (np.abs(x) + 9) * 11 * (1 + np.abs(g).max() + np.abs(b).max()),
        4,
    ),
    "cross_entropy": Case(
        cross_entropy,
        lambda rng: [rng.normal(size=(6, 10)) * 5, special.softmax(rng.normal(size=(6, 10)), -1)],
        cross_entropy,
        64,
    ),
    "adam": Case(
        adam,
        lambda rng: (
            [*(rng.normal(size=(3, 40, 257)) * [[[1.0]], [[0.1]], [[0.1]]]), rng.uniform(1e-6, 1, (40, 257))]
            + [np.array(7.0)]
        ),
        lambda p, g, m, v, t: (np.abs(p) + 0.01, np.abs(m) + np.abs(g), v + g * g),
        8,
    ),
}


def spec(text: str, numerics: str, shapes: list[tuple[int, ...]]) -> str:
    """The rendered program of a spec, at other sizes."""
    form = canonicalize(text.encode(), "stablehlo", numerics)
    args = [TensorType(a.dtype, shape) for a, shape in zip(form.arg_spec.args, shapes, strict=True)]
    return render(form.spec_text, ArgSpec(tuple(args)))


def forms(name: str) -> list[str]:
    return [path.read_text() for path in sorted(EXPORTED.glob(f"{name}.*"))]


@cache
def kernel(text: str, numerics: str = "default") -> Kernel:
    return kernel_of(text, opt_level=1, numerics=numerics)


def error(text: str, arguments: list[np.ndarray], case: Case) -> float:
    """The greatest error of a program's kernel, in units of rounding."""
    outputs = kernel(text)(*arguments)
    exact = [a.astype(np.float64) for a in arguments]
    wanted, scales = case.function(*exact), case.scale(*exact)
    if not isinstance(wanted, tuple):
        wanted, scales = (wanted,), (scales,)
    assert all(np.isfinite(f).all() for f in outputs)
    return max(
        float(np.max(np.abs(f - w) / (UNIT * np.maximum(s, 1e-30))))
        for f, w, s in zip(outputs, wanted, scales, strict=True)
    )


@pytest.mark.sampled(18)
@pytest.mark.parametrize("name", CASES)
def test_the_raised_form_is_no_worse_than_the_worst_of_the_frameworks_own(name: str) -> None:
    case = CASES[name]
    arguments = [a.astype(np.float32) for a in case.arguments(np.random.default_rng(7))]
    shapes = [a.shape for a in arguments]
    own = {spec(text, "strict", shapes) for text in forms(name)}
    raised = {spec(text, "default", shapes) for text in forms(name)}
    errors = [error(text, arguments, case) for text in own]
    for text in raised:
        measured = error(text, arguments, case)
        assert measured <= case.bound
        assert measured <= 1.25 * max(errors) + 1


SPECIAL = np.array(
    [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1e-45,
        -1e-45,
        1e-38,
        3e38,
        -3e38,
        1e20,
        -1e20,
        88.0,
        -88.0,
        -13.5,
        5.0,
    ]
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["gelu_erf", "gelu_tanh"])
def test_special_values_are_those_of_a_framework(name: str) -> None:
    x = SPECIAL.astype(np.float32).reshape(2, 8)
    own = [kernel(spec(text, "strict", [x.shape]), "strict")(x)[0] for text in forms(name)]
    for text in {spec(text, "default", [x.shape]) for text in forms(name)}:
        (result,) = kernel(text)(x)
        room = 1e-6 * np.nan_to_num(np.abs(x), posinf=0)
        near = [np.isclose(result, other, rtol=1e-6, atol=room, equal_nan=True) for other in own]
        assert np.logical_or.reduce(near).all()
        assert np.signbit(result[x == 0]).tolist() == np.signbit(x[x == 0]).tolist()


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", ["layer_norm", "variance", "batch_norm", "cross_entropy", "adam"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0])
def test_what_is_not_finite_stays_so(name: str, value: float) -> None:
    """Where every form of a framework is finite, the raised one is; where none is, it is not."""
    case = CASES[name]
    arguments = [a.astype(np.float32) for a in case.arguments(np.random.default_rng(3))]
    arguments[0].reshape(-1)[5] = value
    shapes = [a.shape for a in arguments]
    texts = {spec(text, "strict", shapes) for text in forms(name)}
    own = [kernel(text, "strict")(*arguments) for text in texts]
    for text in {spec(text, "default", shapes) for text in forms(name)}:
        for result, *others in zip(kernel(text)(*arguments), *own, strict=True):
            finite = [np.isfinite(other) for other in others]
            assert np.isfinite(result)[np.logical_and.reduce(finite)].all()
            assert not np.isfinite(result)[~np.logical_or.reduce(finite)].any()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["gelu_erf", "gelu_tanh"])
def test_halves_are_no_worse_either(name: str) -> None:
    """All values of f16 between -60 and 60."""
    text = (EXPORTED / f"{name}.jax.mlir").read_text().replace("f32", "f16")
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = np.resize(x[np.abs(x) < 60], (190, 257))
    wanted = CASES[name].function(x.astype(np.float64))
    errors = [
        np.abs(kernel(spec(text, numerics, [x.shape]))(x)[0].astype(np.float64) - wanted).max()
        for numerics in ("default", "strict")
    ]
    assert errors[0] <= errors[1]


def test_every_rewrite_says_by_how_much_it_changes_values() -> None:
    for rewrite in VALUE_CHANGING["default"]:
        assert any(word in rewrite.proof for word in ("ulp", "unit", "2^-")), rewrite.name
