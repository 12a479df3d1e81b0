"""Kernels of open sizes, tuned at several sizes against a real server on SQLite and Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc.client.tuning.timings import subject_of
from kcache_grpc.model.schedule import winner_of_sizes
from kcache_grpc.storage import open_store
from kcache_grpc.storage.contract.autotune import Timing
from tests.postgres import PostgresServer
from tests.server.harness.running import Running, config_in, running

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore:dynamic=.assume.:kcache_grpc.KcacheWarning"),
]

RECORDED = kcache.Options(schedule="recorded")


def rows(columns: int, size: str = "?") -> str:
    """exp(a) + b, of open rows."""
    kind = f"tensor<{size}x{columns}xf32>"
    return f"""func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{
  %0 = stablehlo.exponential %a : {kind}
  %1 = stablehlo.add %0, %b : {kind}
  return %1 : {kind} }}"""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> Iterator[Running]:
    config = config_in(tmp_path_factory.mktemp("sizes"))
    if request.param == "postgres":
        config = config_in(tmp_path_factory.mktemp("sizes"), db=postgres_server.create())
    with running(config) as server:
        yield server


@pytest.fixture
def client(server: Running, tmp_path: Path) -> Iterator[kcache.Client]:
    with kcache.Client(server.address, cache_dir=tmp_path / "a", strict=True, timeout=120) as client:
        yield client


@pytest.mark.sampled(6)
def test_a_program_of_open_sizes_is_tuned_at_several(
    server: Running, client: kcache.Client, tmp_path: Path
) -> None:
    program = rows(24)
    tuning = client.autotune(
        program, choices={"unroll": ["on"], "grain": ["4"]}, budget=60.0, sizes=[{"s0": 7}, {(0, 0): 900}]
    )
    assert {each.sizes for each in tuning.timings} == {"s0=7", "s0=900"}
    assert tuning.recorded == len(tuning.timings) == len(tuning.trials)
    assert {each.schedule for each in tuning.timings} > {""}
    best = winner_of_sizes((each.sizes, each.schedule, each.nanoseconds) for each in tuning.timings)
    assert tuning.schedule == tuning.kernel.manifest.options.schedule == best
    assert tuning.kernel.manifest.arg_spec == "f32[s0,24];f32[s0,24]"
    with kcache.Client(server.address, cache_dir=tmp_path / "b", strict=True, timeout=120) as other:
        kernel = other.compile(program, options=RECORDED)
    assert kernel.manifest.kernel_digest == tuning.kernel.manifest.kernel_digest
    for size in (1, 3, 40):
        a = np.linspace(0, 1, size * 24, dtype=np.float32).reshape(size, 24)
        np.testing.assert_allclose(kernel(a, a)[0], np.exp(a) + a, rtol=1e-5)


def test_more_sizes_and_choices_discard_none_and_the_mean_decides(
    server: Running, client: kcache.Client
) -> None:
    """Timings that nobody took: what wins at one size and loses more at another is not taken."""
    program = rows(40)
    plain = client.compile(program)

    def record(size: int, **nanos: int) -> None:
        timed = {"" if name == "default" else name.replace("_", ":"): each for name, each in nanos.items()}
        keep(server, plain, f"s0={size}", timed)

    record(10, default=100, grain_4=50)
    assert chosen(client, program) == "grain:4"
    record(1000, default=100, grain_4=300)
    assert chosen(client, program) == ""
    record(100, default=100, grain_4=50, unroll_on=99)
    assert chosen(client, program) == "grain:4"
    record(10, unroll_on=20)
    record(1000, unroll_on=90)
    assert chosen(client, program) == "unroll:on"


def keep(server: Running, kernel: Any, sizes: str, nanos: dict[str, int]) -> None:
    from kcache_grpc.model.wire import options_from_proto, target_from_proto
    from kcache_grpc.service.autotune import Subject

    message = subject_of(
        kernel.spec_digest, kernel.manifest.arg_spec, kernel.manifest.target, kcache.Options(), sizes
    )
    target, options = target_from_proto(message.target), options_from_proto(message.options)
    subject = Subject(message.spec_digest, message.arg_spec, target, options, message.device, message.sizes)
    timings = [
        Timing(subject.digest, subject.shape, schedule or "default", subject.device, each)
        for schedule, each in nanos.items()
    ]
    with open_store(server.config.db) as store:
        store.add_timings(store.get_or_create_namespace("default"), timings)


def chosen(client: kcache.Client, program: str, **how: Any) -> str:
    """What a client that was just made takes."""
    client._core._recorded.clear()  # pyright: ignore[reportPrivateUsage]
    return client.compile(program, options=RECORDED, **how).manifest.options.schedule


@pytest.mark.sampled(2)
def test_one_kernel_for_all_sizes_of_a_program_that_has_sizes(client: kcache.Client) -> None:
    program = rows(56, "6")
    tuning = client.autotune(program, dynamic="assume", symbols=[(0, 0)], choices=["unroll"], budget=60.0)
    assert {each.sizes for each in tuning.timings} == {"s0=6"}
    assert tuning.kernel.manifest.arg_spec == "f32[s0,56];f32[s0,56]"
    assert chosen(client, program, dynamic="assume", symbols=[(0, 0)]) == tuning.schedule
    # A kernel for exactly these sizes is another one, with timings of its own.
    static = client.autotune(program, choices={"grain": ["4"]}, budget=0.2)
    assert {each.sizes for each in static.timings} == {""}
    assert static.timings[0] not in tuning.timings
    a = np.ones((4, 56), np.float32)
    tuned = client.autotune(program, dynamic="assume", choices={"unroll": []}, inputs=[a, a], budget=0.1)
    assert {each.sizes for each in tuned.timings} == {"s0=4,s1=56"}


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"sizes": [{"s7": 4}]}, "no dynamic size; there are s0 in f32"),
        ({"sizes": {(0, 1): 4}}, "no dynamic size; there are s0 in f32"),
        ({"sizes": [{"s0": -1}]}, "use an int from 0"),
        ({"sizes": [{"s0": True}]}, "use an int from 0"),
        ({"sizes": [{"s0": 4, (1, 0): 5}]}, "both 4 and 5"),
        ({"sizes": [{"s0": 4}, {(0, 0): 4}]}, "one tuple twice"),
        ({"sizes": []}, "0 tuples of sizes; use 1 to 16"),
        ({"sizes": [4]}, "use mappings such as"),
        ({"sizes": [{"s0": 1 << 40}]}, "tune at smaller sizes"),
        ({}, "sizes lack s0, axis 0 of argument 0"),
        ({"sizes": [{"s0": 4}], "inputs": []}, "sizes or inputs"),
        ({"dynamic": "auto"}, "tune with False or True"),
    ],
)
def test_wrong_sizes_are_rejected(client: kcache.Client, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(kcache.ArgumentError, match=said):
        client.autotune(rows(72), **arguments)


def test_sizes_of_a_kernel_that_has_none_and_outside_of_a_guard_are_rejected(client: kcache.Client) -> None:
    with pytest.raises(kcache.ArgumentError, match="pass dynamic=True"):
        client.autotune(rows(72, "4"), sizes=[{"s0": 4}])
    bounds = {(0, 0): kcache.Dim(min=4)}
    with pytest.raises(kcache.ArgumentError, match="the kernel is for 4 <= s0"):
        client.autotune(rows(72, "4"), dynamic="assume", symbols=bounds, sizes=[{"s0": 2}])
