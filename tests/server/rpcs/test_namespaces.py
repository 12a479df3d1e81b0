"""Namespaces are created by the first write in them, and not by whoever names them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from kcache_grpc._proto.kcache.v1 import admin_pb2, admin_pb2_grpc, audit_pb2, audit_pb2_grpc, common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.service.values import Limits
from kcache_grpc.storage import open_store
from kcache_grpc.storage.errors import TooManyNamespaces
from tests.fresh import fresh_store
from tests.postgres import PostgresServer
from tests.server.harness.programs import (
    TARGET,
    add,
    by_digest,
    compile_request,
    header,
    inline,
    kernels_request,
    result_of,
)
from tests.server.harness.running import Running, config_in, running
from tests.server.rpcs.test_errors import info_of

pytestmark = pytest.mark.issue(number=19, point=13)

MOST = 3
KERNELS, KERNEL = admin_pb2.QUOTA_RESOURCE_KERNELS, admin_pb2.PIN_SUBJECT_KERNEL
STABLEHLO = common_pb2.PROGRAM_FORMAT_STABLEHLO


@contextmanager
def empty_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        file = tmp_path_factory.mktemp("store") / "kcache.sqlite"
        fresh_store(file)
        yield f"sqlite:///{file}"
        return
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    url = postgres.create_migrated()
    yield url
    postgres.drop(url)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with empty_store(request, tmp_path_factory) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def own_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store of one test."""
    with empty_store(request, tmp_path_factory) as url:
        yield url


