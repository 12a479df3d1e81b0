"""The same bits at every level of optimization and for every level of x86-64, and loops that vectorize."""

import functools
import re

import numpy as np
import pytest

from kcache_compiler.passes.math import functions
from tests.compiler.codegen_harness import runs_here
from tests.math.harness import DTYPES, ForTarget, assembly

BY_NAME = {f.name: f for f in functions()}
NAMES = [
    f.name for f in functions() if not f.name.startswith("is") and f.name not in ("fpowi", "ipowi", "upowi")
]
#: Functions that loop over a number of steps that depends on their arguments.
LOOPING = {"rem", "zeta", "polygamma"}


def inputs(dtype: str, arity: int) -> list[np.ndarray]:
    rng = np.random.default_rng(arity)
    wide = rng.normal(size=(arity, 600)) * 10.0 ** rng.uniform(-6, 6, (arity, 600))
    near = rng.uniform(-4, 4, (arity, 600))
    edge = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 2.0, 1e-40, 3e38, -100.0])
    edges = np.stack([np.roll(edge, i) for i in range(arity)])
    return list(np.concatenate([wide, near, edges], axis=1).astype(DTYPES[dtype]))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal encodings, any NaN equal to any other."""
    raw = f"u{a.dtype.itemsize}"
    return bool(np.all((a.view(raw) == b.view(raw)) | (np.isnan(a) & np.isnan(b))))


@functools.cache
def run(name: str, dtype: str, target: str, opt_level: int) -> np.ndarray:
    arity = BY_NAME[name].arity
    function = ForTarget(f"{name}_{dtype}", (dtype,) * arity, dtype, target, opt_level)
    return function(*inputs(dtype, arity))


@pytest.mark.sampled(24)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", NAMES)
def test_same_bits_on_every_target(name: str, dtype: str) -> None:
    reference = run(name, dtype, "x86-64-v2", 3)
    for target in ("x86-64-v3", "x86-64-v4"):
        if runs_here(target):
            assert same_bits(reference, run(name, dtype, target, 3)), target


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", NAMES)
def test_same_bits_at_every_level(name: str) -> None:
    assert same_bits(run(name, "f32", "x86-64-v3", 3), run(name, "f32", "x86-64-v3", 0))


VECTOR = [n for n in NAMES if n not in LOOPING]


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("target", "register"), [("x86-64-v4", "zmm"), ("x86-64-v3", "ymm")])
@pytest.mark.parametrize("name", VECTOR)
def test_f32_loops_vectorize_without_calls(name: str, target: str, register: str) -> None:
    text = assembly(f"{name}_f32", ("f32",) * BY_NAME[name].arity, "f32", target)
    assert not re.search(r"^\s*(call|jmp)\w*\s+\*?[a-z]\w*(@PLT)?$", text, re.MULTILINE), "calls something"
    if BY_NAME[name].ulp:
        arithmetic = re.findall(
            rf"^\s*v(?:f?n?m|add|sub|mul|sqrt)\w*p[sd]\s.*%({register})\d+", text, re.MULTILINE
        )
        assert len(arithmetic) >= 1


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "logistic", "erf", "sin", "pow"])
def test_f64_loops_vectorize_without_calls(name: str) -> None:
    text = assembly(f"{name}_f64", ("f64",) * BY_NAME[name].arity, "f64", "x86-64-v4")
    assert not re.search(r"^\s*call", text, re.MULTILINE)
    assert re.search(r"vf\w*pd\s.*%zmm", text)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", NAMES)
def test_aarch64_needs_no_library(name: str, dtype: str) -> None:
    text = assembly(f"{name}_{dtype}", (dtype,) * BY_NAME[name].arity, dtype, "aarch64")
    assert not re.search(r"^\s*bl\s", text, re.MULTILINE)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", [n for n in NAMES if "f16" in BY_NAME[n].dtypes])
def test_narrow_floats_need_no_library(name: str, dtype: str) -> None:
    text = assembly(f"{name}_{dtype}", (dtype,) * BY_NAME[name].arity, dtype, "x86-64-v3")
    assert not re.search(r"^\s*call", text, re.MULTILINE)
