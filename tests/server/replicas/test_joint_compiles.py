"""CompileKernels: several compiles in one stream, each as CompileKernel does it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.model.manifest import Manifest
from kcache_grpc.server.reply_flow_control import StreamWriter
from kcache_grpc.storage import open_store
from tests.server.harness import gated_jobs, large_jobs
from tests.server.harness.programs import (
    SO,
    TARGET,
    add,
    by_digest,
    compile_request,
    header,
    inline,
    kernels_request,
    result_of,
    stages_of,
)
from tests.server.harness.running import Running, config_in, running

KINDS = [SO, 2, 3]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(config_in(tmp_path_factory.mktemp("together"))) as server:
        yield server


def together(server: Running, requests: Sequence[Any], namespace: str = "") -> Any:
    """One stream; the inner headers name another namespace, and do not count."""
    return server.stub.CompileKernels(
        pb.CompileKernelsRequest(header=header(namespace), requests=requests), timeout=240
    )


def ask(body: bytes, **rest: Any) -> Any:
    return compile_request(
        inline(body), "elsewhere", artifact_kinds=[SO], inline_budget_bytes=1 << 20, **rest
    )


def told(messages: Any, count: int) -> tuple[list[list[Any]], dict[int, status_pb2.Status]]:
    """Replies by index, and failures."""
    replies: list[list[Any]] = [[] for _ in range(count)]
    failures: dict[int, status_pb2.Status] = {}
    for message in messages:
        assert message.ByteSize() < 4 << 20
        for event in message.events:
            assert event.index not in failures
            if event.HasField("failure"):
                failures[event.index] = status_pb2.Status.FromString(event.failure)
            else:
                replies[event.index].append(event.reply)
    return replies, failures


def reason(status: status_pb2.Status) -> error_details_pb2.ErrorInfo:
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return info


def test_each_is_told_as_a_compile_of_its_own(server: Running) -> None:
    bodies = [add(rows) for rows in (4, 5, 6)]
    replies, failures = told(together(server, [ask(body) for body in bodies], "each"), 3)
    assert not failures
    for body, some in zip(bodies, replies, strict=True):
        kinds = [reply.WhichOneof("event") for reply in some]
        assert (kinds.index("result"), kinds.count("result")) == (len(kinds) - 1, 1)
        stages = stages_of(some)
        assert stages[:3] == ["canonicalize", "store", "queued"]
        assert stages[-1] == "publish"
        result = result_of(some)
        assert result.origin == pb.ORIGIN_COMPILED
        alone = result_of(server.stub.CompileKernel(compile_request(by_digest(body), "each")))
        assert (alone.origin, alone.manifest) == (pb.ORIGIN_STORED, result.manifest)
        (artifact,) = result.artifacts
        assert hashlib.sha256(artifact.data).digest() == artifact.ref.sha256
    (again,) = together(server, [ask(body) for body in bodies], "each")
    replies, failures = told([again], 3)
    assert {result_of(some).origin for some in replies} == {pb.ORIGIN_STORED}


def test_equal_ones_are_one_compile(server: Running) -> None:
    replies, failures = told(together(server, [ask(add(7))] * 3, "equal"), 3)
    assert not failures
    results = [result_of(some) for some in replies]
    assert sorted(result.origin for result in results) == [pb.ORIGIN_COMPILED, *[pb.ORIGIN_JOINED] * 2]
    assert len({result.manifest.payload for result in results}) == 1


def test_what_fails_disturbs_no_other(server: Running) -> None:
    requests = [
        ask(b"junk"),
        ask(add(8)),
        compile_request(by_digest(add(9))),
        pb.CompileKernelRequest(target=TARGET),
        pb.CompileKernelRequest(graph=inline(add(8))),
    ]
    replies, failures = told(together(server, requests, "beside"), 5)
    assert {index: reason(status).reason for index, status in failures.items()} == {
        0: "INVALID_PROGRAM",
        2: "PROGRAM_REQUIRED",
        3: "ARGUMENT",
        4: "ARGUMENT",
    }
    assert result_of(replies[1]).origin == pb.ORIGIN_COMPILED
    with pytest.raises(grpc.RpcError) as caught:
        list(server.stub.CompileKernel(compile_request(inline(b"junk"), "beside")))
    call: Any = caught.value
    assert (failures[0].code, failures[0].message) == (call.code().value[0], call.details())
    (alone,) = [value for name, value in call.trailing_metadata() if name == "grpc-status-details-bin"]
    assert status_pb2.Status.FromString(alone) == failures[0]


@pytest.mark.parametrize("count", [0, 65])
def test_none_and_too_many_are_rejected(server: Running, count: int) -> None:
    with pytest.raises(grpc.RpcError, match=f"{count} compiles in one call; ask for 1 to 64") as caught:
        list(together(server, [ask(add(4))] * count))
    call: Any = caught.value
    assert call.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_64_are_answered(server: Running) -> None:
    replies, failures = told(together(server, [ask(add(4))] * 64), 64)
    assert not failures
    assert len({result_of(some).manifest.payload for some in replies}) == 1


def test_the_call_has_one_header_and_an_event_of_its_own_for_each(server: Running) -> None:
    list(together(server, [ask(add(10)), ask(b"junk 1")], "noted"))
    list(server.stub.CompileKernel(compile_request(inline(add(10)), "alone", artifact_kinds=[SO])))
    with pytest.raises(grpc.RpcError):
        list(server.stub.CompileKernel(compile_request(inline(b"junk 2"), "alone", artifact_kinds=[SO])))
    assert noted(server, "noted") == noted(server, "alone") != []
    assert server.stub.CountSpecs(pb.CountSpecsRequest(header=header("elsewhere"))).count == 0


def noted(server: Running, namespace: str) -> list[tuple[str, str]]:
    server.stub.GetStats(pb.GetStatsRequest(header=header(namespace)))  # all is written
    with open_store(server.config.db) as store:
        events = store.list_audit(store.get_or_create_namespace(namespace), limit=100)
    return sorted((record.event.kind, record.event.outcome) for record in events)


def test_compiles_go_on_when_their_caller_goes_away(tmp_path: Path) -> None:
    settings = gated_jobs.write_module(tmp_path / "gate")
    with running(config_in(tmp_path, worker=settings)) as server:
        bodies = [add(11), add(12)]
        call = together(server, [ask(body) for body in bodies])
        other = together(server, [ask(body) for body in reversed(bodies)])
        next(call)
        next(other)
        call.cancel()
        (tmp_path / "gate" / "open").touch()
        replies, failures = told(other, 2)
        assert not failures
        assert all(result_of(some) for some in replies)
        (reply,) = server.stub.GetKernels(kernels_request(bodies))
        assert {result.status for result in reply.results} == {pb.KERNEL_STATUS_FOUND}


@pytest.mark.parametrize("budget", [0, 3 << 20])
def test_large_artifacts_come_in_parts(tmp_path: Path, budget: int) -> None:
    with running(config_in(tmp_path, worker=large_jobs.settings())) as server:
        request = compile_request(inline(add(4)), artifact_kinds=KINDS, inline_budget_bytes=budget)
        replies, failures = told(together(server, [request] * 3), 3)
    assert not failures
    for some in replies:
        result = result_of(some)
        contents = {artifact.ref.sha256: artifact.data for artifact in result.artifacts}
        assert bool(contents) == bool(budget)
        for reply in some[some.index(next(each for each in some if each.HasField("result"))) + 1 :]:
            content = contents.setdefault(reply.chunk.ref.sha256, b"")
            assert reply.chunk.offset == len(content)
            contents[reply.chunk.ref.sha256] = content + reply.chunk.data
        assert {hashlib.sha256(content).digest() for content in contents.values()} == set(contents)
        manifest = Manifest.from_bytes(result.manifest.payload)
        assert set(contents) == {
            ref.sha256 for ref in manifest.artifacts if ref.kind in ("so", "mlir", "llvm")
        }


# The stream writer, without a server.


def test_what_is_put_together_goes_out_together_and_none_is_above_the_limit() -> None:
    written: list[bytes] = []

    async def write(message: bytes) -> None:
        await asyncio.sleep(0)
        written.append(message)

    async def work(writer: StreamWriter, letter: bytes) -> None:
        for _ in range(10):
            await writer.put(letter * 3)

    async def run() -> bytes:
        writer = StreamWriter(10, lambda: 0.0)
        return await writer.write_all([work(writer, letter) for letter in (b"a", b"b", b"c")], write)

    last = asyncio.run(run())
    messages = [*written, last]
    assert last
    assert all(0 < len(message) <= 10 for message in messages)
    assert sorted(b"".join(messages)) == sorted(b"aaabbbccc" * 10)
    assert len(messages) < 20


def test_what_comes_within_the_pace_waits_but_neither_the_end_nor_what_does_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kcache_grpc.server.reply_flow_control._SLOWEST", 3600.0)
    written: list[bytes] = []

    async def write(message: bytes) -> None:
        written.append(message)

    async def work(writer: StreamWriter) -> None:
        for part in (b"a", b"b", b"c" * 9, b"d"):
            await writer.put(part)
            await asyncio.sleep(0)

    async def run() -> bytes:
        writer = StreamWriter(10, lambda: 3600.0)
        return await writer.write_all([work(writer)], write)

    assert asyncio.run(run()) == b"c" * 9 + b"d"
    assert written == [b"ab"]


def test_a_part_above_the_limit_goes_out_alone() -> None:
    async def write(message: bytes) -> None:
        written.append(message)

    async def work() -> None:
        for part in (b"a", b"b" * 20, b"c"):
            await writer.put(part)

    async def run() -> bytes:
        return await writer.write_all([work()], write)

    written: list[bytes] = []
    writer = StreamWriter(10, lambda: 0.0)
    last = asyncio.run(run())
    assert [*written, last] == [b"a", b"b" * 20, b"c"]


@pytest.mark.parametrize("error", [ValueError("lost"), asyncio.CancelledError()])
def test_who_fails_without_a_word_fails_the_call_after_the_others(error: BaseException) -> None:
    written: list[bytes] = []

    async def write(message: bytes) -> None:
        written.append(message)

    async def run() -> None:
        writer = StreamWriter(10, lambda: 0.0)

        async def fails() -> None:
            raise error

        with pytest.raises(type(error)):
            await writer.write_all([fails(), writer.put(b"said")], write)

    asyncio.run(run())
    assert b"".join(written) == b"said"


def test_a_call_that_is_cancelled_ends_its_tasks() -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("it")

    async def write(message: bytes) -> None:
        raise AssertionError(message)

    async def run() -> None:
        call = asyncio.ensure_future(StreamWriter(10, lambda: 0.0).write_all([waits(), waits()], write))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(run())
    assert ended == ["it", "it"]
