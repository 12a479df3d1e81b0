"""``SourceAssertions`` over gRPC: who trusts whom, limits, quarantine, audit, counters, quotas."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

import kcache_grpc as kcache
from kcache_grpc._proto.kcache.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    bundles_pb2,
    bundles_pb2_grpc,
    common_pb2,
    kernel_cache_pb2,
    kernel_cache_pb2_grpc,
    source_assertions_pb2_grpc,
)
from kcache_grpc._proto.kcache.v1 import source_assertions_pb2 as pb
from kcache_grpc.errors import ArgumentError
from kcache_grpc.server.principals import read_principals
from kcache_grpc.service.audit.proof import Verification
from kcache_grpc.service.values import Limits, Principal
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.contract.lifecycle import EVICT, REFUSE
from tests.postgres import PostgresServer
from tests.server.harness.running import Running, config_in, running

_NAMES = itertools.count()
PEOPLE = {"alice": "dev", "mallory": "dev", "ci-1": "ci", "ci-2": "ci", "root": "admin", "guest": "-"}


def sha(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def principals_file(folder: Path) -> Path:
    lines = [f"{name} {role} {sha(f'token of {name}').hex()}  # one" for name, role in PEOPLE.items()]
    path = folder / "principals"
    path.write_text("\n".join(["# who", "", *lines]) + "\n")
    return path


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("assertions")
    changes = {} if request.param == "sqlite" else {"db": postgres_server.create_migrated()}
    config = config_in(
        folder,
        evict_min_age=0.0,
        token="shared",
        principals=principals_file(folder),
        limits=Limits(assertion_bytes=1 << 20, queries=5),
        **changes,
    )
    with running(config) as server:
        yield server


@pytest.fixture
def store(server: Running) -> Iterator[Store]:
    with open_store(server.config.db) as store:
        yield store


class Calls:
    """Calls of one principal in one namespace, from stubs alone. The header names somebody else."""

    def __init__(self, channel: grpc.Channel, namespace: str, token: str) -> None:
        self.stub: Any = source_assertions_pb2_grpc.SourceAssertionsStub(channel)
        self.admin: Any = admin_pb2_grpc.AdminStub(channel)
        self.bundles: Any = bundles_pb2_grpc.BundlesStub(channel)
        self.cache: Any = kernel_cache_pb2_grpc.KernelCacheStub(channel)
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.header = common_pb2.RequestHeader(namespace=namespace, actor="alice", job="job")

    def get(self, *sources: bytes) -> dict[bytes, pb.SourceAssertion]:
        request = pb.GetAssertionsRequest(header=self.header, source_digests=sources)
        received: dict[bytes, pb.SourceAssertion] = {}
        for reply in self.stub.GetAssertions(request, metadata=self.metadata):
            assert reply.ByteSize() < 4 << 20
            for assertion in reply.assertions:
                assert sources[assertion.index] == assertion.source_digest
                received[assertion.source_digest] = assertion
        return received

    def actor_of(self, source: str) -> str | None:
        assertion = self.get(sha(source)).get(sha(source))
        return assertion.actor if assertion is not None else None

    def put(self, source: str, record: str = "{}", **fields: Any) -> pb.PutAssertionResponse:
        request = pb.PutAssertionRequest(
            header=self.header, source_digest=sha(source), record=record.encode(), **fields
        )
        reply: pb.PutAssertionResponse = self.stub.PutAssertion(request, metadata=self.metadata)
        return reply

    def dispute(self, source: str, record: str, observed: str = "other", reason: str = "") -> int:
        request = pb.DisputeAssertionRequest(
            header=self.header,
            source_digest=sha(source),
            record_digest=sha(record),
            observed_digest=sha(observed),
            reason=reason,
        )
        return self.stub.DisputeAssertion(request, metadata=self.metadata).quarantined

    def trust(self, *roles: str) -> bool:
        request = admin_pb2.SetTrustedRolesRequest(header=self.header, roles=roles)
        return self.admin.SetTrustedRoles(request, metadata=self.metadata).changed

    def stats(self) -> kernel_cache_pb2.GetStatsResponse:
        request = kernel_cache_pb2.GetStatsRequest(header=self.header)
        reply: kernel_cache_pb2.GetStatsResponse = self.cache.GetStats(request, metadata=self.metadata)
        return reply


As = Callable[[str], Calls]


@pytest.fixture
def as_(server: Running) -> As:
    """Calls of a principal; of nobody with a name that has no token."""
    namespace = f"assertions-{next(_NAMES)}"

    def calls(name: str) -> Calls:
        token = {"shared": "shared", "": ""}.get(name, f"token of {name}")
        return Calls(server.channel, namespace, token)

    return calls


def error_of(call: Callable[[], Any]) -> tuple[str, str]:
    """Code and text of the error that ``call`` ends with."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code().name, error.details()


