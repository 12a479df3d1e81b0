"""Timings of schedules over gRPC, on SQLite and Postgres: who records what, who gets what."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

import kcache_grpc as kcache
from kcache_grpc._proto.kcache.v1 import autotune_pb2 as pb
from kcache_grpc._proto.kcache.v1 import autotune_pb2_grpc, common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as cache_pb
from kcache_grpc.storage import open_store
from kcache_grpc.storage.contract.autotune import Timing
from kcache_grpc.worker import WorkerSettings
from tests.postgres import PostgresServer
from tests.server.harness.programs import add, compile_request, header, inline, result_of
from tests.server.harness.running import Running, config_in, running

DEVICE = "Test CPU/2"


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> Iterator[Running]:
    config = config_in(tmp_path_factory.mktemp("autotune"))
    if request.param == "postgres":
        config = config_in(tmp_path_factory.mktemp("autotune"), db=postgres_server.create_migrated())
    with running(config) as server:
        yield server


@pytest.fixture
def tuner(server: Running) -> autotune_pb2_grpc.AutotuneStub:
    return autotune_pb2_grpc.AutotuneStub(server.channel)


def subject(server: Running, rows: int, **changes: Any) -> pb.TuningSubject:
    """Of a sum of its own, stored first."""
    request = cache_pb.StoreGraphRequest(header=header(), graph=inline(add(rows)))
    stored = server.stub.StoreGraph(request)
    fields: dict[str, Any] = {
        "spec_digest": stored.spec_digest,
        "arg_spec": f"f32[{rows},8];f32[{rows},8]",
        "target": common_pb2.Target(cpu=common_pb2.CpuTarget(isa="x86-64-v3")),
        "device": DEVICE,
    }
    return pb.TuningSubject(**{**fields, **changes})


def timing(schedule: str, nanoseconds: int, samples: int = 5) -> pb.ScheduleTiming:
    return pb.ScheduleTiming(schedule=schedule, duration=Duration(nanos=nanoseconds), sample_count=samples)


def record(tuner: Any, subject: pb.TuningSubject, **timings: int) -> int:
    """``grain_4=9`` for a schedule of nine nanoseconds, ``default`` for the default."""
    messages = [
        timing("" if name == "default" else name.replace("_", ":"), nanoseconds)
        for name, nanoseconds in timings.items()
    ]
    return tuner.RecordTimings(pb.RecordTimingsRequest(subject=subject, timings=messages)).created_count


def listed(tuner: Any, subject: pb.TuningSubject) -> list[tuple[str, int]]:
    reply = tuner.ListTimings(pb.ListTimingsRequest(subject=subject))
    assert not reply.next_page_token
    return [(each.schedule, each.duration.nanos) for each in reply.timings]


@pytest.mark.sampled(2)
def test_the_first_timing_stays_and_a_new_choice_discards_none(server: Running, tuner: Any) -> None:
    mine = subject(server, 3)
    assert listed(tuner, mine) == []
    assert record(tuner, mine, default=90, grain_4=70) == 2
    assert record(tuner, mine, default=1, grain_4=1, unroll_on=80) == 1
    assert listed(tuner, mine) == [("grain:4", 70), ("unroll:on", 80), ("", 90)]


def test_every_part_of_a_subject_tells_apart(server: Running, tuner: Any) -> None:
    mine = subject(server, 4)
    record(tuner, mine, default=90)
    others = [
        subject(server, 4, device="Other CPU/2"),
        subject(server, 4, arg_spec="f32[5,8];f32[5,8]"),
        subject(server, 4, options=common_pb2.Options(opt_level=1)),
        subject(server, 4, target=common_pb2.Target(cpu=common_pb2.CpuTarget(isa="x86-64-v4"))),
    ]
    assert [listed(tuner, other) for other in others] == [[]] * 4
    assert listed(tuner, mine) == [("", 90)]


def test_tuners_at_the_same_time_agree(server: Running, tuner: Any) -> None:
    mine = subject(server, 6)
    with ThreadPoolExecutor(8) as pool:
        created = list(
            pool.map(
                lambda n: record(tuner, mine, default=100 + n, grain_4=50 + n, grain_16=60 + n), range(8)
            )
        )
    assert sum(created) == 3
    [fast, slow, default] = listed(tuner, mine)
    assert (fast[0], slow[0], default[0]) == ("grain:4", "grain:16", "")


def test_pages(server: Running, tuner: Any) -> None:
    mine = subject(server, 7)
    record(tuner, mine, default=90, grain_4=70, grain_16=80)
    first = tuner.ListTimings(pb.ListTimingsRequest(subject=mine, page_size=2))
    assert [each.schedule for each in first.timings] == ["grain:4", "grain:16"]
    rest = tuner.ListTimings(pb.ListTimingsRequest(subject=mine, page_token=first.next_page_token))
    assert [each.schedule for each in rest.timings] == [""]
    other = subject(server, 7, device="Other CPU/2")
    with pytest.raises(grpc.RpcError, match="page_token"):
        tuner.ListTimings(pb.ListTimingsRequest(subject=other, page_token=first.next_page_token))


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"spec_digest": b"short"}, grpc.StatusCode.INVALID_ARGUMENT, "5 bytes instead of 32"),
        ({"spec_digest": b"x" * 32}, grpc.StatusCode.NOT_FOUND, "store its program first"),
        ({"arg_spec": "f32[8,8]", "sizes": "s0=8"}, grpc.StatusCode.INVALID_ARGUMENT, "it has none"),
        ({"arg_spec": "f32[s0,s1]", "sizes": "s0=8"}, grpc.StatusCode.INVALID_ARGUMENT, "s0, s1"),
        ({"arg_spec": "f32[s0,8]", "sizes": "s0=-8"}, grpc.StatusCode.INVALID_ARGUMENT, "each symbol"),
        ({"arg_spec": "f32[s0 s0]", "sizes": "s0=8"}, grpc.StatusCode.INVALID_ARGUMENT, "types and sizes"),
        ({"arg_spec": "f32[\u00b2,8]"}, grpc.StatusCode.INVALID_ARGUMENT, "types and sizes"),
        ({"arg_spec": "nonsense"}, grpc.StatusCode.INVALID_ARGUMENT, "types and sizes"),
        ({"target": None}, grpc.StatusCode.INVALID_ARGUMENT, "no target"),
        ({"device": ""}, grpc.StatusCode.INVALID_ARGUMENT, "device"),
        ({"device": "a\0b"}, grpc.StatusCode.INVALID_ARGUMENT, "device"),
        (
            {"options": common_pb2.Options(schedule="grain:4")},
            grpc.StatusCode.INVALID_ARGUMENT,
            "choose no schedule",
        ),
    ],
)
def test_a_wrong_subject_is_rejected(
    server: Running, tuner: Any, changes: dict[str, Any], code: grpc.StatusCode, said: str
) -> None:
    wrong = subject(server, 8, **changes)
    for call in (lambda: record(tuner, wrong, default=90), lambda: listed(tuner, wrong)):
        with pytest.raises(grpc.RpcError, match=said) as caught:
            call()
        assert caught.value.code() is code  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("timings", "said"),
    [
        ([], "1 to 256"),
        ([timing("grain:4", 5)] * 2, "two timings"),
        ([timing("grain:4", 5), timing("speed:9", 5)], "fuse, gpu_bytes"),
        ([timing("recorded", 5)], "no schedule choice"),
        ([timing("", 0)], "0 ns"),
        ([timing("", -5)], "negative"),
        ([timing("", 5, samples=0)], "sample_count"),
        ([timing("", 5)] * 300, "1 to 256"),
    ],
)
def test_wrong_timings_are_rejected_whole(
    server: Running, tuner: Any, timings: list[pb.ScheduleTiming], said: str
) -> None:
    mine = subject(server, 9)
    with pytest.raises(grpc.RpcError, match=said):
        tuner.RecordTimings(pb.RecordTimingsRequest(subject=mine, timings=timings))
    assert listed(tuner, mine) == []


def test_a_stored_choice_that_this_version_lacks_is_left_out(server: Running, tuner: Any) -> None:
    from kcache_grpc.model.options import Options
    from kcache_grpc.model.target import CpuTarget
    from kcache_grpc.service.autotune import Subject

    mine = subject(server, 10)
    known = Subject(mine.spec_digest, mine.arg_spec, CpuTarget("x86-64-v3"), Options(), DEVICE)
    with open_store(server.config.db) as store:
        later = Timing(known.digest, known.shape, "speed:9", DEVICE, 1)
        store.add_timings(store.get_or_create_namespace("default"), [later])
    record(tuner, mine, default=90)
    assert listed(tuner, mine) == [("", 90)]


def test_timings_of_open_sizes_are_by_sizes(server: Running, tuner: Any) -> None:
    spec = "f32[s0,8];f32[s0,8]"
    every = subject(server, 13, arg_spec=spec)
    small, large = (subject(server, 13, arg_spec=spec, sizes=f"s0={size}") for size in (4, 4000))
    assert record(tuner, small, default=90, grain_4=70) == 2
    assert record(tuner, large, default=900) == 1
    assert record(tuner, large, default=1, grain_4=950) == 1
    reply = tuner.ListTimings(pb.ListTimingsRequest(subject=every))
    rows = [(each.sizes, each.schedule, each.duration.nanos) for each in reply.timings]
    assert rows == [
        *(("s0=4", "grain:4", 70), ("s0=4", "", 90)),
        *(("s0=4000", "", 900), ("s0=4000", "grain:4", 950)),
    ]
    assert listed(tuner, large) == [("", 900), ("grain:4", 950)]
    # A kernel for exactly these sizes is another one.
    assert listed(tuner, subject(server, 13, arg_spec="f32[4000,8];f32[4000,8]")) == []
    with pytest.raises(grpc.RpcError, match="give those of s0"):
        record(tuner, every, default=5)


def test_a_program_with_many_arguments(server: Running, tuner: Any) -> None:
    long = ";".join(["f32[1024,1024]"] * 2000)
    mine, other = subject(server, 11, arg_spec=long), subject(server, 11, arg_spec=f"{long};f32[]")
    record(tuner, mine, default=90)
    assert (listed(tuner, mine), listed(tuner, other)) == ([("", 90)], [])


def test_the_policy_itself_is_no_option_of_a_compile(server: Running) -> None:
    options = common_pb2.Options(schedule="recorded")
    with pytest.raises(grpc.RpcError, match="ListTimings"):
        result_of(server.stub.CompileKernel(compile_request(inline(add(12)), options=options)))


def test_timings_outlive_a_toolchain(tmp_path: Path) -> None:
    """The kernel of the old toolchain is no hit for the new one; its timings are."""
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "newer_jobs.py").write_text(
        "from kcache_grpc.worker.child import jobs\n"
        "from kcache_grpc.worker.child.jobs import JOBS, warm\n\n"
        "def hello():\n"
        "    told = jobs.hello()\n"
        "    return {**told, 'toolchain': [*told['toolchain'], ['test', 'newer']]}\n"
    )
    newer = WorkerSettings(jobs="newer_jobs", extra_path=(str(folder),))
    toolchains = []
    for number, worker in enumerate((WorkerSettings(), newer)):
        with running(config_in(tmp_path, worker=worker)) as server:
            stub = autotune_pb2_grpc.AutotuneStub(server.channel)
            mine = subject(server, 5)
            if number == 0:
                record(stub, mine, default=90, grain_4=70)
            assert listed(stub, mine) == [("grain:4", 70), ("", 90)]
            with kcache.Client(server.address, cache_dir=tmp_path / f"c{number}", strict=True) as client:
                toolchains.append(client.compile(add(5)).manifest.toolchain_digest)
    assert toolchains[0] != toolchains[1]
