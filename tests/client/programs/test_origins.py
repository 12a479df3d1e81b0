"""Errors name the caller's file and line, which the program that is sent does not have."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kcache_grpc as kcache
from kcache_grpc.cli.commands.support import check
from kcache_grpc.programs.locations import strip_locations
from kcache_grpc.programs.origins import Origins
from kcache_grpc.programs.source import read_source
from tests.serving import ServerProcess

pytestmark = pytest.mark.issue(number=19, point=23)

TEXT = """#top = loc("unused.py":1:1)
#model = loc("model.py":17:4)
// A comment with loc("no.py":1:1).
module {
  func.func public @main(%a: tensor<4xf32> loc("a")) -> tensor<4xf32> {
    %0 = stablehlo.sine %a : tensor<4xf32> loc("model.py":16:4)
    %1 = stablehlo.custom_call @go(%0) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32> loc(#named)
    return %1 : tensor<4xf32>
  } loc("model.py"
  :1:1)
}
#named = loc("call"(#model))
"""
PLAIN = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {

  %0 = stablehlo.custom_call @fancy(%a) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


@pytest.fixture
def client(server: ServerProcess, tmp_path: Path) -> Iterator[kcache.Client]:
    with kcache.Client(server.address, cache_dir=tmp_path / "cache", strict=True, timeout=240) as connected:
        yield connected


def test_lines_of_the_sent_text_are_lines_of_the_callers() -> None:
    sent = strip_locations(TEXT.encode()).decode().splitlines()
    own = TEXT.splitlines()
    origins = Origins(TEXT.encode)
    assert len(sent) < len(own)
    for number, line in enumerate(sent, start=1):
        if line.strip() and not line.lstrip().startswith("//"):
            (location,) = origins.locations([f"-:{number}:3"])
            line_text = own[int(location.split(":")[1]) - 1]
            assert line_text.startswith(line.rstrip()) or strip_locations(line_text.encode()).decode() == line


def test_files_and_texts(client: kcache.Client, tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(TEXT)
    for use in (client.compile, client.store, client.normalize, client.lookup, client.explain):
        with pytest.raises(kcache.UnsupportedOp) as raised:
            use(path)
        place = f"{path}:7:10 (model.py:17)"
        assert f"stablehlo.custom_call at {place}: the custom call @go" in str(raised.value)
        assert raised.value.metadata["location"] == place
        assert raised.value.op == "stablehlo.custom_call"
    with pytest.raises(kcache.UnsupportedOp, match=r"at line 7, column 10 \(model\.py:17\): "):
        client.compile(TEXT)
    with pytest.raises(kcache.UnsupportedOp, match=r"at line 3, column 8: "):
        client.compile(PLAIN)


def test_what_does_not_parse(client: kcache.Client, tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(TEXT.replace("has_side_effect = true", "has_side_effect ="))
    with pytest.raises(kcache.InvalidProgram, match=rf"{path}:7:\d+: "):
        client.compile(path)
    with pytest.raises(kcache.InvalidProgram, match=r"line 7, column \d+: "):
        client.compile(path.read_text())


def test_one_program_from_two_files(client: kcache.Client, tmp_path: Path) -> None:
    """The service remembers the error of the program, and each caller has its own file."""
    for name, text in (
        ("first.mlir", PLAIN),
        ("second.mlir", PLAIN.replace("{\n", '{\n#l = loc("x.py":1:1)\n', 1)),
    ):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(kcache.UnsupportedOp) as raised:
            client.compile(path)
        line = text.splitlines().index(PLAIN.splitlines()[2]) + 1
        assert f"at {path}:{line}:8: " in str(raised.value)


def test_pytorch_has_the_module_and_the_line(client: kcache.Client, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Inner(torch.nn.Module):  # pyright: ignore[reportUntypedBaseClass]
        def forward(self, x: Any) -> Any:
            return torch.special.bessel_j0(x)

    class Outer(torch.nn.Module):  # pyright: ignore[reportUntypedBaseClass]
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.Sequential(torch.nn.Linear(4, 4), Inner())

        def forward(self, x: Any) -> Any:
            return self.parts(x)

    lines, start = inspect.getsourcelines(Inner.forward)
    line = start + next(index for index, text in enumerate(lines) if "bessel" in text)
    place = f"{__file__}:{line} in module parts.1"
    fixed = torch.export.export(Outer(), (torch.ones(2, 4),))
    sizes = ({0: torch.export.Dim("n")},)
    dynamic = torch.export.export(Outer(), (torch.ones(2, 4),), dynamic_shapes=sizes)
    for exported in (fixed, dynamic):
        with pytest.raises(kcache.UnsupportedOp) as raised:
            client.compile(exported)
        assert f"torch.aten.special_bessel_j0 at {place}: " in str(raised.value)
        assert raised.value.metadata["location"] == place
    assert b".py" not in read_source(fixed, None).program.body
    path = tmp_path / "program.pt2"
    torch.export.save(fixed, path)
    (rejected,) = check(str(path), None, "host", "default", 200)["rejected"]
    assert rejected["where"] == [place]


def test_pytorch_operations_that_the_client_rejects() -> None:
    torch = pytest.importorskip("torch")

    class Masked(torch.nn.Module):  # pyright: ignore[reportUntypedBaseClass]
        def forward(self, x: Any) -> Any:
            return x[x > 0]

    line = inspect.getsourcelines(Masked.forward)[1] + 1
    exported = torch.export.export(Masked(), (torch.ones(4),))
    with pytest.raises(kcache.UnsupportedOp) as raised:
        read_source(exported, None)
    assert raised.value.op == "torch.aten.index.Tensor"
    assert str(raised.value).endswith(f" (at {__file__}:{line})")


def test_jax_has_the_line(client: kcache.Client) -> None:
    jax = pytest.importorskip("jax")
    exporting = pytest.importorskip("jax.export")

    def function(x: Any) -> Any:
        return jax.ffi.ffi_call("fancy", jax.ShapeDtypeStruct(x.shape, x.dtype), has_side_effect=True)(x)

    checks = [exporting.DisabledSafetyCheck.custom_call("fancy")]
    exported = exporting.export(jax.jit(function), disabled_checks=checks)(jax.numpy.ones(4))
    line = inspect.getsourcelines(function)[1] + 1
    with pytest.raises(kcache.UnsupportedOp, match=rf"at {__file__}:{line}\b") as raised:
        client.compile(exported)
    assert raised.value.metadata["location"] == f"{__file__}:{line}"
