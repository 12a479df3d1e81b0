"""The Admin service: who may, what it does, and that servers notice within their window."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf import duration_pb2

from kcache_grpc._proto.kcache.v1 import admin_pb2 as pb
from kcache_grpc._proto.kcache.v1 import admin_pb2_grpc
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as kc
from kcache_grpc.server import ServerConfig
from kcache_grpc.storage import open_store
from tests.server.harness import idle_jobs
from tests.server.harness.programs import add, compile_request, header, inline, kernels_request, result_of
from tests.server.harness.running import Running, config_in, running
from tests.storage.inside import tamper

#: The window, and a busy machine.
WINDOW = 1.0
TIMEOUT = 120.0


def admin(server: Running) -> Any:
    return admin_pb2_grpc.AdminStub(server.channel)


def on_socket(folder: Path, **changes: Any) -> ServerConfig:
    """Its one address is a Unix socket: without a token, Admin is served nowhere else."""
    return config_in(folder, listen=(), socket=folder / "run" / "s", **changes)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(on_socket(tmp_path_factory.mktemp("server"))) as server:
        yield server


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that evicts whatever is not in use now."""
    with running(on_socket(tmp_path_factory.mktemp("eager"), evict_min_age=0.0)) as server:
        yield server


def compiled(server: Running, rows: int, namespace: str) -> Any:
    return result_of(server.stub.CompileKernel(compile_request(inline(add(rows)), namespace)))


def status_of(server: Running, rows: int, namespace: str) -> int:
    replies = server.stub.GetKernels(kernels_request([add(rows)], namespace, artifact_kinds=[1]))
    return next(result.status for reply in replies for result in reply.results)


def within_window(happened: Callable[[], bool]) -> None:
    """It happens a second after it was caused at the latest, or later on a busy machine."""
    deadline = time.monotonic() + TIMEOUT
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code().name


@pytest.mark.parametrize("seconds", [-1, 2**62])
def test_ages_that_are_none_are_rejected(server: Running, seconds: int) -> None:
    age = duration_pb2.Duration(seconds=seconds)
    for request in (pb.CollectRequest(older_than=age), pb.CollectRequest(min_age=age)):
        assert code_of(lambda request=request: list(admin(server).Collect(request))) == "INVALID_ARGUMENT"


def test_quotas_are_set_listed_and_taken_away(server: Running) -> None:
    request = pb.SetQuotaRequest(header=header("quotas"), resource=pb.QUOTA_RESOURCE_KERNELS, most=5)
    quota = admin(server).SetQuota(request).quota
    assert (quota.most, quota.used, quota.policy) == (5, 0, pb.QUOTA_POLICY_EVICT)
    specs = pb.SetQuotaRequest(header=header("quotas"), resource=pb.QUOTA_RESOURCE_SPECS, most=9)
    assert admin(server).SetQuota(specs).quota.policy == pb.QUOTA_POLICY_REFUSE
    listed = admin(server).ListQuotas(pb.ListQuotasRequest(header=header("quotas"))).quotas
    assert {each.resource for each in listed} == {pb.QUOTA_RESOURCE_KERNELS, pb.QUOTA_RESOURCE_SPECS}
    policy: Any = 77
    strange = pb.SetQuotaRequest(
        header=header("quotas"), resource=pb.QUOTA_RESOURCE_KERNELS, most=5, policy=policy
    )
    assert code_of(lambda: admin(server).SetQuota(strange)) == "INVALID_ARGUMENT"
    request.ClearField("most")
    assert not admin(server).SetQuota(request).HasField("quota")
    assert code_of(lambda: admin(server).SetQuota(pb.SetQuotaRequest())) == "INVALID_ARGUMENT"


