"""What several operations become together: within its own claim, or the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special as special

from kcache_compiler.codegen import mlir
from kcache_compiler.codegen.math.compose import compose
from tests.math.harness import compiled, ulp_distance


def every(step: int) -> np.ndarray:
    """One f32 in ``step``, of both signs."""
    return np.arange(0, 1 << 32, step, dtype=np.int64).astype(np.uint32).view(np.float32)


def test_exp_below_has_the_bits_of_exp() -> None:
    x = every(9973)
    x = x[(x <= 0) | np.isnan(x)]
    ours, plain = compiled("exp_below", "f32")(x), compiled("exp", "f32")(x)
    assert np.array_equal(np.isnan(ours), np.isnan(x))
    assert np.array_equal(ours[~np.isnan(x)].view(np.int32), plain[~np.isnan(x)].view(np.int32))


@pytest.mark.parametrize(("low", "high", "claim"), [(-6, np.inf, 12), (-13, -6, 64), (-np.inf, -13, 64)])
def test_gelu(low: float, high: float, claim: int) -> None:
    """x P(x) for the normal distribution's P, also where it is subnormal."""
    x = np.concatenate([every(4999), np.linspace(-15, 15, 400_001, dtype=np.float32)])
    x = x[(x > low) & (x <= high)]
    wide = x.astype(np.float64)
    want = np.where(wide < -40, 0.0, wide * special.ndtr(wide)).astype(np.float32)
    distance = ulp_distance(compiled("gelu", "f32")(x), want)
    worst = int(np.argmax(distance))
    assert distance[worst] <= claim, (x[worst], distance[worst])


def test_gelu_at_the_ends() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45], np.float32)
    got = compiled("gelu", "f32")(x)
    assert got[0] == np.inf
    assert got[1] == 0
    assert np.isnan(got[2])
    assert np.array_equal(np.signbit(got[3:5]), [False, True])
    assert got[5] == 0


BODY = """
#map = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
func.func private @kcm_exp_f32(f32) -> f32
func.func @main(%x: tensor<4x4xf32>, %start: tensor<4xf32>, %other: tensor<4xf32>) -> tensor<4x4xf32> {{
  %most = linalg.generic {{indexing_maps = [#map, #row], iterator_types = ["parallel", "reduction"]}}
    ins(%x : tensor<4x4xf32>) outs(%start : tensor<4xf32>) {{
  ^bb0(%in: f32, %out: f32):
    %0 = arith.{combiner} %in, %out : f32
    linalg.yield %0 : f32
  }} -> tensor<4xf32>
  %1 = linalg.generic {{indexing_maps = [#map, {read}, #map], iterator_types = ["parallel", "parallel"]}}
    ins(%x, {of} : tensor<4x4xf32>, tensor<4xf32>) outs(%x : tensor<4x4xf32>) {{
  ^bb0(%in: f32, %max: f32, %out: f32):
    %2 = arith.subf {difference} : f32
    %3 = func.call @kcm_exp_f32(%2) : (f32) -> f32
    linalg.yield %3 : f32
  }} -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}}"""
MOST = {"combiner": "maximumf", "read": "#row", "of": "%most", "difference": "%in, %max"}


@pytest.mark.parametrize(
    ("change", "below"),
    [
        ({}, True),
        ({"combiner": "minimumf"}, False),
        ({"read": "#column"}, False),
        ({"of": "%other"}, False),
        ({"difference": "%max, %in"}, False),
    ],
)
def test_only_the_distance_from_the_own_maximum_is_never_above_0(change: dict[str, str], below: bool) -> None:
    with mlir.new_context(), mlir.unknown_location():
        module = mlir.parse(BODY.format(**{**MOST, **change}))
        compose(module, strict=True)
        calls = [str(call.attributes["callee"]) for call in mlir.named(module, "func.call")]
    assert calls == ["@kcm_exp_below_f32" if below else "@kcm_exp_f32"]
