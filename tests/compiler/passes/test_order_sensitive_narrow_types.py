"""Narrow numbers that a maximum, a sort or a step is taken of, and that another reader sees too."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from tests.ops.generated.judge import execute
from tests.ops.harness.programs import OpProgram

DTYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
ROWS = 7
MOST = """%m = stablehlo.reduce(%p init: %least) applies stablehlo.maximum
    across dimensions = [1] : (T, S) -> V
  %b = stablehlo.broadcast_in_dim %m, dims = [0] : (V) -> T"""
SHARE = """%s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (T, S) -> V
  %r = stablehlo.broadcast_in_dim %s, dims = [0] : (V) -> T
  %o = stablehlo.divide %e, %r : T"""
#: What is computed of %p = %x * %t, which no loop stores.
PROGRAMS = {
    "places of the maximum, as its gradient takes them": f"""{MOST}
  %c = stablehlo.compare EQ, %p, %b : (T, T) -> B
  %e = stablehlo.convert %c : (B) -> T
  {SHARE}""",
    "distances below a maximum": f"""{MOST}
  %d = stablehlo.subtract %b, %p : T
  %n = stablehlo.negate %d : T
  %e = stablehlo.exponential %n : T
  {SHARE}""",
    "softmax of negatives": f"""%m = stablehlo.reduce(%p init: %most) applies stablehlo.minimum
    across dimensions = [1] : (T, S) -> V
  %b = stablehlo.broadcast_in_dim %m, dims = [0] : (V) -> T
  %d = stablehlo.subtract %b, %p : T
  %e = stablehlo.exponential %d : T
  {SHARE}""",
    "parts of a maximum": f"""{MOST}
  %q = stablehlo.divide %p, %b : T
  %l = stablehlo.subtract %one, %q : T
  %o = stablehlo.sqrt %l : T""",
    "scaled again": f"""{MOST}
  %u = stablehlo.multiply %p, %f : T
  %w = stablehlo.multiply %b, %f : T
  %d = stablehlo.subtract %u, %w : T
  %e = stablehlo.exponential %d : T
  {SHARE}""",
    "a maximum that is no number is 0": f"""{MOST}
  %i = stablehlo.is_finite %b : (T) -> B
  %z = stablehlo.subtract %one, %one : T
  %k = stablehlo.select %i, %b, %z : B, T
  %d = stablehlo.subtract %p, %k : T
  %e = stablehlo.exponential %d : T
  {SHARE}""",
    "the largest so far": """%b = "stablehlo.reduce_window"(%p, %least) ({
   ^bb0(%g: S, %h: S):
    %v = stablehlo.maximum %g, %h : S
    stablehlo.return %v : S
   }) {window_dimensions = array<i64: 1, SIZE>, padding = dense<[[0, 0], [BEFORE, 0]]> : tensor<2x2xi64>}
   : (T, S) -> T
  %d = stablehlo.subtract %p, %b : T
  %o = stablehlo.exponential %d : T""",
    "what is above the whole number below": """%b = stablehlo.floor %p : T
  %d = stablehlo.subtract %p, %b : T
  %o = stablehlo.sqrt %d : T""",
    "some and one": """%c = stablehlo.compare GT, %x, %one : (T, T) -> B
  %q = stablehlo.select %c, %p, %one : B, T
  %d = stablehlo.subtract %p, %q : T
  %o = stablehlo.exponential %d : T""",
}


def text(body: str, dtype: str, size: int) -> str:
    whole = f"""func.func @main(%x: T, %t: S) -> (T) {{
  %f = stablehlo.broadcast_in_dim %t, dims = [] : (S) -> T
  %one = stablehlo.constant dense<1.0> : T
  %zero = stablehlo.constant dense<0.0> : S
  %down = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %least = stablehlo.convert %down : (tensor<f32>) -> S
  %most = stablehlo.negate %least : S
  %p = stablehlo.multiply %x, %f : T
  {body}
  return %o : T
}}
"""
    kinds = {
        "T": f"tensor<{ROWS}x{size}x{dtype}>",
        "B": f"tensor<{ROWS}x{size}xi1>",
        "V": f"tensor<{ROWS}x{dtype}>",
        "S": f"tensor<{dtype}>",
    }
    whole = whole.replace("SIZE", str(size)).replace("BEFORE", str(size - 1))
    return re.sub(r"(?<![\w%])[TBVS](?!\w)", lambda match: kinds[match.group(0)], whole)


def argument(dtype: str, size: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    most = float(ml_dtypes.finfo(DTYPES[dtype]).max)
    mixed, part = rng.normal(size=size), rng.random(size)
    rows = [mixed, mixed * 1e3, mixed * most / 8, most / 4 * (1 - part / 1e3), np.full(size, most / 4)]
    return np.stack([*rows, most * part, -most * part]).astype(DTYPES[dtype])


@pytest.mark.sampled(36)
@pytest.mark.parametrize("size", [1, 37])
@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_every_reader_sees_the_rounded_number(name: str, dtype: str, size: int) -> None:
    x, scale = argument(dtype, size), np.array(0.7, DTYPES[dtype])
    program = OpProgram(
        name, dtype, text(PROGRAMS[name], dtype, size), [x.tobytes(), scale.tobytes()], [dtype]
    )
    strict, default = (
        np.frombuffer(execute(program, 2, numerics)[0], DTYPES[dtype]).astype(np.float64)
        for numerics in ("strict", "default")
    )
    eps = float(ml_dtypes.finfo(DTYPES[dtype]).eps)
    assert np.array_equal(np.isfinite(default), np.isfinite(strict))
    assert np.allclose(default, strict, rtol=4 * eps, atol=4 * eps, equal_nan=True)