def test_a_full_namespace_rejects_by_name_and_serves_what_it_has(server: Running) -> None:
    compiled(server, 20, "full")
    limit = pb.SetQuotaRequest(
        header=header("full"),
        resource=pb.QUOTA_RESOURCE_KERNELS,
        most=1,
        policy=pb.QUOTA_POLICY_REFUSE,
    )
    admin(server).SetQuota(limit)
    with pytest.raises(grpc.RpcError) as caught:
        compiled(server, 21, "full")
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "kcache quota set full kernels" in str(caught.value)
    assert compiled(server, 20, "full").origin == kc.ORIGIN_STORED
    assert status_of(server, 20, "full") == kc.KERNEL_STATUS_FOUND


def test_a_full_namespace_that_evicts_makes_room(eager: Running) -> None:
    for resource in (pb.QUOTA_RESOURCE_KERNELS, pb.QUOTA_RESOURCE_MAPPINGS):
        admin(eager).SetQuota(pb.SetQuotaRequest(header=header("lru"), resource=resource, most=2))
    for rows in (30, 31, 32):
        assert compiled(eager, rows, "lru").origin == kc.ORIGIN_COMPILED
    within_window(lambda: status_of(eager, 30, "lru") == kc.KERNEL_STATUS_NEED_PROGRAM)
    assert [status_of(eager, rows, "lru") for rows in (31, 32)] == [kc.KERNEL_STATUS_FOUND] * 2
    assert compiled(eager, 30, "lru").key == 1


def test_an_evicted_kernel_is_gone_from_memory_within_the_window(eager: Running) -> None:
    compiled(eager, 40, "collect")
    assert status_of(eager, 40, "collect") == kc.KERNEL_STATUS_FOUND
    request = pb.CollectRequest(
        header=header("collect"), older_than=duration_pb2.Duration(), min_age=duration_pb2.Duration()
    )
    done = list(admin(eager).Collect(request))[-1]
    assert done.done
    assert done.rows["idle_kernels"] == 1
    assert done.blobs > 0
    within_window(lambda: status_of(eager, 40, "collect") != kc.KERNEL_STATUS_FOUND)
    assert compiled(eager, 40, "collect").origin == kc.ORIGIN_COMPILED


def test_a_dry_run_removes_nothing(eager: Running) -> None:
    compiled(eager, 41, "dry")
    zero = duration_pb2.Duration()
    request = pb.CollectRequest(header=header("dry"), dry_run=True, older_than=zero, min_age=zero)
    assert list(admin(eager).Collect(request))[-1].rows["idle_kernels"] == 1
    assert compiled(eager, 41, "dry").origin == kc.ORIGIN_STORED


def test_what_another_process_removes_is_noticed(eager: Running) -> None:
    compiled(eager, 42, "beside")
    assert status_of(eager, 42, "beside") == kc.KERNEL_STATUS_FOUND
    with open_store(eager.config.db) as store:
        namespace = store.find_namespace("beside")
        assert namespace is not None
        kernel = store.page_kernels(namespace, 0, 1)[0]
        store.quarantine_artifact(namespace, kernel.artifacts[0].digest, "test")
    within_window(lambda: status_of(eager, 42, "beside") != kc.KERNEL_STATUS_FOUND)
    assert compiled(eager, 42, "beside").origin == kc.ORIGIN_COMPILED
    assert status_of(eager, 42, "beside") == kc.KERNEL_STATUS_FOUND


def test_a_raised_epoch_disowns_at_once_here(server: Running) -> None:
    compiled(server, 43, "epochs")
    request = pb.RaiseEpochRequest(header=header("epochs"), reason="a test")
    assert admin(server).RaiseEpoch(request).epoch == 2
    assert status_of(server, 43, "epochs") == kc.KERNEL_STATUS_NEED_PROGRAM
    assert compiled(server, 43, "epochs").key == 1


