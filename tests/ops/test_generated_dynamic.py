"""Programs with open sizes: one kernel agrees at three tuples of sizes, and rejects those that break it."""

from __future__ import annotations

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.types import Canonical, CompiledKernel, CompileOptions
from kcache_grpc.model.target import host_target
from tests.ops.generated.drive import Case, cases
from tests.ops.generated.dynamic.__main__ import BAD
from tests.ops.generated.dynamic.catalog import pairs
from tests.ops.harness.native import run

#: What CI has: operations whose sizes are computed, and definitions of ours.
SAMPLE = (
    ("concatenate", "f32"),
    ("convolution", "f32"),
    ("dynamic_iota", "i32"),
    ("fft", "c64"),
    ("cholesky", "f32"),
    ("chlo.broadcast_add", "i32"),
    ("reduce_window", "i32"),
    ("batch_norm_training", "f32"),
)
#: Operations that take sizes as arguments.
TOLD = (
    ("dynamic_broadcast_in_dim", "f32"),
    ("dynamic_iota", "i32"),
    ("dynamic_reshape", "f64"),
    ("dynamic_gather", "f32"),
)
_MODULE = "tests.ops.generated.dynamic.child"

#: As ``jax.export`` writes ``pad(x[: n // 2], 1) / n`` of ``f32[n]`` with ``n >= 2``.
HALF = """
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.constant dense<0> : tensor<i32>
  %1 = stablehlo.constant dense<1> : tensor<i32>
  %2 = stablehlo.constant dense<2> : tensor<i32>
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %ok = stablehlo.compare GE, %n, %2, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%ok, %n) {
    api_version = 2 : i32, error_message = "n is {0}", has_side_effect = true
  } : (tensor<i1>, tensor<i32>) -> ()
  %q = stablehlo.divide %n, %2 : tensor<i32>
  %sn = stablehlo.sign %n : tensor<i32>
  %s2 = stablehlo.sign %2 : tensor<i32>
  %apart = stablehlo.compare NE, %sn, %s2, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %r = stablehlo.remainder %n, %2 : tensor<i32>
  %rest = stablehlo.compare NE, %r, %0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %down = stablehlo.and %apart, %rest : tensor<i1>
  %less = stablehlo.subtract %q, %1 : tensor<i32>
  %half = stablehlo.select %down, %less, %q : tensor<i1>, tensor<i32>
  %start = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
  %limit = stablehlo.reshape %half : (tensor<i32>) -> tensor<1xi32>
  %step = stablehlo.reshape %1 : (tensor<i32>) -> tensor<1xi32>
  %part = stablehlo.real_dynamic_slice %x, %start, %limit, %step
    : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %wide = stablehlo.pad %part, %zero, low = [1], high = [1], interior = [0]
    : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
  %nf = stablehlo.convert %n : (tensor<i32>) -> tensor<f32>
  %two = stablehlo.add %half, %2 : tensor<i32>
  %shape = stablehlo.reshape %two : (tensor<i32>) -> tensor<1xi32>
  %all = stablehlo.dynamic_broadcast_in_dim %nf, %shape, dims = []
    : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %made = stablehlo.divide %wide, %all : tensor<?xf32>
  return %made : tensor<?xf32>
}
"""


def _compiled(text: str) -> tuple[Canonical, CompiledKernel]:
    canonical = canonicalize(text.encode(), "stablehlo", "strict")
    options = CompileOptions(numerics="strict")
    isa = host_target().isa
    return canonical, compile_spec(canonical.spec_text, canonical.arg_spec, isa, options, lambda _: None)


def _judged(chosen: list[tuple[str, str]], programs: int, seed: int, module: str = _MODULE) -> list[Case]:
    results = list(cases(chosen, programs, seed, module=module))
    bad = [case for case in results if case.outcome in BAD]
    assert not bad, bad[0]
    return results


def test_generated_programs_are_right_at_three_tuples_of_sizes() -> None:
    results = _judged(list(SAMPLE), len(SAMPLE), seed=2)
    assert len(results) == len(SAMPLE)
    assert sum(case.outcome == "right" for case in results) >= len(SAMPLE) - 1, results


def test_generated_programs_are_right_at_sizes_that_they_are_told() -> None:
    results = _judged(list(TOLD), 2 * len(TOLD), seed=3, module=f"{_MODULE} --told")
    assert sum(case.outcome == "right" for case in results) >= 2 * len(TOLD) - 2, results