def events(store: Store, namespace: str) -> list[tuple[str, str, dict[str, Any]]]:
    space = store.find_namespace(namespace)
    assert space is not None
    return [
        (record.event.kind, record.event.outcome, json.loads(record.event.detail))
        for record in store.list_audit(space, 0, 1000)
        if record.event.kind.startswith("assertion")
    ]


def test_an_actor_gets_back_what_it_asserted(as_: As) -> None:
    alice = as_("alice")
    assert alice.get(sha("a")) == {}
    reply = alice.put("a", '{"ü": 1}', programs=[sha("p1"), sha("p2")], toolchain="torch 2.13")
    assert (reply.inserted, reply.quarantined, reply.assertion.record) == (True, False, b"")
    assertion = alice.get(sha("other"), sha("a"))[sha("a")]
    assert (assertion.actor, assertion.role, assertion.toolchain) == ("alice", "dev", "torch 2.13")
    assert (assertion.record, assertion.record_digest) == ('{"ü": 1}'.encode(), sha('{"ü": 1}'))
    assert list(assertion.programs) == [sha("p1"), sha("p2")]
    assert assertion.create_time.seconds > 0


def test_the_name_in_the_header_gives_no_access(as_: As) -> None:
    """Every caller here says that it is alice."""
    mallory, alice = as_("mallory"), as_("alice")
    assert mallory.put("a", "wrong").assertion.actor == "mallory"
    assert alice.actor_of("a") is None
    assert as_("shared").actor_of("a") is None
    assert alice.put("a", "right").inserted
    assert alice.actor_of("a") == "alice"
    assert mallory.actor_of("a") == "mallory"


@pytest.mark.parametrize("name", ["", "nobody"])
def test_nobody_without_a_token_is_answered(as_: As, name: str) -> None:
    assert error_of(lambda: as_(name).put("a"))[0] == "PERMISSION_DENIED"
    assert error_of(lambda: as_(name).get(sha("a")))[0] == "PERMISSION_DENIED"


def test_all_who_share_a_token_are_one_actor(as_: As) -> None:
    assert as_("shared").put("a").assertion.actor == "token"
    assert as_("shared").actor_of("a") == "token"
    assert as_("alice").actor_of("a") is None


def test_assertions_of_trusted_roles_are_trusted_oldest_first_after_ones_own(as_: As) -> None:
    as_("mallory").put("a", "of mallory")
    as_("ci-2").put("a", "of ci-2")
    as_("ci-1").put("a", "of ci-1")
    assert as_("alice").actor_of("a") is None
    assert as_("root").trust("ci") is True
    assert as_("shared").trust("ci") is False
    assert as_("alice").actor_of("a") == "ci-2"
    assert as_("guest").actor_of("a") == "ci-2"
    assert as_("ci-1").actor_of("a") == "ci-1"
    as_("alice").put("a", "of alice")
    assert as_("alice").actor_of("a") == "alice"
    assert as_("root").trust() is True
    assert as_("guest").actor_of("a") is None


@pytest.mark.parametrize("name", ["alice", "ci-1", "guest"])
def test_a_role_cannot_make_itself_trusted(as_: As, name: str) -> None:
    code, text = error_of(lambda: as_(name).trust(PEOPLE[name]))
    assert (code, "admin" in text) == ("PERMISSION_DENIED", True)
    calls = as_(name)
    bundle = iter([bundles_pb2.ImportBundleRequest(header=calls.header)])
    assert error_of(lambda: list(calls.bundles.ImportBundle(bundle, metadata=calls.metadata)))[0] == (
        "PERMISSION_DENIED"
    )


@pytest.mark.parametrize("roles", [("CI",), ("",), ("a b",), tuple(f"r{number}" for number in range(33))])
def test_roles_that_are_none_are_rejected(as_: As, roles: tuple[str, ...]) -> None:
    assert error_of(lambda: as_("root").trust(*roles))[0] == "INVALID_ARGUMENT"


