"""The audit log over gRPC: who asked for what, in which job, and the proofs, as any client sees them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

import kcache_grpc as kcache
from kcache_grpc._proto.kcache.v1 import audit_pb2 as pb
from kcache_grpc._proto.kcache.v1 import (
    audit_pb2_grpc,
    common_pb2,
    kernel_cache_pb2,
    kernel_cache_pb2_grpc,
)
from kcache_grpc.model.merkle import root_of_path
from kcache_grpc.model.signing import Signer
from kcache_grpc.service.audit.proof import Chain, Verification
from kcache_grpc.service.audit.sealer import Sealer
from kcache_grpc.storage import open_store
from tests.server.harness.programs import add, compile_request, header, inline, kernels_request
from tests.server.harness.running import Running, process

Connect = Callable[..., kcache.Client]


@pytest.fixture
def connect(server: Running, tmp_path: Path) -> Connect:
    def make(name: str = "c", **settings: str) -> kcache.Client:
        return kcache.Client(server.address, cache_dir=tmp_path / name, strict=True, **settings)  # pyright: ignore[reportArgumentType]

    return make


@pytest.fixture
def audit(server: Running) -> audit_pb2_grpc.AuditStub:
    return audit_pb2_grpc.AuditStub(server.channel)


def test_every_request_is_told_with_who_and_what_for(connect: Connect) -> None:
    program = add(4).decode()
    with connect("a", namespace="told", actor="ada", job="train-7") as client:
        client.compile(program)
    with connect("b", namespace="told", actor="bob") as client:
        assert client.compile(program).origin == "remote"
        key = client.store(program)
        assert client.lookup(program) is not None
        client.retrieve(key)
        client.normalize(program)
        with pytest.raises(kcache.InvalidProgram):
            client.compile("module { nonsense }", format="stablehlo")
        events = list(client.audit())
        told = [(event.actor, event.job, event.kind, event.outcome) for event in events]
        for expected in (
            ("ada", "train-7", "miss", "need_program"),
            ("ada", "train-7", "store", "ok"),
            ("ada", "train-7", "publish", "ok"),
            ("bob", "", "serve", "hit"),
            ("bob", "", "store", "known"),
            ("bob", "", "lookup", "found"),
            ("bob", "", "retrieve", "ok"),
            ("bob", "", "normalize", "ok"),
            ("bob", "", "error", "invalid_program"),
        ):
            assert expected in told
        published, served = (next(e for e in events if e.kind == kind) for kind in ("publish", "serve"))
        assert served.kernel_digest == published.kernel_digest != ""
        assert served.time_saved == published.duration > 0
        assert (served.origin, served.key, served.size_bytes > 1000) == ("stored", key, True)
        assert served.toolchain_digest == published.toolchain_digest
        assert served.target == published.target != ""
        assert served.peer.startswith(("ipv4:", "ipv6:"))
        assert json.loads(served.detail) == {"client": f"kcache-python/{kcache.__version__}"}
        assert served.duration < 300
        stats = client.stats()
        assert (stats.audit_events, stats.audit_dropped) == (len(events), 0)


def test_filters_order_and_limit(connect: Connect) -> None:
    with connect("a", namespace="filters", job="one") as client:
        for size in range(2, 7):
            client.store(add(size).decode())
        kinds = {event.kind for event in client.audit('job = "one" AND kind != store')}
        assert "store" not in kinds
        newest = list(client.audit("kind = store", newest_first=True))
        assert [event.id for event in newest] == sorted((event.id for event in newest), reverse=True)
        assert list(client.audit("kind = store", limit=2)) == newest[::-1][:2]
        assert list(client.audit(f"program_digest:{newest[0].program_digest[:9]} kind=store")) == newest[:1]
        assert not list(client.audit("job = 'two'"))
        with pytest.raises(kcache.ArgumentError, match="expected a field"):
            list(client.audit("1=1; DROP TABLE audit_events"))
        with pytest.raises(kcache.ArgumentError):
            client.audit(limit=-1)

    async def same() -> None:
        async with kcache.aio.Client(client._core.config.address, namespace="filters", strict=True) as other:
            assert [event async for event in other.audit("kind = store", newest_first=True)] == newest

    asyncio.run(same())


def test_pages_and_exports_give_the_same(audit: audit_pb2_grpc.AuditStub, server: Running) -> None:
    space = header("paging")
    for size in range(3, 10):
        server.stub.StoreGraph(kernel_cache_pb2.StoreGraphRequest(header=space, graph=inline(add(size))))
    token, paged = "", list[int]()
    while True:
        reply = audit.ListEvents(
            pb.ListEventsRequest(header=space, filter="kind=store", page_size=2, page_token=token)
        )
        assert len(reply.events) <= 2
        paged += [event.id for event in reply.events]
        token = reply.next_page_token
        if not token:
            break
    parts = audit.ExportEvents(pb.ExportEventsRequest(header=space, filter="kind=store"))
    exported = [event.id for part in parts for event in part.events]
    assert len(paged) == 7
    assert exported == paged
    rest = audit.ExportEvents(pb.ExportEventsRequest(header=space, filter="kind=store", after_id=paged[3]))
    assert [event.id for part in rest for event in part.events] == paged[4:]


def test_an_event_is_proven_to_whoever_kept_a_head(server: Running, audit: audit_pb2_grpc.AuditStub) -> None:
    space = header("proof")
    list(server.stub.CompileKernel(compile_request(inline(add(5)), "proof")))
    event = audit.ListEvents(pb.ListEventsRequest(header=space, filter="kind=publish")).events[0]
    unsealed = audit.GetEvent(pb.GetEventRequest(header=space, id=event.id))
    assert not unsealed.HasField("seal")
    server.seal()
    head = {head.writer: head for head in audit.GetHeads(pb.GetHeadsRequest()).heads}[event.writer]
    reply = audit.GetEvent(pb.GetEventRequest(header=space, id=event.id))
    assert reply.event == event
    assert reply.seal.event_ids[reply.index] == event.id
    tree = root_of_path(reply.leaf, reply.index, len(reply.seal.event_ids), reply.path)
    assert tree is not None
    assert hashlib.sha256(b"\x02" + reply.seal.previous_root + tree).digest() == reply.seal.root
    seals = audit.ListSeals(pb.ListSealsRequest(writer=event.writer, page_size=25)).seals
    assert (seals[-1].sequence, seals[-1].root) == (head.sequence, head.root)
    assert reply.seal in seals
    with pytest.raises(grpc.RpcError) as caught:
        audit.GetEvent(pb.GetEventRequest(header=header("another"), id=event.id))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "question",
    [
        pb.ListEventsRequest(page_token="7"),
        pb.ListEventsRequest(page_token="7-00000000"),
        pb.ListEventsRequest(page_token="x" * 100),
        pb.ListEventsRequest(order_by="time"),
        pb.ListEventsRequest(filter="job = "),
        pb.ListEventsRequest(header=common_pb2.RequestHeader(job="a\0b")),
        pb.ListEventsRequest(header=common_pb2.RequestHeader(actor="ä" * 65)),
        pb.ListEventsRequest(header=common_pb2.RequestHeader(request_id="x" * 129)),
        pb.ExportEventsRequest(after_id=-1),
        pb.ListSealsRequest(),
        pb.ListSealsRequest(writer="w", page_token="x"),
        pb.ListSealsRequest(writer="w\0"),
    ],
    ids=lambda question: type(question).__name__,
)
def test_bad_questions_are_rejected(audit: audit_pb2_grpc.AuditStub, question: Question) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        ask(audit, question)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT  # pyright: ignore[reportAttributeAccessIssue]


Question = pb.ListEventsRequest | pb.ExportEventsRequest | pb.ListSealsRequest


def ask(audit: audit_pb2_grpc.AuditStub, question: Question) -> None:
    match question:
        case pb.ListEventsRequest():
            audit.ListEvents(question)
        case pb.ExportEventsRequest():
            list(audit.ExportEvents(question))
        case _:
            audit.ListSeals(question)


def test_misses_of_a_look_up_have_reasons(server: Running, audit: audit_pb2_grpc.AuditStub) -> None:
    known, unknown = add(11), add(12)
    server.stub.StoreGraph(kernel_cache_pb2.StoreGraphRequest(header=header("misses"), graph=inline(known)))
    list(server.stub.GetKernels(kernels_request([known, unknown], "misses")))
    events = audit.ListEvents(pb.ListEventsRequest(header=header("misses"), filter="kind=miss")).events
    assert [event.outcome for event in events] == ["need_compile", "need_program"]
    assert [event.key for event in events] == [1, 0]
    assert events[0].request_id == events[1].request_id


def test_a_server_that_ends_leaves_nothing_unsealed_and_one_that_is_killed_is_cleared_up_after(
    tmp_path: Path,
) -> None:
    database = f"sqlite:///{tmp_path}/kcache.sqlite"

    def chains() -> list[Chain]:
        with open_store(database) as store:
            return Verification(store).all(overdue=2**62)

    for number, end in ((3, signal.SIGTERM), (4, signal.SIGKILL)):
        with process(tmp_path) as (child, address), grpc.insecure_channel(address) as channel:
            stub = kernel_cache_pb2_grpc.KernelCacheStub(channel)
            stub.StoreGraph(kernel_cache_pb2.StoreGraphRequest(header=header(), graph=inline(add(number))))
            child.send_signal(end)
            child.wait(240)
        assert not [finding for chain in chains() for finding in chain.findings]
        assert sum(chain.unsealed for chain in chains()) == (end == signal.SIGKILL)
    with open_store(database) as store:
        sealer = Sealer(store, Signer.from_file(tmp_path / "state" / "signing.key"))
        assert sealer.adopt(before=2**62) == 1
    assert [finding for chain in chains() for finding in chain.findings] == []
    assert sum(chain.unsealed for chain in chains()) == 1  # the event that tells of it