def test_kernels_of_a_disowned_toolchain_are_not_served(server: Running) -> None:
    compiled(server, 44, "disowned")
    state = server.stub.GetCapabilities(kc.GetCapabilitiesRequest(header=header("disowned")))
    request = pb.DisownToolchainRequest(
        header=header("disowned"), toolchain_digest=state.toolchain_digest, reason="miscompiles"
    )
    assert admin(server).DisownToolchain(request).changed
    assert not admin(server).DisownToolchain(request).changed
    assert code_of(lambda: status_of(server, 44, "disowned")) == "PERMISSION_DENIED"
    assert code_of(lambda: compiled(server, 45, "disowned")) == "PERMISSION_DENIED"
    state = server.stub.GetCapabilities(kc.GetCapabilitiesRequest(header=header("disowned")))
    assert state.toolchain_disowned
    # Keys, and other namespaces, are not concerned.
    count = server.stub.CountSpecs(kc.CountSpecsRequest(header=header("disowned"))).count
    assert count == 1
    assert compiled(server, 44, "elsewhere").key == 1
    request.undo = True
    assert admin(server).DisownToolchain(request).changed
    assert status_of(server, 44, "disowned") == kc.KERNEL_STATUS_FOUND


def test_another_server_notices_a_disowned_toolchain_within_the_window(tmp_path: Path) -> None:
    with running(on_socket(tmp_path)) as first, running(config_in(tmp_path)) as two:
        compiled(first, 46, "default")
        assert status_of(two, 46, "default") == kc.KERNEL_STATUS_FOUND
        state = first.stub.GetCapabilities(kc.GetCapabilitiesRequest())
        admin(first).DisownToolchain(pb.DisownToolchainRequest(toolchain_digest=state.toolchain_digest))
        began = time.monotonic()
        while True:
            asked = time.monotonic()
            try:
                status_of(two, 46, "default")
            except grpc.RpcError as error:
                rejected = error.code().name
                break
            # Whoever asks after the window is rejected: no answer of a later question is a kernel.
            assert asked - began < WINDOW
            time.sleep(0.02)
        assert rejected == "PERMISSION_DENIED"


def test_pins_keep_from_eviction_and_are_listed(eager: Running) -> None:
    compiled(eager, 47, "pins")
    with open_store(eager.config.db) as store:
        namespace = store.find_namespace("pins")
        assert namespace is not None
        digest = store.page_kernels(namespace, 0, 1)[0].kernel.kernel_digest
    pin = pb.PinRequest(header=header("pins"), subject=pb.PIN_SUBJECT_KERNEL, digest=digest, reason="golden")
    assert admin(eager).Pin(pin).created
    zero = duration_pb2.Duration()
    done = list(admin(eager).Collect(pb.CollectRequest(header=header("pins"), older_than=zero, min_age=zero)))
    assert done[-1].rows["idle_kernels"] == 0
    listed = admin(eager).ListPins(pb.ListPinsRequest(header=header("pins"))).pins
    assert [(each.digest, each.reason) for each in listed] == [(digest, "golden")]
    unpin = pb.UnpinRequest(header=header("pins"), subject=pb.PIN_SUBJECT_KERNEL, digest=digest)
    assert admin(eager).Unpin(unpin).removed
    pin.digest = b"short"
    assert code_of(lambda: admin(eager).Pin(pin)) == "INVALID_ARGUMENT"


def test_verify_finds_nothing_wrong_then_what_was_edited(tmp_path: Path) -> None:
    with running(on_socket(tmp_path)) as server:
        for rows in (48, 49):
            compiled(server, rows, "default")
        request = pb.VerifyRequest(all=True)
        (counts,) = [event.counts for event in admin(server).Verify(request)]
        assert (counts.kernels, counts.compiled, counts.mappings, counts.faults) == (2, 2, 2, 0)
        assert counts.blobs > 0
    other = hashlib.sha256(b"x").hexdigest()
    tamper(
        tmp_path / "kcache.sqlite",
        "UPDATE kernels SET manifest = substr(manifest, 2) WHERE id = 1",
        f"UPDATE graph_mappings SET signature = x'{other}{other}' WHERE id = 2",
    )
    with running(on_socket(tmp_path)) as server:
        events = list(admin(server).Verify(request))
        faults = [(event.fault.subject, event.fault.action) for event in events[:-1]]
        assert [subject for subject, _ in faults] == ["kernel", "mapping"]
        assert events[-1].counts.faults == 2
        assert all(action.startswith("left;") for _, action in faults)
        request.repair = True
        *_, last = admin(server).Verify(request)
        assert (last.counts.repaired, last.counts.withheld) == (0, True)
        request.confirm_implausible = True
        *_, last = admin(server).Verify(request)
        assert (last.counts.repaired, last.counts.withheld) == (2, False)
        assert [event.WhichOneof("event") for event in admin(server).Verify(request)] == ["counts"]
        for rows in (48, 49):
            assert compiled(server, rows, "default").key == 1