def test_the_first_record_stays_and_the_winner_is_returned(as_: As, store: Store) -> None:
    alice = as_("alice")
    assert alice.put("a", "first", programs=[sha("p")]).inserted
    again = alice.put("a", "first")
    assert (again.inserted, again.assertion.record) == (False, b"")
    lost = alice.put("a", "second", programs=[sha("q")])
    assert (lost.inserted, lost.assertion.record) == (False, b"first")
    assert list(lost.assertion.programs) == [sha("p")]
    assert alice.get(sha("a"))[sha("a")].record == b"first"
    stats = alice.stats()
    assert (stats.assertions, stats.assertion_bytes, stats.assertion_conflicts) == (1, 5 + 32, 1)
    puts = [each for each in events(store, alice.header.namespace) if each[0] == "assertion_put"]
    assert [outcome for _, outcome, _ in puts] == ["inserted", "known", "conflict"]
    assert puts[2][2]["offered"] == sha("second").hex()
    assert puts[2][2]["principal"] == "alice"


def test_eight_clients_that_assert_at_once_have_one_winner(as_: As) -> None:
    for turn in range(5):
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda n, turn=turn: as_("alice").put(f"s{turn}", f"{n}"), range(8)))
        assert sum(reply.inserted for reply in replies) == 1
        assert len({reply.assertion.record_digest for reply in replies}) == 1
    assert as_("alice").stats().assertion_conflicts == 35


def test_a_disputed_assertion_is_returned_to_nobody(as_: As, store: Store) -> None:
    as_("root").trust("ci")
    as_("ci-1").put("a", "wrong")
    as_("ci-2").put("a", "right")
    assert as_("guest").actor_of("a") == "ci-1"
    assert as_("alice").dispute("a", "wrong", "right", "two programs") == 1
    assert as_("guest").dispute("a", "wrong", "right") == 0
    assert {as_(name).actor_of("a") for name in ("guest", "alice", "ci-1", "ci-2")} == {"ci-2"}
    again = as_("ci-1").put("a", "wrong")
    assert (again.inserted, again.quarantined) == (False, True)
    assert as_("alice").stats().assertions_quarantined == 1
    space = store.find_namespace(as_("alice").header.namespace)
    assert space is not None
    (dispute,) = store.list_disputes(space)
    assert (dispute.actor, dispute.disputed_by, dispute.reason) == ("ci-1", "alice", "two programs")
    (first, second) = (each for each in events(store, space.name) if each[0] == "assertion_dispute")
    assert (first[1], first[2]["actors"], first[2]["observed"]) == (
        "quarantined",
        ["ci-1"],
        sha("right").hex(),
    )
    assert second[1] == "known"


def test_what_a_caller_is_not_given_it_cannot_dispute(as_: As) -> None:
    as_("ci-1").put("a", "right")
    assert error_of(lambda: as_("mallory").dispute("a", "right"))[0] == "NOT_FOUND"
    assert error_of(lambda: as_("ci-1").dispute("a", "another"))[0] == "NOT_FOUND"
    assert error_of(lambda: as_("ci-1").dispute("a", "right", "right"))[0] == "INVALID_ARGUMENT"
    assert as_("ci-1").actor_of("a") == "ci-1"


def test_a_raised_epoch_disowns_assertions(as_: As) -> None:
    as_("alice").put("a", "first")
    root = as_("root")
    root.admin.RaiseEpoch(admin_pb2.RaiseEpochRequest(header=root.header), metadata=root.metadata)
    assert as_("alice").actor_of("a") is None
    assert as_("alice").put("a", "second").inserted


