"""Softmax and its like of numbers whose distances, or whose size, leave the range of the exponential."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from tests.ops.generated.judge import execute
from tests.ops.harness.programs import OpProgram

INF, NAN = np.inf, np.nan
DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
SIZE = 37
#: What is done to an element before: with it, the distance from the maximum may be computed in other steps.
BEFORE = {
    "as it is": "%p = stablehlo.abs %n : T",
    "by a temperature": "%p = stablehlo.divide %x, %tb : T",
    "times a scale": "%p = stablehlo.multiply %x, %tb : T",
    "times a scale and more": "%q = stablehlo.multiply %x, %tb : T\n  %p = stablehlo.add %q, %x : T",
}
#: Over the exponentials and their sums.
AFTER = {
    "softmax": "%o = stablehlo.divide %e, %sb : T",
    "log_softmax": """%l = stablehlo.log %s : V
  %lb = stablehlo.broadcast_in_dim %l, dims = [0] : (V) -> T
  %o = stablehlo.subtract %d, %lb : T""",
    "logsumexp": """%l = stablehlo.log %s : V
  %w = stablehlo.add %l, %m : V
  %o = stablehlo.broadcast_in_dim %w, dims = [0] : (V) -> T""",
}


def _broadcast(before: str) -> str:
    """The maximum of a row at each of its elements; by way of an axis of one element for some."""
    if not before.endswith("more"):
        return "%mb = stablehlo.broadcast_in_dim %m, dims = [0] : (V) -> T"
    kept = "%mk = stablehlo.broadcast_in_dim %m, dims = [0] : (V) -> KEPT"
    return f"{kept}\n  %mb = stablehlo.broadcast_in_dim %mk, dims = [0, 1] : (KEPT) -> T"


def text(dtype: str, rows: int, before: str, after: str) -> str:
    body = f"""func.func @main(%x: T, %t: S) -> (T) {{
  %tb = stablehlo.broadcast_in_dim %t, dims = [] : (S) -> T
  %n = stablehlo.negate %x : T
  {BEFORE[before]}
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %least = stablehlo.convert %low : (tensor<f32>) -> S
  %zero = stablehlo.constant dense<0.0> : S
  %m = stablehlo.reduce(%p init: %least) applies stablehlo.maximum across dimensions = [1] : (T, S) -> V
  {_broadcast(before)}
  %d = stablehlo.subtract %p, %mb : T
  %e = stablehlo.exponential %d : T
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (T, S) -> V
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (V) -> T
  {AFTER[after]}
  return %o : T
}}
"""
    body = body.replace("KEPT", f"tensor<{rows}x1x{dtype}>")
    types = {"T": f"tensor<{rows}x{SIZE}x{dtype}>", "V": f"tensor<{rows}x{dtype}>", "S": f"tensor<{dtype}>"}
    for name, kind in types.items():
        body = body.replace(f": {name}\n", f": {kind}\n").replace(f"({name})", f"({kind})")
        body = body.replace(f"-> {name}\n", f"-> {kind}\n").replace(f": {name},", f": {kind},")
        body = body.replace(f"%t: {name})", f"%t: {kind})").replace(f"({name}, S)", f"({kind}, S)")
        body = body.replace(f", {name})", f", {kind})")
    return body


def argument(dtype: str) -> np.ndarray:
    """Rows of large and of equal numbers, with infinities and NaN, in the middle and at the ends."""
    rng = np.random.default_rng(11)
    most = float(ml_dtypes.finfo(DTYPES[dtype]).max)
    mixed = rng.normal(size=SIZE)
    rows = [
        mixed,
        mixed * 1e3,
        mixed * min(1e9, most / 8),
        most / 4 * (1 - 1e-3 * rng.random(SIZE)),
        np.full(SIZE, most / 4),
        np.full(SIZE, -most / 4),
        np.where(rng.random(SIZE) < 0.5, most / 4, -most / 4),
        np.where(rng.random(SIZE) < 0.3, -INF, mixed),
        np.full(SIZE, -INF),
        np.where(np.arange(SIZE) == SIZE - 1, INF, mixed),
        np.where(np.arange(SIZE) == 5, NAN, mixed),
        mixed * 1e-40,
    ]
    with np.errstate(all="ignore"):
        return np.stack(rows).astype(DTYPES[dtype])


def computed(dtype: str, before: str, after: str, numerics: str) -> np.ndarray:
    x, scale = argument(dtype), np.array(0.75, DTYPES[dtype])
    program = OpProgram(
        after, dtype, text(dtype, len(x), before, after), [x.tobytes(), scale.tobytes()], [dtype]
    )
    [content] = execute(program, 2, numerics)
    return np.frombuffer(content, DTYPES[dtype]).reshape(x.shape).astype(np.float64)


PROPERTIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "softmax": lambda values: (values >= 0) & (values <= 1 + 1e-6),
    "log_softmax": lambda values: values <= 1e-6,
    "logsumexp": lambda values: np.ones(values.shape, bool),
}


CASES = [(dtype, before, after, "default") for dtype in DTYPES for before in BEFORE for after in AFTER]


@pytest.mark.sampled(36)
@pytest.mark.parametrize(
    ("dtype", "before", "after", "numerics"), [*CASES, ("f32", "times a scale", "softmax", "fast")]
)
def test_numerics_agree_with_strict_ones(dtype: str, before: str, after: str, numerics: str) -> None:
    """Where an element is not rounded before; else within what a rounding of the largest element makes, and
    always in the range of the function.
    """
    strict = computed(dtype, before, after, "strict")
    results = computed(dtype, before, after, numerics)
    assert np.array_equal(np.isnan(results), np.isnan(strict))
    number = ~np.isnan(strict)
    assert PROPERTIES[after](results)[number].all()
    eps = float(ml_dtypes.finfo(DTYPES[dtype]).eps)
    large = [2, 3, 4, 5, 6]
    rows = np.ones(len(strict), bool)
    if before != "as it is":
        rows[large] = after == "logsumexp"
    with np.errstate(invalid="ignore"):
        near = (results == strict) | (np.abs(results - strict) <= 16 * eps * np.maximum(1, np.abs(strict)))
    assert (near | ~number)[rows].all(), np.argwhere(~(near | ~number))[:5]
    if after == "softmax":
        sums = results[number.all(axis=1)].sum(axis=1)
        assert np.abs(sums - 1).max() <= SIZE * eps
