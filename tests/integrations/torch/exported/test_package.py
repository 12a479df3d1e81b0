"""Packages: run by a process without a compiler and a service, and rejected where they are damaged."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.export import export

import kcache_grpc as kcache
from kcache_grpc.integrations.torch.exported.package_file import PackageFile
from kcache_grpc.model.target import host_target
from kcache_grpc.torch import Packaged, load, package
from tests.integrations.torch.exported.programs import counting, counting_call, export_counting

_READER = """
import copy
import sys
for name in ("kcache_compiler", "torch_mlir", "sqlalchemy", "llvmlite"):
    sys.modules[name] = None
import torch
from kcache_grpc.torch import load
from tests.integrations.torch.exported.programs import counting_call

path, trust, results = sys.argv[1:]
module = load(path, trust=trust, strict=True)
outputs = []
for rows in (6, 3):
    args, kwargs = counting_call(rows)
    outputs.append(copy.deepcopy((module(*args, **kwargs), args[1]["a"], module.total)))
torch.save(outputs, results)
assert not any(f"{name}.".startswith("kcache_grpc.server.") for name in sys.modules)
"""


@pytest.fixture
def packaged(client: kcache.Client, tmp_path: Path) -> Packaged:
    return package(export_counting(counting()), tmp_path / "model.kcpkg", client=client)


def test_another_process_needs_no_compiler_and_no_service(packaged: Packaged, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "home"), "KCACHE_ADDR": "127.0.0.1:1"}
    results = tmp_path / "results.pt"
    command = [sys.executable, "-c", _READER, packaged.path, packaged.signer, str(results)]
    subprocess.run(command, check=True, env=environment, timeout=120)
    module = counting()
    for rows, (outputs, scale, total) in zip((6, 3), torch.load(results), strict=True):
        args, kwargs = counting_call(rows)
        torch.testing.assert_close(outputs, module(*args, **kwargs))
        torch.testing.assert_close(scale, args[1]["a"])
        torch.testing.assert_close(total, module.total)


def test_the_report_names_the_file(packaged: Packaged) -> None:
    with PackageFile(Path(packaged.path)) as file:
        assert file.digest.hex() == packaged.digest
    assert packaged.size == Path(packaged.path).stat().st_size
    assert packaged.targets == (str(host_target()),)
    assert packaged.programs == 1


def test_state_of_a_package(packaged: Packaged) -> None:
    module, original = load(packaged.path, trust=packaged.signer), counting()
    for name, value in original.state_dict().items():
        assert torch.equal(module.state_dict()[name], value)
    assert [name for name, _ in module.named_parameters()] == ["linear.weight", "linear.bias"]
    loaded: Any = module
    assert torch.equal(loaded.shift, original.shift)
    assert torch.equal(loaded.constant, original.constant)


def test_sizes_and_arguments_are_checked(packaged: Packaged) -> None:
    module = load(packaged.path, trust=packaged.signer)
    args, kwargs = counting_call(65)
    with pytest.raises(kcache.ArgumentError, match=r"x\.shape\[0\] <= 64"):
        module(*args, **kwargs)
    args, kwargs = counting_call(6)
    with pytest.raises(kcache.ArgumentError, match="nested as"):
        module(args[0], [args[1]["a"]], **kwargs)


def test_the_signer_must_be_trusted(packaged: Packaged, tmp_path: Path) -> None:
    with kcache.Client("127.0.0.1:1", cache_dir=tmp_path / "other") as other:
        with pytest.raises(kcache.PermissionDenied, match="not trusted"):
            load(packaged.path, client=other)
        with pytest.raises(kcache.PermissionDenied, match="not trusted"):
            load(packaged.path, client=other, trust="0" * 64)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("position", ["magic", "header", "graph.json", "weights.safetensors", "kernels.kcb"])
def test_a_changed_byte_is_an_error(packaged: Packaged, position: str) -> None:
    path = Path(packaged.path)
    with PackageFile(path) as file:
        offsets = {name: part.offset + part.size // 2 for name, part in file.parts.items()}
    content = bytearray(path.read_bytes())
    content[{"magic": 3, "header": 30, **offsets}[position]] ^= 1
    path.write_bytes(content)
    expected = kcache.ArgumentError if position == "magic" else kcache.IntegrityError
    with pytest.raises(expected, match=r"damaged|no exported program"):
        load(path, trust=packaged.signer)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("share", [0.0001, 0.01, 0.5, 0.999])
def test_a_truncated_file_is_an_error(packaged: Packaged, share: float) -> None:
    path = Path(packaged.path)
    content = path.read_bytes()
    path.write_bytes(content[: max(9, int(len(content) * share))])
    with pytest.raises(kcache.IntegrityError, match="truncated"):
        load(path, trust=packaged.signer)
    path.write_bytes(content + b"x")
    with pytest.raises(kcache.IntegrityError, match="longer"):
        load(path, trust=packaged.signer)


def test_another_target_is_an_error(client: kcache.Client, tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).requires_grad_(False)
    x = torch.randn(2, 4)
    report = package(module, tmp_path / "a.kcpkg", (x,), client=client, targets=("aarch64",))
    with pytest.raises(kcache.ArgumentError, match=r"kernels for aarch64.*targets=\('x86-64-v3',\)"):
        load(report.path, target="x86-64-v3", trust=report.signer)


@pytest.mark.skipif(not str(host_target()).startswith("x86-64"), reason="levels are those of x86-64")
def test_kernels_for_a_lower_level_will_do(client: kcache.Client, tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).requires_grad_(False)
    x = torch.randn(2, 4)
    targets = ("x86-64-v2", "aarch64")
    report = package(module, tmp_path / "a.kcpkg", (x,), client=client, targets=targets)
    torch.testing.assert_close(load(report.path, trust=report.signer, strict=True)(x), module(x))


@dataclass
class Outputs:
    """Results of a model, as libraries of models have them."""

    scores: Tensor
    total: Tensor


class Scores(torch.nn.Module):
    def forward(self, x: Tensor) -> Outputs:
        return Outputs(torch.tanh(x) * 2 + 1, (x.sin() * 3).sum())


def test_results_in_a_class_that_the_process_has_to_know(client: kcache.Client, tmp_path: Path) -> None:
    torch.export.register_dataclass(Outputs, serialized_type_name="tests.Outputs")
    x = torch.linspace(-1, 1, 12).view(3, 4)
    report = package(Scores(), tmp_path / "scores.kcpkg", (x,), client=client)
    loaded, expected = load(report.path, trust=report.signer, strict=True)(x), Scores()(x)
    assert isinstance(loaded, Outputs)
    torch.testing.assert_close((loaded.scores, loaded.total), (expected.scores, expected.total))
    reader = f"""
