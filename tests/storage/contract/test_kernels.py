"""Bytes and kernels: the same on every store."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kcache_grpc.storage import CHUNK_BYTES, Store
from kcache_grpc.storage.errors import Conflict, DigestMismatch, InvalidValue, LeaseLost, MissingReference
from kcache_grpc.storage.records import (
    ArtifactRef,
    AuditEvent,
    Failure,
    Lease,
    LoadedGraph,
    LoadedKernel,
    Wanted,
)
from tests.storage.conftest import OBJECT_STORES, STORES
from tests.storage.drafts import blob, kernel, mapping, program, sha256, spec

WANTED = Wanted("x86-64-v3", "numerics=default", sha256("toolchain"), frozenset({"so"}), CHUNK_BYTES)
#: Of object stores one a database in every run.
_STORES = [
    pytest.param(name, marks=pytest.mark.long) if name == "sqlite+s3" else name
    for name in STORES + OBJECT_STORES
]
pytestmark = pytest.mark.parametrize("store", _STORES, indirect=True)


def held(store: Store, contents: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """What comes along: nothing of an object store."""
    return {} if store.objects_url else contents


@pytest.fixture(autouse=True)
def _a_spec(store, ns):
    store.put_spec(ns, spec(0))


class TestBlobs:
    @pytest.mark.sampled(12)
    @pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
    def test_bytes_come_back_whole_and_in_slices(self, store, ns, size):
        content = random.Random(size).randbytes(size)
        digest = sha256(content)
        assert store.artifact_size(ns, digest) is None
        assert store.read_artifact(ns, digest) is None
        store.put_constants(ns, [blob(content)])
        assert store.artifact_size(ns, digest) == size
        assert store.read_artifact(ns, digest) == content
        for offset in {0, 1, size // 2, CHUNK_BYTES - 1, CHUNK_BYTES, max(size - 1, 0), size, size + 5}:
            for length in (0, 1, 100, CHUNK_BYTES, None):
                end = size if length is None else offset + length
                assert store.read_artifact(ns, digest, offset, length) == content[offset:end]
        assert store.verify_artifact(ns, digest)

    def test_bytes_belong_to_a_namespace(self, store, ns):
        store.put_constants(ns, [blob(b"weights")])
        other = store.get_or_create_namespace("other")
        assert store.read_artifact(other, sha256(b"weights")) is None

    def test_equal_bytes_are_held_once(self, store, ns):
        store.put_constants(ns, [blob(b"weights"), blob(b"weights")])
        store.put_program(ns, sha256("program"), "stablehlo", b"weights")
        stats = store.stats(ns)
        assert (stats.artifacts, stats.artifact_bytes) == (1, 7)

    def test_a_blob_under_a_wrong_digest_is_rejected_with_all_others(self, store, ns):
        with pytest.raises(DigestMismatch):
            store.put_constants(ns, [blob(b"good"), replace(blob(b"bad"), digest=sha256("else"))])
        assert store.artifact_size(ns, sha256(b"good")) is None

    def test_quarantined_bytes_are_gone_until_they_are_stored_again(self, store, ns):
        weights = blob(b"weights")
        assert not store.quarantine_artifact(ns, weights.digest, "nothing there")
        store.put_constants(ns, [weights])
        for _ in range(3):
            assert store.quarantine_artifact(ns, weights.digest, "for a test")
            assert store.read_artifact(ns, weights.digest) is None
            assert not store.verify_artifact(ns, weights.digest)
            store.put_constants(ns, [weights])
            assert store.read_artifact(ns, weights.digest) == b"weights"

    def test_negative_offsets_are_rejected(self, store, ns):
        for offset, length in ((-1, 1), (0, -1)):
            with pytest.raises(InvalidValue):
                store.read_artifact(ns, sha256("any"), offset, length)

    def test_a_kept_program(self, store, ns):
        assert store.get_program(ns, sha256("program")) is None
        store.put_program(ns, sha256("program"), "linalg", b"body")
        store.put_program(ns, sha256("program"), "stablehlo", b"another")
        assert store.get_program(ns, sha256("program")) == ("linalg", b"body")
        store.quarantine_artifact(ns, sha256(b"body"), "for a test")
        assert store.get_program(ns, sha256("program")) is None
        store.put_program(ns, sha256("program"), "linalg", b"body")
        assert store.get_program(ns, sha256("program")) == ("linalg", b"body")


class TestPublish:
    def test_what_was_published_is_found(self, store, ns, time):
        draft = kernel(1)
        assert store.find_kernel(ns, draft.kernel.kernel_digest) is None
        published = store.publish_kernel(ns, draft, event=AuditEvent("publish"))
        assert (published.inserted, published.repaired, published.differs) == (True, 0, False)
        stored = store.find_kernel(ns, draft.kernel.kernel_digest)
        assert stored == published.stored
        assert (stored.kernel, stored.manifest) == (draft.kernel, draft.manifest)
        assert (stored.epoch, stored.compile_us, stored.created_at) == (1, 1501, time.wall)
        assert stored.artifacts == tuple(
            ArtifactRef(artifact.kind, artifact.digest, len(artifact.content)) for artifact in draft.artifacts
        )
        assert store.list_ingredients(ns, draft.kernel.kernel_digest) == draft.ingredients
        assert store.read_artifact(ns, draft.artifacts[0].digest) == b"object 1"
        (record,) = store.list_audit(ns)
        assert (record.event.kind, record.event.key) == ("publish", 1)

    def test_the_second_gets_the_winner(self, store, ns):
        first = store.publish_kernel(ns, kernel(1), event=AuditEvent("publish"))
        later = replace(kernel(1), manifest=kernel(2).manifest)
        second = store.publish_kernel(ns, later, event=AuditEvent("publish"))
        assert second.stored == first.stored
        assert (second.inserted, second.differs) == (False, False)
        assert len(store.list_audit(ns)) == 1
        assert store.list_conflicts(ns) == ()

    def test_other_bytes_for_the_same_kernel_are_recorded(self, store, ns):
        first = store.publish_kernel(ns, kernel(1))
        second = store.publish_kernel(ns, kernel(1, so=b"other object"))
        assert second == replace(first, inserted=False, differs=True)
        assert store.artifact_size(ns, sha256(b"other object")) is None
        (conflict,) = store.list_conflicts(ns)
        assert (conflict.kind, conflict.name) == ("kernel", kernel(1).kernel.kernel_digest)
        assert conflict.stored == sha256(b"shared IR") + sha256(b"object 1")
        assert conflict.offered == sha256(b"shared IR") + sha256(b"other object")

    def test_lost_bytes_are_a_miss_and_a_repair(self, store, ns):
        first = store.publish_kernel(ns, kernel(1))
        store.publish_kernel(ns, kernel(2))
        store.quarantine_artifact(ns, sha256(b"shared IR"), "for a test")
        for number in (1, 2):
            assert store.find_kernel(ns, kernel(number).kernel.kernel_digest) is None
        assert store.find_variants(ns, 1, "x86-64-v3", "numerics=default", sha256("toolchain")) == ()
        repaired = store.publish_kernel(ns, kernel(1), event=AuditEvent("publish"))
        assert repaired == replace(first, inserted=False, repaired=1)
        assert store.find_kernel(ns, kernel(2).kernel.kernel_digest) is not None
        assert len(store.list_audit(ns)) == 1

    def test_lost_bytes_that_nobody_brings_are_a_conflict(self, store, ns):
        store.publish_kernel(ns, kernel(1))
        store.quarantine_artifact(ns, sha256(b"object 1"), "for a test")
        with pytest.raises(Conflict):
            store.publish_kernel(ns, kernel(1, so=b"other object"))
        assert store.find_kernel(ns, kernel(1).kernel.kernel_digest) is None

    def test_many_are_found_at_once(self, store, ns):
        put = {kernel(n).kernel.kernel_digest: store.publish_kernel(ns, kernel(n)).stored for n in range(3)}
        wanted = [kernel(number).kernel.kernel_digest for number in range(1200)]
        assert dict(store.find_kernels(ns, wanted)) == put

    def test_one_is_loaded_with_its_bytes(self, store, ns):
        draft = kernel(1)
        name, so = draft.kernel.kernel_digest, draft.artifacts[0].digest
        assert store.load_kernel(ns, name, WANTED) is None
        stored = store.publish_kernel(ns, draft).stored
        assert store.load_kernel(ns, name, WANTED) == LoadedKernel(stored, held(store, {so: b"object 1"}))
        assert store.load_kernel(ns, name, replace(WANTED, most=7)) == LoadedKernel(stored, {})
        assert store.load_kernel(ns, name, replace(WANTED, kinds=frozenset({"s", "o"}))).contents == {}
        both = store.load_kernel(ns, name, replace(WANTED, kinds=frozenset({"llvm", "so"})))
        assert both.contents == held(store, {so: b"object 1", sha256(b"shared IR"): b"shared IR"})
        store.quarantine_artifact(ns, sha256(b"shared IR"), "for a test")
        assert store.load_kernel(ns, name, WANTED) is None
        store.publish_kernel(ns, draft)
        assert store.load_kernel(ns, name, WANTED).stored == stored

    @pytest.mark.parametrize("size", [0, CHUNK_BYTES, CHUNK_BYTES + 1])
    def test_what_is_loaded_is_whole_or_left_out(self, store, ns, size):
        draft = kernel(1, so=bytes(size))
        store.publish_kernel(ns, draft)
        loaded = store.load_kernel(ns, draft.kernel.kernel_digest, replace(WANTED, most=2 * CHUNK_BYTES))
        assert set(loaded.contents.values()) <= {bytes(size)}
        assert store.read_artifact(ns, draft.artifacts[0].digest) == bytes(size)

    def test_a_mapping_is_loaded_with_the_only_kernel_of_its_key(self, store, ns):
        assert store.load_graph(ns, program(1), "default", WANTED) is None
        stored = store.put_mapping(ns, mapping(1, 1))
        assert store.load_graph(ns, program(1), "strict", WANTED) is None
        assert store.load_graph(ns, program(1), "default", WANTED) == LoadedGraph(stored, None)
        store.put_spec(ns, spec(1))
        store.publish_kernel(ns, kernel(2, key=2))
        assert store.load_graph(ns, program(1), "default", WANTED) == LoadedGraph(stored, None)
        draft = kernel(1)
        store.publish_kernel(ns, draft)
        only = store.load_kernel(ns, draft.kernel.kernel_digest, WANTED)
        assert store.load_graph(ns, program(1), "default", WANTED) == LoadedGraph(stored, only)
        for other in ({"target": "x86-64-v4"}, {"options": "numerics=strict"}, {"toolchain": sha256("else")}):
            asked = replace(WANTED, **other)
            assert store.load_graph(ns, program(1), "default", asked) == LoadedGraph(stored, None)
        store.quarantine_artifact(ns, draft.artifacts[0].digest, "for a test")
        assert store.load_graph(ns, program(1), "default", WANTED) == LoadedGraph(stored, None)
        store.publish_kernel(ns, draft)
        store.publish_kernel(ns, kernel(3, guard="s0 == 16"))
        assert store.load_graph(ns, program(1), "default", WANTED) == LoadedGraph(stored, None)

    def test_a_mapping_is_not_loaded_while_a_constant_is_lost_nor_in_another_epoch(self, store, ns):
        store.put_constants(ns, [blob(b"weights")])
        stored = store.put_mapping(ns, mapping(1, 1, [sha256(b"weights")]))
        store.publish_kernel(ns, kernel(1))
        assert store.load_graph(ns, program(1), "default", WANTED).mapping == stored
        store.quarantine_artifact(ns, sha256(b"weights"), "for a test")
        assert store.load_graph(ns, program(1), "default", WANTED) is None
        store.put_constants(ns, [blob(b"weights")])
        later = store.raise_epoch(ns)
        assert store.load_graph(later, program(1), "default", WANTED) is None
        assert store.load_kernel(later, kernel(1).kernel.kernel_digest, WANTED) is None
        again = store.put_mapping(later, mapping(1, 1, [sha256(b"weights")]))
        assert store.load_graph(later, program(1), "default", WANTED) == LoadedGraph(again, None)

    def test_variants_come_oldest_first_and_lists_youngest_first(self, store, ns):
        for number, guard in ((3, "s0 % 8 == 0"), (1, ""), (2, "s0 == 16")):
            store.publish_kernel(ns, kernel(number, guard=guard))
        target, options, toolchain = "x86-64-v3", "numerics=default", sha256("toolchain")
        variants = store.find_variants(ns, 1, target, options, toolchain)
        assert [stored.kernel.guard for stored in variants] == ["s0 % 8 == 0", "", "s0 == 16"]
        assert store.list_kernels(ns, 1) == variants[::-1]
        assert store.list_kernels(ns, 1, limit=1) == (variants[-1],)
        assert store.list_kernels(ns, 1, before=variants[-1].id) == variants[1::-1]
        assert store.list_kernels(ns, 1, limit=1, before=variants[1].id) == (variants[0],)
        assert store.list_kernels(ns, 1, before=variants[0].id) == ()
        for other in (
            (2, target, options, toolchain),
            (1, "x86-64-v4", options, toolchain),
            (1, target, "numerics=strict", toolchain),
            (1, target, options, sha256("else")),
        ):
            assert store.find_variants(ns, *other) == ()

    def test_an_epoch_disowns_kernels_and_keeps_bytes(self, store, ns):
        store.publish_kernel(ns, kernel(1))
        raised = store.raise_epoch(ns)
        assert store.find_kernel(raised, kernel(1).kernel.kernel_digest) is None
        assert store.publish_kernel(raised, kernel(1)).inserted
        assert store.stats(raised).artifacts == 2

    @pytest.mark.issue(number=19, point=25)
    def test_compiles_are_counted_over_epochs_and_removals(self, store, ns):
        store.publish_kernel(ns, kernel(1))
        raised = store.raise_epoch(ns)
        assert (store.stats(raised).kernels, store.stats(raised).compiles) == (0, 1)
        store.publish_kernel(raised, kernel(1))
        store.publish_kernel(raised, kernel(2))
        assert (store.stats(raised).kernels, store.stats(raised).compiles) == (2, 3)

    def test_two_kinds_may_have_the_same_bytes(self, store, ns):
        published = store.publish_kernel(ns, kernel(1, extra=[("asm", b"shared IR"), ("ptx", b"")]))
        assert [ref.kind for ref in published.stored.artifacts] == ["so", "llvm", "asm", "ptx"]

    @pytest.mark.sampled(12)
    @pytest.mark.parametrize(
        "spoil",
        [
            lambda draft: replace(draft, artifacts=()),
            lambda draft: replace(draft, artifacts=draft.artifacts * 2),
            lambda draft: replace(draft, kernel=replace(draft.kernel, kernel_digest=b"short")),
            lambda draft: replace(draft, kernel=replace(draft.kernel, target="x" * 801)),
            lambda draft: replace(draft, kernel=replace(draft.kernel, guard="a\0b")),
            lambda draft: replace(draft, ingredients=(("a", "\ud800"),)),
            lambda draft: replace(draft, compile_us=-1),
        ],
    )
    def test_drafts_that_no_store_accepts(self, store, ns, spoil):
        with pytest.raises(InvalidValue):
            store.publish_kernel(ns, spoil(kernel(1)))
        assert store.stats(ns).artifacts == 0

    def test_an_artifact_under_a_wrong_digest_is_rejected(self, store, ns):
        bad = tuple(replace(artifact, content=b"else") for artifact in kernel(1).artifacts)
        with pytest.raises(DigestMismatch):
            store.publish_kernel(ns, replace(kernel(1), artifacts=bad))

    def test_its_key_must_be_there(self, store, ns):
        with pytest.raises(MissingReference):
            store.publish_kernel(ns, kernel(1, key=2))
        assert store.stats(ns).artifacts == 0


class TestFencing:
    DIGEST = kernel(1).kernel.kernel_digest

    def test_publishing_gives_the_lease_back_and_forgets_the_failure(self, store, ns):
        store.record_failure(ns, self.DIGEST, Failure("COMPILE_FAILED", "lower", "no"), ttl=60)
        lease = store.acquire_lease(ns, self.DIGEST, "a", ttl=10)
        store.publish_kernel(ns, kernel(1), lease)
        assert not store.find_leases(ns, [self.DIGEST])[self.DIGEST].held
        assert dict(store.find_failures(ns, [self.DIGEST])) == {}

    def test_a_holder_that_was_taken_over_cannot_publish(self, store, ns, time):
        late = store.acquire_lease(ns, self.DIGEST, "late", ttl=10)
        time.advance(11)
        taken = store.acquire_lease(ns, self.DIGEST, "next", ttl=10)
        assert isinstance(taken, Lease)
        with pytest.raises(LeaseLost):
            store.publish_kernel(ns, kernel(1, so=b"of a late holder"), late, AuditEvent("publish"))
        assert store.artifact_size(ns, sha256(b"of a late holder")) is None
        assert store.list_audit(ns) == ()
        assert store.publish_kernel(ns, kernel(1), taken).inserted

    def test_an_expired_holder_that_nobody_took_over_can(self, store, ns, time):
        lease = store.acquire_lease(ns, self.DIGEST, "slow", ttl=10)
        time.advance(100)
        assert store.publish_kernel(ns, kernel(1), lease).inserted

    def test_a_forged_token_cannot_publish(self, store, ns):
        lease = store.acquire_lease(ns, self.DIGEST, "a", ttl=10)
        for forged in (replace(lease, fencing_token=2), replace(lease, holder="b")):
            with pytest.raises(LeaseLost):
                store.publish_kernel(ns, kernel(1), forged)

    def test_a_lease_is_for_one_kernel_and_epoch(self, store, ns):
        lease = store.acquire_lease(ns, self.DIGEST, "a", ttl=10)
        with pytest.raises(InvalidValue):
            store.publish_kernel(ns, kernel(2), lease)
        with pytest.raises(InvalidValue):
            store.publish_kernel(store.raise_epoch(ns), kernel(1), lease)
