"""``kcache support``: all that is rejected, by format; and the table."""

from __future__ import annotations

import asyncio
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from kcache_grpc import Client, InvalidProgram, aio
from kcache_grpc.cli import exit_codes
from kcache_grpc.cli.commands import support
from tests.cli.command import ADD, answer, kcache
from tests.cli.conftest import Run
from tests.serving import ServerProcess

TWO = """
func.func @helper(%a: tensor<4xf32>) -> tensor<4xf32> {
  %r = stablehlo.custom_call @nobody_knows(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func public @main(%a: tensor<4xf32>, %n: tensor<i32>, %p: tensor<i1>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @nobody_knows(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = call @helper(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "stablehlo.if"(%p) ({
    %3 = stablehlo.custom_call @nor_this(%1) : (tensor<4xf32>) -> tensor<4xf32>
    stablehlo.return %3 : tensor<4xf32>
  }, {
    stablehlo.return %1 : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  %sizes = stablehlo.constant dense<[2, 2]> : tensor<2xi64>
  %4 = stablehlo.dynamic_reshape %2, %sizes : (tensor<4xf32>, tensor<2xi64>) -> tensor<2x2xf32>
  %5 = stablehlo.reshape %4 : (tensor<2x2xf32>) -> tensor<4xf32>
  return %5 : tensor<4xf32>
}
"""
NARROW = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.convert %a : (tensor<4xf32>) -> tensor<4xf8E4M3FN>
  %1 = chlo.next_after %0, %0 : tensor<4xf8E4M3FN>, tensor<4xf8E4M3FN> -> tensor<4xf8E4M3FN>
  %2 = chlo.next_after %1, %0 : tensor<4xf8E4M3FN>, tensor<4xf8E4M3FN> -> tensor<4xf8E4M3FN>
  %3 = stablehlo.convert %2 : (tensor<4xf8E4M3FN>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}