from kcache_grpc.errors import NotFound
from kcache_grpc.torch import load
try:
    load({report.path!r}, trust={report.signer!r})
except NotFound as error:
    print(error)
"""
    command = [sys.executable, "-c", reader]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert "import the module that registers it" in ran.stdout


class Tied(torch.nn.Module):
    """One parameter with two names, an empty one, and one of half precision; random numbers are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(4, 4, bias=False)
        self.b = torch.nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight
        self.empty = torch.nn.Parameter(torch.empty(0, 4))
        self.narrow = torch.nn.Parameter(torch.ones(3, dtype=torch.float16))

    def forward(self, x: Tensor) -> Tensor:
        joined = torch.cat([torch.tanh(self.b(torch.relu(self.a(x)))), self.empty])
        return joined * self.narrow.float().sum()


def test_tied_and_empty_parameters(client: kcache.Client, tmp_path: Path) -> None:
    original = Tied().requires_grad_(False)
    x = torch.randn(2, 4)
    report = package(original, tmp_path / "tied.kcpkg", (x,), client=client)
    module = load(report.path, trust=report.signer, strict=True)
    torch.testing.assert_close(module(x), original(x))
    assert module.a.weight is module.b.weight


def test_weights_are_a_file_of_safetensors(packaged: Packaged) -> None:
    with PackageFile(Path(packaged.path)) as file:
        content = bytes(file.read("weights.safetensors"))
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    offsets = sorted(entry["data_offsets"] for entry in header.values())
    assert offsets[0][0] == 0
    assert all(left[1] == right[0] for left, right in itertools.pairwise(offsets))
    assert offsets[-1][1] == len(content) - 8 - length


def test_what_cannot_be_packaged(client: kcache.Client, tmp_path: Path) -> None:
    exported = export_counting(counting())
    folder = tmp_path / "packages"
    folder.mkdir()
    with pytest.raises(kcache.ArgumentError, match="has its arguments already"):
        package(exported, folder / "a", (torch.ones(3),), client=client)
    with pytest.raises(kcache.ArgumentError, match=r"takes a torch\.nn\.Module"):
        package(torch.relu, folder / "a", (torch.ones(3),), client=client)
    with pytest.raises(kcache.ArgumentError, match="use a tuple of names"):
        package(exported, folder / "a", targets="host", client=client)
    with pytest.raises(kcache.NotFound, match="no directory"):
        package(exported, folder / "none" / "a", client=client)
    assert list(folder.iterdir()) == []


class Views(torch.nn.Module):
    def forward(self, x: Tensor) -> Any:
        return x.t(), x


def test_a_package_without_kernels(client: kcache.Client, tmp_path: Path) -> None:
    x = torch.randn(2, 3)
    report = package(export(Views(), (x,)), tmp_path / "views.kcpkg", client=client)
    assert (report.programs, report.signer) == (0, "")
    transposed, same = load(report.path)(x)
    assert torch.equal(transposed, x.t())
    assert same is x
