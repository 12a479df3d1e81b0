"""JAX's cases of its primitives give what JAX gives: a few here, all of them in the long tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("jax")
pytest.importorskip("absl")

import numpy as np

from tests.conformance.jax_harnesses.agree import differs

_ROOT = Path(__file__).resolve().parents[3]
_SAMPLE = {
    "static": (
        "add_dtypes_lhs_bfloat16",
        "svd_shape_float32_2_2_fullmatrices_True_computeuv_True",
        "scatter_min_dtypes_shape_bfloat16",
    ),
    "batched": ("cumsum_axis_by_fun_shape_float32_8_9_axis_0", "dynamic_slice_dtypes_a_float32_3"),
    "symbols": ("reshape to a product", "slice behind the first", "fori_loop of a size"),
}
_PARTS = 32


def judged(mode: str, *more: str) -> tuple[int, str]:
    """The status of the command, whose JAX has 64 bits and CPUs only, and its last line."""
    command = [sys.executable, "-m", "tests.conformance.jax_harnesses", "--mode", mode, *more]
    done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, check=False)
    assert done.stdout, done.stderr
    return done.returncode, done.stdout.splitlines()[-1]


@pytest.mark.long
@pytest.mark.parametrize(
    "mode", [mode if mode == "symbols" else pytest.param(mode, marks=pytest.mark.long) for mode in _SAMPLE]
)
def test_a_few(mode: str) -> None:
    status, last = judged(mode, *_SAMPLE[mode])
    assert status == 0
    assert "'right'" in last
    assert "rejected" not in last
    assert "undefined" not in last


@pytest.mark.long
@pytest.mark.parametrize("part", range(1, _PARTS + 1))
@pytest.mark.parametrize("mode", [*_SAMPLE, "held"])
def test_all(mode: str, part: int) -> None:
    """None is wrong. What may be rejected is on the page that the record makes."""
    status, last = judged(mode, "--part", f"{part}/{_PARTS}")
    assert status == 0, last


def case(group: str, **params: Any) -> Any:
    return SimpleNamespace(group_name=group, params=params)


def test_vectors_may_turn_and_nothing_else() -> None:
    matrix = np.array([[2.0, 1.0], [1.0, 3.0]])
    values, vectors = np.linalg.eigh(matrix)
    turned = [vectors * np.array([-1.0, 1.0]), values]
    assert differs(case("eigh"), turned, [vectors, values], []) == ""
    assert differs(case("eigh"), [vectors[:, ::-1], values], [vectors, values], []) != ""
    assert differs(case("eigh"), [vectors * 2, values], [vectors, values], []) != ""
    left, singular, right = np.linalg.svd(matrix)
    sign = np.array([1.0, -1.0])
    both = [singular, left * sign, sign[:, None] * right]
    assert differs(case("svd"), both, [singular, left, right], []) == ""
    assert differs(case("svd"), [singular, left * sign, right], [singular, left, right], []) != ""


def test_equal_numbers_may_be_taken_from_any_of_their_places() -> None:
    numbers = np.array([1.0, 3.0, 3.0, 3.0])
    expected = [np.array([3.0, 3.0]), np.array([1, 2])]
    top = case("approx_top_k")
    assert differs(top, [expected[0], np.array([3, 1])], expected, [numbers]) == ""
    assert differs(top, [expected[0], np.array([3, 3])], expected, [numbers]) != ""
    assert differs(top, [expected[0], np.array([0, 1])], expected, [numbers]) != ""
    assert differs(top, [np.array([3.0, 1.0]), np.array([3, 0])], expected, [numbers]) != ""


def test_equal_keys_may_follow_each_other_in_any_order() -> None:
    keys, rows, other = np.array([0, 0, 1]), np.array([5, 3, 4]), np.array([3, 5, 4])
    loose = case("sort", is_stable=False, dimension=0, num_keys=1)
    assert differs(loose, [keys, other], [keys, rows], []) == ""
    assert differs(loose, [keys, np.array([5, 5, 4])], [keys, rows], []) != ""
    assert differs(loose, [keys[::-1], rows[::-1]], [keys, rows], []) != ""
    assert differs(case("sort", is_stable=True), [keys, other], [keys, rows], []) != ""
