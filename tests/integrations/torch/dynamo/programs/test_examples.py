"""The programs of docs/guide/torch-compile.md run, against a server."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from examples.torch_compile import dynamic_batch, fleet, inference, training
from kcache_grpc.cli import main
from kcache_grpc.integrations.torch.dynamo import kernels
from kcache_grpc.torch import decisions

_PAGE = Path(__file__).parents[5] / "docs" / "guide" / "torch-compile.md"
#: The programs in the page itself.
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(), re.DOTALL | re.MULTILINE)
#: What the first of them takes for granted.
_BEFORE = "import torch\n\nmodel = torch.nn.Linear(16, 16)\n"


@pytest.fixture(autouse=True)
def fresh(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process as it starts, whose client is that of the server."""
    monkeypatch.setenv("KCACHE_ADDR", address)
    monkeypatch.setenv("KCACHE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernels, "_CLIENTS", kernels._Clients())
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
# Copies of weak dictionaries in PyTorch's guards, when torch.compiler.load_compiled_function drops them.
@pytest.mark.filterwarnings("ignore:Exception ignored in.*Weak(IdKey|Key|Value)Dictionary")
def test_a_program_of_the_page(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    (folder / f"program_{number}.py").write_text(_BEFORE + PROGRAMS[number])
    program = vars(importlib.import_module(f"program_{number}"))
    if "y" not in program:
        return
    if isinstance(program["x"], torch._subclasses.FakeTensor):
        assert program["y"].shape == (4, 16)
    else:
        torch.testing.assert_close(program["y"], program["model"](program["x"]).detach())


def test_inference() -> None:
    assert inference.main() < 1e-5
    assert decisions()[-1].share == 1


def test_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    losses = training.main()
    assert losses[-1] < losses[0] / 2
    assert {decision.kind for decision in decisions()[-2:]} == {"forward", "backward"}
    capsys.readouterr()
    assert main(["explain", "--torch", "--cache-dir", str(tmp_path), "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert {decision["kind"] for decision in explained} == {"forward", "backward"}
    assert all(decision["origin"] == "compiled" for decision in explained)


def test_dynamic_batch() -> None:
    before = len(decisions())
    assert max(dynamic_batch.main().values()) < 1e-5
    assert len(decisions()) == before + 1


def test_the_second_worker_of_a_fleet_starts_from_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fleet.main() == "compiled"
    torch._dynamo.reset()
    monkeypatch.setenv("KCACHE_CACHE_DIR", str(tmp_path / "another machine"))
    monkeypatch.setattr(kernels, "_CLIENTS", kernels._Clients())
    assert fleet.main() == "warm"


def test_a_parameter_named_after_quantization_is_no_quantized_tensor() -> None:
    class Quantizer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quantize_levels = torch.nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x * self.quantize_levels) + 1

    with torch.no_grad():
        torch.compile(Quantizer(), backend="kcache")(torch.randn(3, 4))
    assert len(decisions()[-1].kernels) == 1