@pytest.fixture(scope="module")
def server(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """On the socket: the Admin service is there too."""
    folder = tmp_path_factory.mktemp("server")
    limits = Limits(namespaces=MOST)
    with running(
        config_in(folder, db=store_url, listen=(), socket=folder / "run" / "s", limits=limits)
    ) as server:
        yield server


def stored(server: Running) -> list[str]:
    with open_store(server.config.db) as store:
        return [each.name for each in store.list_namespaces()]


def reads(server: Running, namespace: str) -> list[Callable[[], Any]]:
    stub, who = server.stub, header(namespace)
    admin: Any = admin_pb2_grpc.AdminStub(server.channel)
    audit: Any = audit_pb2_grpc.AuditStub(server.channel)
    graph = inline(add(4))
    return [
        lambda: stub.GetStats(pb.GetStatsRequest(header=who)),
        lambda: stub.GetCapabilities(pb.GetCapabilitiesRequest(header=who)),
        lambda: stub.CountSpecs(pb.CountSpecsRequest(header=who)),
        lambda: list(stub.GetKernels(kernels_request([add(4)], namespace))),
        lambda: list(stub.NormalizeGraph(pb.NormalizeGraphRequest(header=who, graph=graph))),
        lambda: stub.LookupGraph(pb.LookupGraphRequest(header=who, graph=graph)),
        lambda: stub.GetUpload(pb.GetUploadRequest(header=who, program_digest=bytes(32))),
        lambda: audit.ListEvents(audit_pb2.ListEventsRequest(header=who)),
        lambda: admin.ListQuotas(admin_pb2.ListQuotasRequest(header=who)),
        lambda: admin.ListPins(admin_pb2.ListPinsRequest(header=who)),
        lambda: list(admin.Collect(admin_pb2.CollectRequest(header=who))),
        lambda: list(admin.Verify(admin_pb2.VerifyRequest(header=who))),
        lambda: admin.SetQuota(admin_pb2.SetQuotaRequest(header=who, resource=KERNELS)),
        lambda: admin.Unpin(admin_pb2.UnpinRequest(header=who, subject=KERNEL, digest=bytes(32))),
        lambda: admin.DisownToolchain(
            admin_pb2.DisownToolchainRequest(header=who, toolchain_digest=bytes(32), undo=True)
        ),
    ]


def rejections(server: Running, namespace: str) -> list[Callable[[], Any]]:
    stub, who = server.stub, header(namespace)
    admin: Any = admin_pb2_grpc.AdminStub(server.channel)
    return [
        lambda: list(stub.CompileKernel(compile_request(inline(b"module {"), namespace))),
        lambda: list(stub.CompileKernel(compile_request(by_digest(add(5)), namespace))),
        lambda: list(stub.CompileKernel(compile_request(inline(bytes(4 << 20)), namespace))),
        lambda: stub.StoreGraph(pb.StoreGraphRequest(header=who, graph=inline(b"noise"))),
        lambda: list(stub.GetSpec(pb.GetSpecRequest(header=who, key=1))),
        lambda: stub.ListKernels(pb.ListKernelsRequest(header=who, key=1)),
        lambda: list(stub.ReadArtifact(pb.ReadArtifactRequest(header=who, sha256=bytes(32)))),
        lambda: list(
            stub.GetKernels(pb.GetKernelsRequest(header=who, target=TARGET, queries=[pb.KernelQuery()]))
        ),
        lambda: stub.UploadProgram(
            iter(
                [
                    pb.UploadProgramRequest(
                        header=who, format=STABLEHLO, size_bytes=1, program_digest=bytes(32), data=b"x"
                    )
                ]
            )
        ),
        lambda: admin.Pin(admin_pb2.PinRequest(header=who, subject=KERNEL, digest=b"short")),
        lambda: admin.DisownToolchain(
            admin_pb2.DisownToolchainRequest(header=who, toolchain_digest=b"short")
        ),
    ]


def test_reading_and_rejected_requests_create_no_namespace(server: Running) -> None:
    before = stored(server)
    for number, call in enumerate(reads(server, "read")):
        call()
        assert stored(server) == before, number
    for number, call in enumerate(rejections(server, "rejected")):
        with pytest.raises(grpc.RpcError):
            call()
        assert stored(server) == before, number


def test_a_namespace_that_is_not_stored_is_an_empty_one(server: Running) -> None:
    request = pb.GetStatsRequest(header=header("empty"))
    stats = server.stub.GetStats(request)
    assert (stats.specs, stats.kernels, stats.hits, stats.audit_events) == (0, 0, 0, 0)
    state = server.stub.GetCapabilities(pb.GetCapabilitiesRequest(header=header("empty")))
    assert state.epoch == 1
    (reply,) = server.stub.GetKernels(kernels_request([add(4)], "empty"))
    assert reply.results[0].status == pb.KERNEL_STATUS_NEED_PROGRAM


def test_the_first_write_creates_it_and_the_limit_is_an_error(server: Running) -> None:
    """What was asked before the first write is in its audit log too."""
    list(server.stub.GetKernels(kernels_request([add(4)], "written")))
    assert "written" not in stored(server)
    request = compile_request(inline(add(4)), "written")
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: result_of(server.stub.CompileKernel(request)), range(4)))
    assert {result.key for result in results} == {1}
    assert stored(server).count("written") == 1
    (reply,) = server.stub.GetKernels(kernels_request([add(4)], "written"))
    assert reply.results[0].status == pb.KERNEL_STATUS_FOUND
    stats = server.stub.GetStats(pb.GetStatsRequest(header=header("written")))
    assert (stats.specs, stats.kernels, stats.hits) == (1, 1, 4)
    with open_store(server.config.db) as store:
        namespace = store.find_namespace("written")
        assert namespace is not None
        kinds = {record.event.kind: record.event.outcome for record in store.list_audit(namespace)}
    assert kinds["miss"] == "need_program"

    admin: Any = admin_pb2_grpc.AdminStub(server.channel)
    pin = admin_pb2.PinRequest(header=header("pinned"), subject=KERNEL, digest=hashlib.sha256().digest())
    assert admin.Pin(pin).created
    epoch = admin_pb2.RaiseEpochRequest(header=header("raised"))
    assert admin.RaiseEpoch(epoch).epoch == 2
    assert len(stored(server)) == MOST

    for call in (
        lambda: result_of(server.stub.CompileKernel(compile_request(inline(add(4)), "another"))),
        lambda: server.stub.StoreGraph(pb.StoreGraphRequest(header=header("another"), graph=inline(add(4)))),
        lambda: admin.RaiseEpoch(admin_pb2.RaiseEpochRequest(header=header("another"))),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert info_of(caught.value).metadata["limit"] == "max_namespaces"
        assert "KCACHE_MAX_NAMESPACES" in str(caught.value)
    assert len(stored(server)) == MOST
    # Those that are there go on.
    assert result_of(server.stub.CompileKernel(compile_request(inline(add(5)), "written"))).key == 1


def test_many_at_once_do_not_pass_the_limit(own_url: str) -> None:
    with open_store(own_url) as first, open_store(own_url) as two, ThreadPoolExecutor(8) as threads:
        most = len(first.list_namespaces()) + 5

        def create(number: int) -> bool:
            try:
                (first, two)[number % 2].get_or_create_namespace(f"many-{number}", most)
            except TooManyNamespaces:
                return False
            return True

        assert sum(threads.map(create, range(40))) == 5
        assert len(first.list_namespaces()) == most
        # Without a limit, as for the commands of operators on the store itself.
        assert two.get_or_create_namespace("many-more").is_stored