"""


def rejected(run: Run, *arguments: str | Path) -> Any:
    """What ``kcache support`` says of a program that is rejected in part."""
    done = run("support", *arguments, "--json")
    assert done.code == exit_codes.ERROR, done.err
    return json.loads(done.out)


def counts(report: Any) -> dict[str, int]:
    return {rejection["op"]: rejection["count"] for rejection in report["rejected"]}


def test_a_program_that_compiles(tmp_path: Path) -> None:
    done = kcache(
        "support", "-", "--target", "x86-64-v3", "--json", stdin=ADD, KCACHE_CACHE_DIR=str(tmp_path)
    )
    expected = {"format": "stablehlo", "target": "x86-64-v3", "operations": 1, "supported": 1, "rejected": []}
    assert answer(done).items() >= expected.items()


def test_all_that_is_rejected_is_named(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "two.mlir"
    file.write_text(TWO)
    report = rejected(run, file)
    assert counts(report) == {"stablehlo.custom_call @nobody_knows": 2, "stablehlo.custom_call @nor_this": 1}
    assert (report["operations"], report["supported"], report["note"]) == (7, 4, "")
    assert all("lowering" in rejection["reason"] or rejection["reason"] for rejection in report["rejected"])
    assert report["rejected"][0]["where"] == ["-:7:8", "-:3:8"]


def test_elements_that_no_buffer_has_for_people(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "narrow.mlir"
    file.write_text(NARROW)
    done = run("support", file, "--target", "x86-64-v3")
    assert done.code == exit_codes.ERROR
    assert "narrow.mlir (stablehlo): 2 of 4 operations compile for x86-64-v3, numerics default" in done.out
    (row,) = (line.split() for line in done.out.splitlines() if "chlo.next_after" in line)
    assert row[:6] == ["chlo.next_after", "2", "line", "4,", "line", "5"]


def test_onnx_nodes(run: Run, tmp_path: Path) -> None:
    """A node of an unknown domain, one that draws random numbers, and what reads it."""
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "weight")
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["product"], name="product"),
        helper.make_node("RandomNormalLike", ["product"], ["places"]),
        helper.make_node("Cast", ["places"], ["numbers"], name="numbers", to=TensorProto.FLOAT),
        helper.make_node("Magic", ["product"], ["made"], name="magic", domain="org.example"),
        helper.make_node("Relu", ["product"], ["y"], name="relu"),
    ]
    names = ("y", "numbers", "made")
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("org.example", 1)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, [weight]), opset_imports=opsets, ir_version=9
    )
    file = tmp_path / "model.onnx"
    file.write_bytes(model.SerializeToString())
    report = rejected(run, file)
    assert counts(report) == {"org.example.Magic": 1, "onnx.RandomNormalLike": 1}
    assert report["format"] == "onnx"
    assert (report["operations"], report["supported"]) == (5, 3)
    assert {place for rejection in report["rejected"] for place in rejection["where"]} >= {'node "magic"'}


def test_a_pt2_file(run: Run, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class _Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = torch.special.chebyshev_polynomial_t(x, 3) + torch.relu(x)
            return y.sin() + torch.rand_like(x)

    file = tmp_path / "model.pt2"
    with warnings.catch_warnings():  # PyTorch warns as it likes
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(_Model().eval(), (torch.ones(4),)), file)
        report = rejected(run, file)
    assert report["format"] == "torch"
    assert len(report["rejected"]) == 2
    assert any("chebyshev" in name for name in counts(report))
    assert any("rand" in name for name in counts(report))
    assert report["supported"] == report["operations"] - 2


def test_the_table(run: Run) -> None:
    table = run("support", "--json").json()
    rows = {row["op"]: row for row in table["ops"]}
    assert "f32" in rows["stablehlo.add"]["x86-64"]
    assert "f32" in rows["stablehlo.add"]["sm_90"]
    done = run("support")
    assert done.code == exit_codes.OK
    assert "chlo.lgamma" in done.out


@pytest.mark.parametrize(
    ("text", "arguments", "code"),
    [
        ("func.func @main(", (), 3),
        (ADD, ("--target", "z80"), 5),
        (ADD, ("--numerics", "loose"), 5),
    ],
)
def test_what_is_wrong_is_said_as_everywhere(
    run: Run, tmp_path: Path, text: str, arguments: tuple[str, ...], code: int
) -> None:
    file = tmp_path / "wrong.mlir"
    file.write_text(text)
    assert run("support", file, *arguments).code == code


@pytest.mark.issue(number=19, point=28)
def test_a_service_that_is_named_is_asked(
    served: Run, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives the answer of a worker here, and no compiler is needed on this side."""
    path = tmp_path / "two.mlir"
    path.write_text(TWO)
    here = served("support", path, "--addr", "", "--json")
    monkeypatch.setattr(support, "find_spec", lambda name: None)
    there = served("support", path, "--json")
    assert there.code == here.code == 1
    report, expected = json.loads(there.out), json.loads(here.out)
    assert (report.pop("service"), expected.pop("service")) == (server.address, None)
    assert report == expected
    assert "stablehlo.custom_call @nobody_knows" in {rejection["op"] for rejection in report["rejected"]}
    assert server.address in served("support", path).out
    good = tmp_path / "good.mlir"
    good.write_text(ADD)
    assert served("support", good, "--json").json()["rejected"] == []
    bad = tmp_path / "bad.mlir"
    bad.write_text("func.func @main( {")
    assert served("support", bad).code == exit_codes.CODES[InvalidProgram]


@pytest.mark.issue(number=19, point=28)
def test_the_client_says_what_a_service_rejects(server: ServerProcess, tmp_path: Path) -> None:
    with Client(server.address, cache_dir=tmp_path / "cache", strict=True, timeout=120) as client:
        before = client.count()
        report = client.support(TWO, target="x86-64-v3")
        assert 0 < report.supported < report.operations
        assert report.refusals[0].count >= 1
        assert report.refusals[0].locations
        assert client.count() == before

    async def ask() -> int:
        async with aio.Client(server.address, cache_dir=tmp_path / "cache", strict=True) as client:
            return len((await client.support(TWO, target="x86-64-v3")).refusals)

    assert asyncio.run(ask()) == len(report.refusals)
