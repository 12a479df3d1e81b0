"""What several operations become together: within its own claim, or the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special as special

from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.math.compose import compose
from kcache_compiler.passes.math.exponential import VANISHING
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


def test_exp_distance() -> None:
    x = np.concatenate([every(4999), np.linspace(-105, 0, 400_001, dtype=np.float32)])
    x = x[(x <= 0) | np.isnan(x)]
    got = compiled("exp_distance", "f32")(x)
    assert np.array_equal(np.isnan(got), np.isnan(x))
    x, got = x[~np.isnan(x)], got[~np.isnan(x)]
    distance = ulp_distance(got, np.exp(x.astype(np.float64)).astype(np.float32))
    assert distance.max() <= 1
    assert (got <= 1).all()
    assert (got[x == 0] == 1).all()
    assert not got[x < -104].any()


def test_exp_weight_has_no_subnormal_results() -> None:
    x = np.concatenate([every(9973), np.linspace(-90, 0, 400_001, dtype=np.float32)])
    x = x[(x <= 0) | np.isnan(x)]
    got, plain = compiled("exp_weight", "f32")(x), compiled("exp", "f32")(x)
    assert np.array_equal(np.isnan(got), np.isnan(x))
    tiny = x < VANISHING
    assert not got[tiny].any()
    assert (got[~tiny & ~np.isnan(x)] >= np.finfo(np.float32).smallest_normal).all()
    assert ulp_distance(got[~tiny], plain[~tiny]).max() <= 2


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


@pytest.mark.parametrize("scale", [1e-3, 0.01, 0.1, 0.3, 1.0, 3.0])
def test_the_error_of_gelu_near_0_is_that_of_rounding(scale: float) -> None:
    """Small activations are usual: a unit in the last place there is an error of the whole model."""
    x = (np.random.default_rng(0).standard_normal(100_000) * scale).astype(np.float32)
    want = x.astype(np.float64) * special.ndtr(x.astype(np.float64))
    error = np.linalg.norm(compiled("gelu", "f32")(x) - want) / np.linalg.norm(want)
    assert error < 4.5e-8


def test_gelu_at_the_ends() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, -14.4, -1e30, -3.4e38], np.float32)
    got = compiled("gelu", "f32")(x)
    assert got[0] == np.inf
    assert np.isnan(got[1])  # -inf * 0, as of the operations
    assert np.isnan(got[2])
    assert np.array_equal(np.signbit(got[3:5]), [False, True])
    assert not got[5:].any()


BODY = """
#map = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>
func.func private @kcm_exp_f32(f32) -> f32
func.func @main(%x: tensor<4x4xf32>, %start: tensor<4xf32>, %other: tensor<4xf32>) -> tensor<4x4xf32> {{
  %most = linalg.generic {{indexing_maps = [#map, #row], iterator_types = ["parallel", "reduction"]}}
    ins(%x : tensor<4x4xf32>) outs(%start : tensor<4xf32>) {{
  ^bb0(%in: f32, %out: f32):
    {first}
    %0 = arith.{combiner} {reduced}, %out : f32
    linalg.yield %0 : f32
  }} -> tensor<4xf32>
  %1 = linalg.generic {{indexing_maps = [#map, {read}, #map], iterator_types = ["parallel", "parallel"]}}
    ins(%x, {of} : tensor<4x4xf32>, tensor<4xf32>) outs(%x : tensor<4x4xf32>) {{
  ^bb0(%in: f32, %max: f32, %out: f32):
    {second}
    %2 = arith.subf {difference} : f32
    %3 = func.call @kcm_exp_f32(%2) : (f32) -> f32
    linalg.yield %3 : f32
  }} -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}}"""
MOST = {"combiner": "maximumf", "read": "#row", "of": "%most", "difference": "%in, %max"}
MOST |= {"first": "", "reduced": "%in", "second": ""}
#: What the elements are computed by in both.
_MASKED = """%i = linalg.index {dim} : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sge, %i, %j : index
    %n = arith.constant {other} : f32
    %k = arith.constant {factor} : f32
    %p = arith.mulf %in, %k : f32
    %v = arith.select %c, %p, %n : f32"""


def _masked(dim: int = 0, factor: float = 0.125, other: float = -1e30) -> str:
    return _MASKED.format(dim=dim, factor=f"{factor:e}", other=f"{other:e}")


def _computed(first: str, second: str) -> dict[str, str]:
    return {"first": first, "reduced": "%v", "second": second, "difference": "%v, %max"}


@pytest.mark.parametrize(
    ("change", "below"),
    [
        ({}, True),
        ({"combiner": "minimumf"}, False),
        ({"read": "#column"}, False),
        ({"of": "%other"}, False),
        ({"difference": "%max, %in"}, False),
        (_computed(_masked(), _masked()), True),
        (_computed(_masked(dim=1), _masked()), False),
        (_computed(_masked(other=-1e20), _masked()), False),
        (_computed(_masked(factor=0.25), _masked()), False),
        # A product that is not exact may be rounded with what is subtracted from it.
        (_computed(_masked(factor=0.3), _masked(factor=0.3)), False),
        ({**_computed(_masked(), _masked()), "reduced": "%in"}, False),
    ],
)
def test_only_the_distance_from_the_own_maximum_is_never_above_0(change: dict[str, str], below: bool) -> None:
    with mlir.new_context(), mlir.unknown_location():
        module = mlir.parse(BODY.format(**{**MOST, **change}))
        compose(module, strict=True, flush=False)
        calls = [str(call.attributes["callee"]) for call in mlir.named(module, "func.call")]
    assert calls == ["@kcm_exp_below_f32" if below else "@kcm_exp_f32"]


def test_the_shorter_exponential() -> None:
    """``exp_distance`` where the target has fused multiply-add and no instruction that scales; not strict."""
    with mlir.new_context(), mlir.unknown_location():
        module = mlir.parse(BODY.format(**MOST))
        compose(module, strict=False, flush=True, shorter=True)
        calls = [str(call.attributes["callee"]) for call in mlir.named(module, "func.call")]
    assert calls == ["@kcm_exp_distance_f32"]