@pytest.mark.long
@pytest.mark.parametrize("share", range(8))
def test_every_pair_has_no_wrong_result_at_open_sizes(share: int) -> None:
    chosen = pairs()[share::8]
    results = _judged(chosen, len(chosen), seed=4)
    there = [case for case in results if case.outcome not in ("none", "no-oracle")]
    assert sum(case.outcome == "right" for case in there) >= 0.9 * len(there)


def test_sizes_that_a_program_computes_stay_open_and_its_assertions_are_checked() -> None:
    canonical, kernel = _compiled(HALF)
    assert not canonical.constants
    for n in (2, 3, 8, 37):
        x = np.arange(1, n + 1, dtype=np.float32)
        (content,) = run(kernel, [x.tobytes()], [], (n,))
        wanted = np.pad(x[: n // 2], 1) / np.float32(n)
        assert np.frombuffer(content, np.float32).tolist() == wanted.tolist()
    for n in (0, 1):
        with pytest.raises(RuntimeError, match="returned 1"):
            run(kernel, [np.zeros(n, np.float32).tobytes()], [], (n,))


def test_a_size_that_is_set_takes_the_first_elements() -> None:
    text = """
    func.func @main(%x: tensor<?x2xi32>, %y: tensor<?xi32>) -> tensor<?x2xi32> {
      %n = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?xi32>) -> tensor<i32>
      %r = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<?x2xi32>, tensor<i32>) -> tensor<?x2xi32>
      return %r : tensor<?x2xi32>
    }"""
    _, kernel = _compiled(text)
    x, y = np.arange(10, dtype=np.int32), np.zeros(6, np.int32)
    (content,) = run(kernel, [x.tobytes(), y[:3].tobytes()], [], (5, 3))
    assert np.frombuffer(content, np.int32).tolist() == x[:6].tolist()
    with pytest.raises(RuntimeError, match="returned 1"):
        run(kernel, [x.tobytes(), y.tobytes()], [], (5, 6))


def test_axes_of_one_letter_have_one_size() -> None:
    text = """
    func.func @main(%x: tensor<1x?xf32>, %y: tensor<?x5xf32>) -> tensor<1x5xf32> {
      %r = "stablehlo.einsum"(%x, %y) <{einsum_config = "ij,jk->ik"}>
        : (tensor<1x?xf32>, tensor<?x5xf32>) -> tensor<1x5xf32>
      return %r : tensor<1x5xf32>
    }"""
    canonical, kernel = _compiled(text)
    assert canonical.symbolic_args[0].dims[1] == canonical.symbolic_args[1].dims[0]
    for n in (0, 1, 6):
        x, y = np.arange(1, n + 1, dtype=np.float32), np.ones((n, 5), np.float32)
        (content,) = run(kernel, [x.tobytes(), y.tobytes()], [], (n,))
        assert np.frombuffer(content, np.float32).tolist() == [x.sum()] * 5


def test_sizes_that_choose_between_open_ones_keep_their_choice() -> None:
    text = """
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %five = stablehlo.constant dense<5> : tensor<i32>
      %most = stablehlo.maximum %n, %five : tensor<i32>
      %more = stablehlo.subtract %most, %n : tensor<i32>
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %none = stablehlo.reshape %zero : (tensor<i32>) -> tensor<1xi32>
      %high = stablehlo.reshape %more : (tensor<i32>) -> tensor<1xi32>
      %fill = stablehlo.constant dense<7.0> : tensor<f32>
      %r = stablehlo.dynamic_pad %x, %fill, %none, %high, %none
        : (tensor<?xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
      return %r : tensor<?xf32>
    }"""
    try:
        _, kernel = _compiled(text)
    except UnsupportedOp:
        return  # rejected, as at all samples that are tried one side is chosen; never one side for all sizes
    for n in (2, 9):
        (content,) = run(kernel, [np.ones(n, np.float32).tobytes()], [], (n,))
        assert np.frombuffer(content, np.float32).tolist() == [1.0] * n + [7.0] * (5 - n)


def test_an_assertion_of_data_is_rejected() -> None:
    text = """
    func.func @main(%x: tensor<?xf32>, %c: tensor<i1>) -> tensor<?xf32> {
      stablehlo.custom_call @shape_assertion(%c) {has_side_effect = true} : (tensor<i1>) -> ()
      return %x : tensor<?xf32>
    }"""
    with pytest.raises(UnsupportedOp, match="no comparison of sizes"):
        _compiled(text)
