"""``kcache profile``: real kernels, whose launches are timed in real calls."""

from __future__ import annotations

import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Run

PRODUCTS = """
func.func @main(%a: tensor<96x256xf32>, %w: tensor<256x512xf32>, %v: tensor<512x256xf32>)
    -> tensor<96x256xf32> {
  %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
    : (tensor<96x256xf32>, tensor<256x512xf32>) -> tensor<96x512xf32>
  %1 = stablehlo.tanh %0 : tensor<96x512xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0]
    : (tensor<96x512xf32>, tensor<512x256xf32>) -> tensor<96x256xf32>
  return %2 : tensor<96x256xf32>
}"""
LOOP = """
func.func @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<7> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<1000xf32>
    cond {
      %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %z = stablehlo.cosine %y : tensor<1000xf32>
      stablehlo.return %j, %z : tensor<i32>, tensor<1000xf32>
    }
  return %r#1 : tensor<1000xf32>
}"""


def written(tmp_path: Path, text: str, name: str = "program.mlir") -> Path:
    file = tmp_path / name
    file.write_text(text)
    return file


def test_times_of_launches_add_up_to_the_call(served: Run, tmp_path: Path) -> None:
    report = served("profile", written(tmp_path, PRODUCTS), "--calls", "9", "--json").json()
    launches = report["launches"]
    spent = sum(launch["seconds"] for launch in launches)
    assert math.isclose(spent + report["between_seconds"], report["seconds"])
    assert 0 <= report["between_seconds"] < report["seconds"] / 2
    assert math.isclose(sum(group["seconds"] for group in report["groups"]), spent)
    assert report["fastest_seconds"] <= report["seconds"] <= report["slowest_seconds"]
    assert [launch["runs"] for launch in launches] == [1] * len(launches)


def test_operations_and_work_are_those_of_the_program(served: Run, tmp_path: Path) -> None:
    report = served("profile", written(tmp_path, PRODUCTS), "--calls", "3", "--json").json()
    first, second = report["launches"]
    assert first["operations"] == ["dot_general", "tanh"]
    assert first["result"] == "f32[96,512]"
    assert second["operations"] == ["dot_general"]
    assert second["flops"] == 2 * 96 * 512 * 256
    assert second["bytes"] == 4 * (96 * 512 + 512 * 256 + 96 * 256)
    assert first["flops"] > 2 * 96 * 256 * 512
    assert second["share_of_peak_flops"] == pytest.approx(
        second["flops"] / second["seconds"] / report["peak_flops_per_second"]
    )


def test_launches_of_a_kernel_with_bound_arguments(served: Run, tmp_path: Path) -> None:
    """Both weights are packed before the calls that are measured; ``run`` computes the same."""
    file, bound = written(tmp_path, PRODUCTS), ("--bound", "1", "--bound", "2")
    report = served("profile", file, *bound, "--calls", "3", "--json").json()
    assert [launch["operations"][0] for launch in report["launches"]] == ["dot_general"] * 2
    assert [launch["flops"] for launch in report["launches"]][1] == 2 * 96 * 512 * 256
    plain, prepared = (served("run", file, *options, "--json").json() for options in ((), bound))
    assert prepared["results"][0]["mean"] == pytest.approx(plain["results"][0]["mean"], rel=1e-4)
    assert [each["name"] for each in prepared["arguments"]] == [f"argument {i}" for i in range(3)]


def test_weights_that_the_program_brings(served: Run, tmp_path: Path) -> None:
    """An ONNX model above 1 MiB: ``--input`` and random arguments are the model's own inputs."""
    onnx: Any = pytest.importorskip("onnx")
    rng, helper = np.random.default_rng(2), onnx.helper
    weights = [rng.standard_normal(shape, np.float32) for shape in ((64, 5000), (5000, 3))]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "v"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", 1, [2, 64])],
        [helper.make_tensor_value_info("y", 1, [2, 3])],
        [onnx.numpy_helper.from_array(w, name) for w, name in zip(weights, "wv", strict=True)],
    )
    file, given = tmp_path / "model.onnx", tmp_path / "x.npy"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), file)
    x = rng.standard_normal((2, 64), np.float32)
    np.save(given, x)
    expected = (x.astype(np.float64) @ weights[0] @ weights[1]).mean()
    for bound in ((), ("--bound", "1", "--bound", "2")):
        result = served("run", file, *bound, "--input", given, "--json").json()
        assert result["results"][0]["mean"] == pytest.approx(expected, rel=1e-3)
        assert [each["name"] for each in result["arguments"]] == ["argument 0"]
        report = served("profile", file, *bound, "--calls", "3", "--json").json()
        assert "dot_general" in report["launches"][0]["operations"]


def test_every_run_of_a_launch_in_a_loop_counts(served: Run, tmp_path: Path) -> None:
    report = served("profile", written(tmp_path, LOOP), "--calls", "3", "--json").json()
    runs = {tuple(launch["operations"]): launch["runs"] for launch in report["launches"]}
    assert runs["cosine",] == 7


def test_sizes_of_dynamic_kernels_decide_the_work(served: Run, tmp_path: Path) -> None:
    file = written(tmp_path, PRODUCTS.replace("96x", "?x"))
    arguments = ("profile", file, "--dynamic", "yes", "--calls", "3", "--json")
    small, large = (served(*arguments, "--size", size).json()["launches"][-1] for size in ("8", "80"))
    assert large["flops"] == 10 * small["flops"] == 2 * 80 * 512 * 256


def test_the_table_ends_with_the_call(served: Run, tmp_path: Path) -> None:
    shown = served("profile", written(tmp_path, PRODUCTS), "--calls", "3", "--top", "1")
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert "1 other row" in lines[-3]
    assert "between launches" in lines[-2]
    assert lines[-1].split()[1:] == ["100", "call"]


class Page(HTMLParser):
    """Tags that are open, and the cells of the rows of tables."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str | None] = []
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_the_page_has_every_launch_and_needs_nothing_else(served: Run, tmp_path: Path) -> None:
    file = written(tmp_path, PRODUCTS, "<i>&.mlir")
    report = served("profile", file, "--calls", "3", "--json", "--html", tmp_path / "page.html").json()
    text = (tmp_path / "page.html").read_text()
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.addresses == []
    assert "script" not in page.open
    assert "url(" not in text
    assert "<i>" not in text
    assert "light dark" in text
    cells = {cell for row in page.rows for cell in row}
    assert {f"{launch['seconds'] * 1e6:.1f}" for launch in report["launches"]} <= cells
    assert {f"{report['seconds'] * 1e6:.1f}", "call", "between launches"} <= cells


def test_a_folder_that_is_missing_is_named_before_anything_is_compiled(served: Run, tmp_path: Path) -> None:
    rejected = served("profile", tmp_path / "no.mlir", "--html", tmp_path / "none" / "page.html", "--json")
    assert rejected.code == 5
    assert "none does not exist" in rejected.error()["message"]


def test_programs_that_cannot_be_compiled_are_rejected(served: Run, tmp_path: Path) -> None:
    assert served("profile", tmp_path / "no.mlir", "--json").code == 9
    rejected = served("profile", written(tmp_path, "func.func"), "--json")
    assert rejected.error()["type"] == "InvalidProgram"