def test_limits(as_: As) -> None:
    alice = as_("alice")
    request = kernel_cache_pb2.GetCapabilitiesRequest(header=alice.header)
    limits = alice.cache.GetCapabilities(request, metadata=alice.metadata).limits
    assert limits.max_assertion_bytes == 1 << 20
    assert alice.put("a", "r" * (1 << 20)).inserted
    assert error_of(lambda: alice.put("b", "r" * (1 << 20) + "r")) == (
        "RESOURCE_EXHAUSTED",
        f"the record has {(1 << 20) + 1} bytes; one has at most {1 << 20}",
    )
    rejected: tuple[dict[str, Any], ...] = (
        {"record": ""},
        {"programs": [b"short"]},
        {"programs": [sha("p")] * 4097},
        {"toolchain": "t" * 4097},
        {"toolchain": "a\0b"},
    )
    for wrong in rejected:
        assert error_of(lambda wrong=wrong: alice.put("b", **wrong))[0] == "INVALID_ARGUMENT"
    assert alice.put("b", programs=[sha("p")] * 4096, toolchain="t" * 4096).inserted
    assert error_of(lambda: alice.get(b"short"))[0] == "INVALID_ARGUMENT"
    assert error_of(lambda: alice.get(sha("a"), sha("a")))[0] == "INVALID_ARGUMENT"
    assert error_of(lambda: alice.get(*(sha(str(number)) for number in range(6))))[0] == "RESOURCE_EXHAUSTED"
    assert error_of(lambda: alice.dispute("a", "x", reason="r" * 801))[0] == "INVALID_ARGUMENT"
    for digest in (b"", bytes(31)):
        request = pb.PutAssertionRequest(header=alice.header, source_digest=digest, record=b"{}")
        assert error_of(lambda r=request: alice.stub.PutAssertion(r, metadata=alice.metadata))[0] == (
            "INVALID_ARGUMENT"
        )


def test_many_large_records_come_in_several_messages(as_: As) -> None:
    alice = as_("alice")
    records = {name: name * (1 << 20) for name in "abcde"}
    for name, record in records.items():
        alice.put(name, record)
    received = alice.get(*map(sha, "edcba"))
    assert {source: row.record for source, row in received.items()} == {
        sha(name): record.encode() for name, record in records.items()
    }


def test_a_quota_of_bytes_evicts_or_rejects(as_: As, store: Store) -> None:
    alice = as_("alice")
    alice.put("a", "r" * 600)
    space = store.find_namespace(alice.header.namespace)
    assert space is not None
    root = as_("root")
    request = admin_pb2.SetQuotaRequest(
        header=root.header, resource=admin_pb2.QUOTA_RESOURCE_ASSERTION_BYTES, most=1000
    )
    quota = root.admin.SetQuota(request, metadata=root.metadata).quota
    assert (quota.resource, quota.used) == (admin_pb2.QUOTA_RESOURCE_ASSERTION_BYTES, 600)
    assert alice.put("b", "r" * 600).inserted
    assert [alice.actor_of(name) for name in "ab"] == [None, "alice"]
    store.set_quota(space, "assertion_bytes", 1000, REFUSE)
    assert error_of(lambda: alice.put("c", "r" * 600))[0] == "RESOURCE_EXHAUSTED"
    store.set_quota(space, "assertion_bytes", 1000, EVICT)
    collect = admin_pb2.CollectRequest(header=root.header)
    collect.min_age.FromMilliseconds(0)
    collect.older_than.FromMilliseconds(0)
    *_, last = root.admin.Collect(collect, metadata=root.metadata)
    assert last.rows["assertions"] == 1
    assert alice.actor_of("b") is None


def test_events_are_sealed_with_the_others(as_: As, server: Running, store: Store) -> None:
    alice = as_("alice")
    alice.put("a", "first")
    alice.put("a", "second")
    alice.dispute("a", "first", "second")
    alice.get(sha("a"))
    server.seal()
    assert [each[:2] for each in events(store, alice.header.namespace)] == [
        ("assertion_put", "inserted"),
        ("assertion_put", "conflict"),
        ("assertion_dispute", "quarantined"),
        ("assertion_get", "miss"),
    ]
    chains = Verification(store).all(overdue=2**62)
    assert sum(chain.events for chain in chains) >= 4
    assert [chain.findings for chain in chains if chain.findings] == []


def test_without_tokens_the_socket_and_tcp_are_an_actor_each(tmp_path: Path) -> None:
    with running(config_in(tmp_path, socket=tmp_path / "run" / "s")) as server:
        tcp = Calls(server.channel, "default", "")
        with grpc.insecure_channel(f"unix:{tmp_path}/run/s") as channel:
            socket = Calls(channel, "default", "")
            assert tcp.put("a", "of anybody").assertion.actor == "anonymous"
            assert socket.actor_of("a") is None
            assert socket.put("a", "of the user").assertion.actor == "local"
            assert (socket.actor_of("a"), tcp.actor_of("a")) == ("local", "anonymous")


