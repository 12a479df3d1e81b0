"""Warm starts: a record is used, shared through the service, derived again by sampling, and disputed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import kcache_grpc as kcache
from kcache_grpc.caches import OnDiskCache
from kcache_grpc.integrations.torch.dynamo import kernels, record
from kcache_grpc.torch import decisions


def scaled(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * 3 + 1


def shifted(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * 3 + 2


class Machine:
    """A machine of its own: a cache directory, and a process that has compiled nothing."""

    def __init__(self, address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.address, self.folder, self._monkeypatch = address, folder, monkeypatch

    def start(self) -> None:
        self._monkeypatch.setenv("KCACHE_ADDR", self.address)
        self._monkeypatch.setenv("KCACHE_CACHE_DIR", str(self.folder))
        self._monkeypatch.setattr(kernels, "_CLIENTS", kernels._Clients())
        torch._dynamo.reset()

    def run(self, function: Any, **options: Any) -> torch.Tensor:
        self.start()
        options = {"strict": True, "rederive": 0.0, "namespace": self.folder.parent.name, **options}
        return torch.compile(function, backend="kcache", options=options)(
            torch.linspace(-1, 1, 12).view(3, 4)
        )

    def records(self) -> dict[str, bytes]:
        folder = self.folder / "torch-sources"
        return {
            path.name: path.read_bytes()
            for path in folder.iterdir()
            if path.is_file() and len(path.name) == 64
        }


@pytest.fixture
def machines(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Machine, Machine]:
    """Two machines, and a server with a namespace for them alone."""
    first, second = (Machine(address, tmp_path / name, monkeypatch) for name in ("first", "second"))
    return first, second


EXPECTED = torch.tanh(torch.linspace(-1, 1, 12).view(3, 4)) * 3 + 1


def test_a_second_process_uses_the_record_on_disk(machines: tuple[Machine, Machine]) -> None:
    first, _ = machines
    for origin in ("compiled", "warm"):
        torch.testing.assert_close(first.run(scaled), EXPECTED)
        assert decisions()[-1].origin == origin
    assert "disk" in decisions()[-1].seconds


def test_a_second_machine_uses_the_record_of_the_service(machines: tuple[Machine, Machine]) -> None:
    first, second = machines
    first.run(scaled)
    torch.testing.assert_close(second.run(scaled), EXPECTED)
    assert "remote" in decisions()[-1].seconds
    assert second.records() == first.records()


def test_a_record_is_that_of_one_source_graph_and_its_options(machines: tuple[Machine, Machine]) -> None:
    first, _ = machines
    first.run(scaled)
    torch.testing.assert_close(first.run(shifted), EXPECTED + 1)
    assert decisions()[-1].origin == "compiled"
    first.run(scaled, numerics="strict")
    assert decisions()[-1].origin == "compiled"
    assert len(first.records()) == 3


def test_a_record_that_is_derived_again_stays(machines: tuple[Machine, Machine]) -> None:
    first, _ = machines
    first.run(scaled)
    before = first.records()
    torch.testing.assert_close(first.run(scaled, rederive=1.0), EXPECTED)
    assert decisions()[-1].origin == "compiled"
    assert first.records() == before


def test_a_wrong_record_is_disputed(
    machines: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that another function's plan was put into, as somebody would to whom the directory belongs."""
    first, second = machines
    first.run(shifted)
    [other] = first.records()
    first.run(scaled)
    asserted: list[tuple[bytes, bytes]] = []
    add = record.RecordStore.add
    monkeypatch.setattr(
        record.RecordStore,
        "add",
        lambda self, digest, body, programs: asserted.append((digest, body)),
    )
    second.run(shifted, warm_start=True, namespace="elsewhere")
    monkeypatch.setattr(record.RecordStore, "add", add)
    [(_, wrong)] = asserted
    [name] = set(first.records()) - {other}

    second.start()
    digest = _digest_of(first, scaled, monkeypatch)
    cache: OnDiskCache[bytes, bytes] = OnDiskCache(base_dir=second.folder / "torch-sources")
    cache.insert(digest, wrong)
    assert name in first.records()
    with pytest.warns(kcache.KcacheWarning, match="another one was derived"):
        torch.testing.assert_close(second.run(scaled, rederive=1.0), EXPECTED)
    assert json.loads(cache.get(digest) or b"null") == json.loads(_record_of(first, digest))
    torch.testing.assert_close(second.run(scaled), EXPECTED)
    assert decisions()[-1].origin == "warm"


def _record_of(machine: Machine, digest: bytes) -> bytes:
    cache: OnDiskCache[bytes, bytes] = OnDiskCache(base_dir=machine.folder / "torch-sources")
    return cache.get(digest) or b"null"


def _digest_of(machine: Machine, function: Any, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The source digest that the machine looks for."""
    digests: list[bytes] = []
    find = record.RecordStore.find

    def spied(self: Any, digest: bytes) -> Any:
        digests.append(digest)
        return find(self, digest)

    monkeypatch.setattr(record.RecordStore, "find", spied)
    machine.run(function)
    monkeypatch.setattr(record.RecordStore, "find", find)
    return digests[-1]


def test_a_record_of_another_toolchain_is_not_disputed(
    machines: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that was upgraded may compile other operators: the older record is not wrong."""
    first, _ = machines
    with monkeypatch.context() as patched:
        patched.setattr(kernels.IslandKernel, "toolchain", "00" * 32)
        first.run(scaled, least_operators=2)
    before = first.records()
    digest = _digest_of(first, scaled, monkeypatch)
    cache: OnDiskCache[bytes, bytes] = OnDiskCache(base_dir=first.folder / "torch-sources")
    body = json.loads(cache.get(digest) or b"")
    assert body["toolchains"] == ["00" * 32]
    torch.testing.assert_close(first.run(scaled, rederive=1.0), EXPECTED)
    assert first.records() == before
