"""Long reductions of what was made of rows: they share the rows' loops, in chunks."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from kcache_compiler.lower.loops import planned_launches
from kcache_compiler.schedule import split_reductions as split
from kcache_compiler.schedule.groups import apart
from tests.compiler.codegen_harness import Kernel, threaded_host
from tests.compiler.schedule import test_group_lowering as groups
from tests.compiler.schedule.test_split_reductions import chunks_of, compiled, is_split, on_threads


def cross_entropy(rows: int | str, classes: int | str, extra: str = "", kept: str = "") -> str:
    """The sum of all logarithms of a softmax times elements; ``extra`` lines, what is returned beside."""
    size = f"{rows}x{classes}"
    flat, row = f"tensor<{size}xf32>", f"tensor<{rows}xf32>"
    spread = f"stablehlo.dynamic_broadcast_in_dim {{}}, %sizes, dims = [0] : ({row}, tensor<2xi32>) -> {flat}"
    if "?" not in size:
        spread = f"stablehlo.broadcast_in_dim {{}}, dims = [0] : ({row}) -> {flat}"
    shape = f"""%a = stablehlo.get_dimension_size %x, dim = 0 : ({flat}) -> tensor<i32>
  %b = stablehlo.get_dimension_size %x, dim = 1 : ({flat}) -> tensor<i32>
  %a1 = stablehlo.reshape %a : (tensor<i32>) -> tensor<1xi32>
  %b1 = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
  %sizes = stablehlo.concatenate %a1, %b1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>"""
    names, kinds = "".join(f", {name}" for name in kept.split()), f", {flat}" * len(kept.split())
    return f"""