def test_a_server_with_principals_alone_answers_nobody_else(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "socket": tmp_path / "run" / "s",
        "principals": principals_file(tmp_path),
    }
    with running(config_in(tmp_path, **changes)) as server:
        assert Calls(server.channel, "default", "token of alice").put("a").assertion.actor == "alice"
        assert Calls(server.channel, "default", "token of root").trust("ci")
        with grpc.insecure_channel(f"unix:{tmp_path}/run/s") as channel:
            for token in ("", "shared", "token of nobody", sha("token of alice").hex()):
                calls = Calls(channel, "default", token)
                assert error_of(lambda calls=calls: calls.get(sha("a")))[0] == "PERMISSION_DENIED"
                assert error_of(lambda calls=calls: calls.trust("ci"))[0] == "PERMISSION_DENIED"
            calls = Calls(channel, "default", "token of alice")
            assert calls.actor_of("a") == "alice"
            calls.metadata = (("authorization", "token of alice"),)
            assert error_of(lambda: calls.get(sha("a")))[0] == "PERMISSION_DENIED"


def test_a_client_verifies_what_it_gets(server: Running, tmp_path: Path) -> None:
    name = f"assertions-{next(_NAMES)}"

    def client(who: str) -> kcache.Client:
        return kcache.Client(
            server.address, namespace=name, token=f"token of {who}", cache_dir=tmp_path / who, actor="alice"
        )

    with client("alice") as alice, client("guest") as guest:
        assert alice.get_assertion(sha("a")) is None
        stored = alice.put_assertion(sha("a"), b"{}", [sha("p")], toolchain="torch 2.13")
        assert (stored.stored, stored.conflict, stored.quarantined) == (True, False, False)
        assert alice.get_assertion(sha("a")) == stored.winner
        assert alice.get_assertions([sha("a"), sha("b"), sha("a")]) == {sha("a"): stored.winner}
        assert guest.get_assertion(sha("a")) is None
        lost = alice.put_assertion(sha("a"), b"[]", [])
        assert (lost.stored, lost.conflict, lost.winner) == (False, True, stored.winner)
        assert alice.dispute_assertion(sha("a"), sha("{}"), sha("[]"), "not the same") is True
        assert alice.dispute_assertion(sha("a"), sha("{}"), sha("[]")) is False
        assert alice.get_assertion(sha("a")) is None
        assert alice.put_assertion(sha("a"), b"{}", []).quarantined
        with pytest.raises(kcache.NotFound):
            guest.dispute_assertion(sha("a"), sha("{}"), sha("[]"))
        with pytest.raises(kcache.ArgumentError, match="32 bytes"):
            alice.get_assertion(b"short")
        with pytest.raises(kcache.ResourceExhausted):
            alice.put_assertion(sha("b"), bytes(2 << 20), [])
        stats = alice.stats()
        assert (stats.assertions, stats.assertion_conflicts, stats.assertions_quarantined) == (1, 1, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names nobody"),
        ("alice dev", "NAME ROLE"),
        ("alice dev xyz", "hex"),
        (f"token dev {sha('t').hex()}", "none of anonymous, local, token"),
        (f"Alice dev {sha('t').hex()}", "name 'Alice'"),
        (f"alice Dev {sha('t').hex()}", "role 'Dev'"),
        (f"alice dev {sha('').hex()}", "empty token"),
        (f"alice dev {sha('t').hex()}\nbob dev {sha('t').hex()}", "line 2 .*same token"),
        (f"alice dev {sha('t').hex()}\nalice ci {sha('u').hex()}", "line 2 .*another role"),
    ],
)
def test_a_file_of_principals_that_is_wrong_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "principals"
    path.write_text(text)
    with pytest.raises(ArgumentError, match=message):
        read_principals(path)
    with pytest.raises(ArgumentError, match=message), running(replace(config_in(tmp_path), principals=path)):
        pass


def test_a_file_of_principals(tmp_path: Path) -> None:
    principals = read_principals(principals_file(tmp_path))
    assert principals[sha("token of guest")] == Principal("guest")
    assert principals[sha("token of ci-1")] == Principal("ci-1", "ci")
    with pytest.raises(ArgumentError, match="cannot be read"):
        read_principals(tmp_path / "none")


@pytest.mark.parametrize("size", [0, (3 << 20) + 1])
def test_a_limit_that_fits_no_message_is_rejected(tmp_path: Path, size: int) -> None:
    with pytest.raises(ArgumentError, match="bytes of an assertion"):
        config_in(tmp_path, limits=Limits(assertion_bytes=size))