def test_everything_is_in_the_audit_log(server: Running) -> None:
    admin(server).RaiseEpoch(pb.RaiseEpochRequest(header=header("logged"), reason="for the log"))
    with open_store(server.config.db) as store:
        namespace = store.find_namespace("logged")
        assert namespace is not None
        events = [record.event for record in store.list_audit(namespace)]
    (event,) = [each for each in events if each.kind == "admin"]
    assert (event.outcome, event.actor) == ("epoch", "test/1")
    assert "for the log" in event.detail
    assert event.peer.startswith("unix:")


def test_a_token_is_asked_for_where_there_is_one(tmp_path: Path) -> None:
    with running(config_in(tmp_path, token="secret")) as server:
        request = pb.ListQuotasRequest()
        assert code_of(lambda: admin(server).ListQuotas(request)) == "PERMISSION_DENIED"
        metadata = (("authorization", "Bearer secret"),)
        assert not admin(server).ListQuotas(request, metadata=metadata).quotas


@pytest.mark.issue(number=19, point=15)
def test_without_a_token_tcp_does_not_administer(tmp_path: Path) -> None:
    """Any local user reaches a loopback address: Admin is on the Unix socket only."""
    socket = tmp_path / "run" / "s"
    with running(config_in(tmp_path, worker=idle_jobs.settings(), socket=socket)) as server:
        assert server.address.startswith("127.0.0.1:")
        calls: tuple[Callable[[Any], Any], ...] = (
            lambda stub: stub.RaiseEpoch(pb.RaiseEpochRequest()),
            lambda stub: stub.ListQuotas(pb.ListQuotasRequest()),
            lambda stub: list(stub.Collect(pb.CollectRequest(dry_run=True))),
            lambda stub: list(stub.Verify(pb.VerifyRequest())),
        )
        for call in calls:
            with pytest.raises(grpc.RpcError) as caught:
                call(admin(server))
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert "Unix socket" in str(caught.value)
            assert "--token-file" in str(caught.value)
        with grpc.insecure_channel(f"unix:{socket}") as channel:
            stub: Any = admin_pb2_grpc.AdminStub(channel)
            assert stub.RaiseEpoch(pb.RaiseEpochRequest()).epoch == 2


@pytest.mark.issue(number=19, point=15)
def test_only_the_socket_may_without_a_token() -> None:
    """The rule itself: no second machine is to be had in a test."""
    from kcache_grpc.errors import PermissionDenied
    from kcache_grpc.server.servicers.admin import AdminServicer
    from kcache_grpc.service.values import ANONYMOUS, LOCAL, SHARED, Caller, Principal

    def context(peer: str, principal: Principal = LOCAL) -> Any:
        return SimpleNamespace(caller=lambda header: Caller(peer=peer, principal=principal))

    nobody: Any = None
    local, authenticated = (
        AdminServicer(nobody, authenticated=False),
        AdminServicer(nobody, authenticated=True),
    )
    for peer in ("unix:", "unix:/run/k.sock"):
        assert local._caller(header(), context(peer)).peer == peer
    for peer in ("ipv4:127.0.0.1:7", "ipv6:[::1]:7", "ipv6:%5B::1%5D:7", "ipv4:10.0.0.7:7", ""):
        with pytest.raises(PermissionDenied):
            local._caller(header(), context(peer))
        for principal in (SHARED, Principal("root", "admin")):
            assert authenticated._caller(header(), context(peer, principal)).peer == peer
        for principal in (LOCAL, ANONYMOUS, Principal("trainer", "writer")):
            with pytest.raises(PermissionDenied):
                authenticated._caller(header(), context(peer, principal))