func.func @main(%x: {flat}) -> (tensor<f32>{kinds}) {{
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  {shape if "?" in size else ""}
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
    : ({flat}, tensor<f32>) -> {row}
  %mb = {spread.format("%m")}
  %d = stablehlo.subtract %x, %mb : {flat}
  %e = stablehlo.exponential %d : {flat}
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : ({flat}, tensor<f32>) -> {row}
  %l = stablehlo.log %s : {row}
  %lb = {spread.format("%l")}
  %y = stablehlo.subtract %d, %lb : {flat}
  %p = stablehlo.multiply %y, %x : {flat}
  %t = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [0, 1]
    : ({flat}, tensor<f32>) -> tensor<f32>
  {extra}
  return %t{names} : tensor<f32>{kinds}
}}"""


def drawn(rows: int, classes: int) -> np.ndarray:
    return np.random.default_rng(rows + classes).standard_normal((rows, classes)).astype(np.float32)


def logarithms(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    if not x.size:
        return wide
    wide -= wide.max(1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(1, keepdims=True))


def near(result: Any, terms: np.ndarray) -> None:
    """Within the bound of docs/guide/numerics.md and some units for every element."""
    bound = (4096 + terms.size / 4096 + 64) * 2.0**-24 * np.abs(terms).sum()
    assert abs(float(result) - terms.sum()) <= bound


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("rows", "classes"), [(17, 4001), (67, 1001), (521, 257), (9001, 9), (40001, 2)])
def test_a_sum_over_all_rows_shares_their_loops(rows: int, classes: int, target: str) -> None:
    kernel = compiled(cross_entropy(rows, classes), target=target)
    x = drawn(rows, classes)
    assert is_split(kernel)
    # the start of the sum, the rows in chunks, the sum of their totals: nothing is stored between them
    assert [launch.extent for launch in kernel.interface.launches] == ["1", str(chunks_of(kernel)[0]), "1"]
    (result,) = on_threads(kernel, x)
    near(result, logarithms(x) * x)


_opened: dict[str, Kernel] = {}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("rows", "classes"),
    [(0, 5), (1, 70001), (3, 40001), (64, 0), (17, 4001), (521, 1), (70001, 1), (901, 99)],
)
def test_open_sizes(rows: int, classes: int) -> None:
    text = cross_entropy("?", "?")
    kernel = _opened.setdefault(text, compiled(text))
    assert len(kernel.interface.launches) == 3
    x = drawn(rows, classes)
    (result,) = on_threads(kernel, x)
    near(result, logarithms(x) * x)


def test_what_needs_the_sum_comes_after_all_chunks() -> None:
    extra = """%tb = stablehlo.broadcast_in_dim %t, dims = [] : (tensor<f32>) -> tensor<300x301xf32>
  %z = stablehlo.add %y, %tb : tensor<300x301xf32>"""
    kernel = compiled(cross_entropy(300, 301, extra, "%z %e"))
    x = drawn(300, 301)
    total, shifted, exponentials = on_threads(kernel, x)
    near(total, logarithms(x) * x)
    np.testing.assert_allclose(shifted, logarithms(x) + float(total), rtol=1e-4)
    np.testing.assert_allclose(exponentials, np.exp(x - x.max(1, keepdims=True)), rtol=1e-5)


def test_strict_sums_keep_their_order() -> None:
    x = drawn(33, 2001)
    kernel = compiled(cross_entropy(33, 2001, kept="%p"), "strict")
    assert not is_split(kernel)
    total, terms = on_threads(kernel, x)
    assert total.tobytes() == np.add.accumulate(terms.reshape(-1))[-1].tobytes()


@dataclass
class Rows(groups.Writer):
    """What rows give, used along the rows again; now and then reduced over everything, or over other axes."""

    axes: tuple[int, ...] = ()

    def step(self) -> None:
        whole = [candidate for candidate in self.values if candidate.axes == self.all_axes][-4:]
        value = self.rng.choice(whole)
        if self.rng.random() < 0.3 or not value.axes:
            super().step()
            return
        self.axes = self.all_axes[-1:]
        self.reduce(self.rng.choice(list(groups.REDUCTIONS)), value)
        self.broadcast(self.values[-1])
        self.binary(self.rng.choice(list(groups.BINARY)), self.values[-1], value)
        kept = self.rng.choice(([], [], [], [0], [len(self.all_axes) - 1]))
        self.axes = tuple(axis for axis in self.all_axes if axis not in kept) or self.all_axes
        if self.rng.random() < 0.7:
            self.reduce(self.rng.choice(list(groups.REDUCTIONS)), self.values[-1])

    def reduced(self, value: groups.Value) -> tuple[int, ...]:
        return tuple(axis for axis in value.axes if axis in self.axes) or value.axes


def check(seed: int, element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random programs whose sums count as long, in tiny chunks."""
    rng = random.Random(seed)
    with monkeypatch.context() as patch, np.errstate(all="ignore"):
        program = groups.random_program(seed, element, Rows)
        patch.setattr(split, "SHORT", rng.choice((2, 8, 64)))
        patch.setattr(split, "RESULTS", rng.choice((2, 2, 8, 200)))
        patch.setattr(split, "CHUNK", rng.choice((4, 32, 256)))
        default, strict = (groups.build(program, numerics) for numerics in ("default", "strict"))
        for kernel in (default, strict):
            results = kernel(*program.inputs)
            if kernel is default or element not in ("f16", "bf16"):  # a strict sum of 16 bits stops growing
                groups.agree(program, results)
            for workers in (2, 5):
                groups.same_bits(results, kernel(*program.inputs, host=threaded_host(workers)))
        patch.setattr(planned_launches, "partition", apart)
        groups.same_numbers(strict(*program.inputs), groups.build(program, "strict")(*program.inputs))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4))
def test_random_programs_in_tiny_chunks(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(seed, ("f32", "f64", "i32", "bf16")[seed % 4], monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("element", [*groups.FLOATS, *groups.INTEGERS])
@pytest.mark.parametrize("seed", range(1000, 1060))
def test_more_random_programs_in_tiny_chunks(
    seed: int, element: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(seed, element, monkeypatch)
