"""Estimates of compile time that a real server gives its clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kcache_grpc as kcache
from kcache_grpc._proto.kcache.v1 import estimate_pb2 as pb
from kcache_grpc.cli import main
from kcache_grpc.cli.commands.compile import Stages, expectation
from tests.client.conftest import NewClient
from tests.postgres import PostgresServer
from tests.server.harness import gated_jobs
from tests.server.harness.programs import TARGET as TARGET_PROTO
from tests.server.harness.programs import add, header, inline
from tests.server.harness.running import Running, config_in, running

pytestmark = pytest.mark.issue(number=20, point=6)

TARGET = "x86-64-v3"


def chain(length: int, rows: int = 8) -> str:
    """So many operations, one after the other."""
    kind = f"tensor<{rows}xf32>"
    lines = (f"  %v{n + 1} = stablehlo.tanh %v{n} : {kind}\n" for n in range(length))
    return f"func.func @main(%v0: {kind}) -> {kind} {{\n{''.join(lines)}  return %v{length} : {kind}\n}}\n"


@pytest.fixture(scope="module", params=["sqlite", "postgres", "memory"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> Iterator[Running]:
    """Its compiles wait for the file ``open`` in ``jobs``."""
    folder = tmp_path_factory.mktemp("expected")
    worker = gated_jobs.write_module(folder / "jobs")
    (folder / "jobs" / "open").touch()
    changes: dict[str, Any] = {"worker": worker}
    if request.param == "postgres":
        changes["db"] = postgres_server.create_migrated()
    elif request.param == "memory":
        changes["db"] = "memory:"
    with running(config_in(folder, **changes)) as server:
        yield server
    if request.param == "postgres":
        postgres_server.drop(changes["db"])


@pytest.fixture
def space(tmp_path: Path) -> str:
    return tmp_path.name.replace("_", "-").lower()[:60]


@pytest.fixture
def client(server: Running, space: str, new_client: NewClient) -> kcache.Client:
    return new_client(server.address, namespace=space)


def estimate(server: Running, space: str, program: str) -> pb.EstimateCompileResponse:
    request = pb.EstimateCompileRequest(
        header=header(space), graph=inline(program.encode()), target=TARGET_PROTO
    )
    return server.stub.EstimateCompile(request)


@pytest.mark.sampled(3)
def test_without_history_there_is_no_estimate(server: Running, space: str, client: kcache.Client) -> None:
    assert client.expected_seconds(chain(3), target=TARGET) is None
    reply = estimate(server, space, chain(3))
    assert (reply.basis, reply.HasField("expected_duration")) == (pb.ESTIMATE_BASIS_NO_HISTORY, False)
    assert client.count() == 0  # nothing was stored for it


def test_a_hit_of_any_tier_takes_no_time(
    server: Running, space: str, client: kcache.Client, new_client: NewClient, tmp_path: Path
) -> None:
    client.compile(chain(3), target=TARGET)
    assert client.expected_seconds(chain(3), target=TARGET) == 0.0
    disk = new_client(server.address, namespace=space)
    assert disk.expected_seconds(chain(3), target=TARGET) == 0.0
    remote = new_client(server.address, namespace=space, cache_dir=tmp_path / "other")
    assert remote.expected_seconds(chain(3), target=TARGET) == 0.0
    renamed = chain(3).replace("%v", "%renamed")
    assert remote.expected_seconds(renamed, target=TARGET) == 0.0
    reply = estimate(server, space, renamed)
    assert (reply.basis, reply.expected_duration.nanos) == (pb.ESTIMATE_BASIS_HIT, 0)
    before = client.stats()
    assert (before.hits, before.kernels) == (0, 1)  # no estimate counts as a hit


@pytest.mark.sampled(3)
def test_the_same_spec_at_other_sizes_is_its_history(
    server: Running, space: str, client: kcache.Client
) -> None:
    kernels = [client.compile(chain(4, rows), target=TARGET) for rows in (8, 9, 10)]
    taken = sorted(kernel.manifest.compile_seconds for kernel in kernels)
    expected = client.expected_seconds(chain(4, rows=64), target=TARGET)
    assert expected == pytest.approx(taken[1], abs=1e-6)
    reply = estimate(server, space, chain(4, rows=64))
    assert (reply.basis, reply.sample_count) == (pb.ESTIMATE_BASIS_SAME_SPEC, 3)
    other = client.expected_seconds(chain(4), target="x86-64-v2")
    assert other == pytest.approx(taken[1], abs=1e-6)
    assert client.expected_seconds(chain(4), target=TARGET, options=kcache.Options(opt_level=1)) == other


def test_other_specs_are_estimated_by_their_operations(
    server: Running, space: str, client: kcache.Client
) -> None:
    taken = [client.compile(chain(n), target=TARGET).manifest.compile_seconds for n in (2, 4, 6)]
    expected = client.expected_seconds(chain(5), target=TARGET)
    assert expected is not None
    assert min(taken) / 2 <= expected <= 2 * max(taken)
    reply = estimate(server, space, chain(5))
    assert (reply.basis, reply.sample_count) == (pb.ESTIMATE_BASIS_NEAREST_SPECS, 3)
    client.store(chain(7))
    assert client.expected_seconds(chain(7), target=TARGET) is not None


def test_the_asynchronous_client_says_the_same(
    server: Running, space: str, client: kcache.Client, tmp_path: Path
) -> None:
    client.compile(chain(4, 8), target=TARGET)

    async def ask() -> float | None:
        async with kcache.aio.Client(server.address, namespace=space, cache_dir=tmp_path / "aio") as other:
            return await other.expected_seconds(chain(4, 9), target=TARGET)

    assert asyncio.run(ask()) == client.expected_seconds(chain(4, 9), target=TARGET)


def test_a_program_that_cannot_be_read_is_an_error(client: kcache.Client) -> None:
    with pytest.raises(kcache.InvalidProgram):
        client.expected_seconds("func.func @main( {", format="stablehlo")
    with pytest.raises(kcache.ArgumentError):
        client.expected_seconds(chain(2), target="pdp-11")


@pytest.mark.sampled(3)
def test_large_programs_are_uploaded_for_it(client: kcache.Client) -> None:
    client.compile(chain(3), target=TARGET)
    assert client.expected_seconds(chain(3) + "// \n" * (1 << 20), target=TARGET) == 0.0


def test_who_waits_is_told(server: Running, client: kcache.Client) -> None:
    """The compile is held until the estimate has come."""
    gate = server.config.state_dir.parent / "jobs" / "open"
    history = client.compile(add(4), target=TARGET).manifest.compile_seconds
    gate.unlink()
    told: list[tuple[str, float | None]] = []

    def report(stage: str, seconds: float) -> None:
        assert isinstance(stage, kcache.Stage)
        assert seconds >= 0
        told.append((stage, stage.expected_seconds))
        if stage.expected_seconds is not None:
            gate.touch()

    try:
        client.compile(add(5), target=TARGET, on_progress=report)
    finally:
        gate.touch()
    assert told[0][1] is None
    assert told[-1] == ("receive", pytest.approx(history, abs=1e-6))
    first = next(index for index, (_, expected) in enumerate(told) if expected is not None)
    assert {expected for _, expected in told[first:]} == {told[first][1]}


def test_the_command_shows_it(
    server: Running,
    space: str,
    client: kcache.Client,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The compile is held until the command has been told."""
    gate = server.config.state_dir.parent / "jobs" / "open"
    history = client.compile(add(4), target=TARGET).manifest.compile_seconds
    file = tmp_path / "add.mlir"
    file.write_bytes(add(6))
    report = Stages.report

    def opening(self: Stages, stage: str, at: float) -> None:
        report(self, stage, at)
        if self.expected is not None:
            gate.touch()

    monkeypatch.setattr(Stages, "report", opening)
    arguments = ["compile", str(file), "--addr", server.address, "--namespace", space, "--target", TARGET]
    arguments += ["--cache-dir", str(tmp_path / "cli")]
    gate.unlink()
    try:
        assert main([*arguments, "--json"]) == 0
    finally:
        gate.touch()
    described = json.loads(capsys.readouterr().out)
    assert described["expected_seconds"] == pytest.approx(history, abs=1e-6)
    assert described["seconds_saved"] == 0.0
    assert main([*arguments, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["expected_seconds"], again["origin"]) == (None, "disk")
    assert again["seconds_saved"] == again["compile_seconds"] == described["compile_seconds"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(2.14, "about 2.1 s"), (0.06, "about 0.1 s"), (0.034, "about 34 ms"), (0.0, "about 0 ms")],
)
def test_estimates_in_words(seconds: float, words: str) -> None:
    assert expectation(seconds) == words
