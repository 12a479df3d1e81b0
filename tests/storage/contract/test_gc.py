"""Quotas, pins, disowned toolchains and collection: what every store promises of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kcache_grpc.errors import PermissionDenied, ResourceExhausted
from kcache_grpc.storage.contract.lifecycle import RowKind, Step
from kcache_grpc.storage.errors import InvalidValue, MissingReference, QuotaExceeded, ToolchainDisowned
from kcache_grpc.storage.records import AuditEvent, Failure, SpecDraft, UsageDelta
from tests.storage.drafts import SECOND, blob, graph, kernel, mapping, program, sha256, spec

HOUR = 3600
IDLE = (RowKind.IDLE_KERNELS, RowKind.IDLE_MAPPINGS)


def digest(number):
    return kernel(number).kernel.kernel_digest


def everything(store, ns, before=2**62, **options):
    """One collection of all kinds, to its end: what went, by kind."""
    gone = {}
    for what in RowKind:
        after, rows = None, 0
        while True:
            done = store.collect(ns, Step(what, before=before, after=after, **options))
            rows, after = rows + done.rows, done.after
            if after is None:
                break
        gone[what] = rows
    return {what: rows for what, rows in gone.items() if rows}


@pytest.fixture
def filled(store, ns, time):
    """Three kernels of one spec, made a second after each other, with a mapping each."""
    for number in range(3):
        store.put_graph(ns, graph(number, [b"weights"]))
        store.publish_kernel(ns, kernel(number, key=1))
        time.advance(1)
    return ns


class TestQuotas:
    def test_an_insert_beyond_it_is_rejected_by_name_and_what_is_there_is_served(self, store, filled):
        quota = store.set_quota(filled, "kernels", 3, "refuse")
        assert (quota.used, quota.most) == (3, 3)
        with pytest.raises(QuotaExceeded) as caught:
            store.publish_kernel(filled, kernel(3))
        assert isinstance(caught.value, ResourceExhausted)
        assert caught.value.metadata["limit"] == "quota.kernels"
        assert "kcache quota set default kernels" in str(caught.value)
        assert store.find_kernel(filled, digest(3)) is None
        assert store.artifact_size(filled, sha256(b"object 3")) is None
        assert not store.publish_kernel(filled, kernel(1)).inserted
        assert store.list_quotas(filled)["kernels"].used == 3

    @pytest.mark.sampled(12)
    @pytest.mark.parametrize(
        ("resource", "insert"),
        [
            ("specs", lambda store, ns: store.put_spec(ns, spec(9))),
            ("specs", lambda store, ns: store.put_graph(ns, graph(9))),
            ("mappings", lambda store, ns: store.put_mapping(ns, mapping(9, 1))),
            ("mappings", lambda store, ns: store.put_graph(ns, graph(9))),
            ("artifact_bytes", lambda store, ns: store.put_constants(ns, [blob(b"another")])),
            ("artifact_bytes", lambda store, ns: store.put_program(ns, program(9), "linalg", b"body")),
            ("artifact_bytes", lambda store, ns: store.put_graph(ns, graph(9, [b"another"]))),
            ("artifact_bytes", lambda store, ns: store.publish_kernel(ns, kernel(9))),
        ],
    )
    def test_every_way_in_is_counted(self, store, filled, resource, insert):
        held = store.set_quota(filled, resource, 0, "refuse").used
        assert held > 0
        before = store.stats(filled)
        with pytest.raises(QuotaExceeded):
            insert(store, filled)
        assert store.stats(filled) == before
        store.set_quota(filled, resource, held + 100, "refuse")
        insert(store, filled)
        used = store.list_quotas(filled)[resource].used
        assert used > held
        store.recount_quotas(filled)
        assert store.list_quotas(filled)[resource].used == used

    def test_another_namespace_is_not_counted(self, store, filled):
        store.set_quota(filled, "specs", 3, "refuse")
        other = store.get_or_create_namespace("other")
        store.put_spec(other, spec(9))
        assert store.list_quotas(other) == {}

    def test_it_can_be_changed_and_taken_away(self, store, filled):
        store.set_quota(filled, "specs", 3, "refuse")
        assert store.set_quota(filled, "specs", 4, "refuse").used == 3
        store.put_spec(filled, spec(9))
        with pytest.raises(QuotaExceeded):
            store.put_spec(filled, spec(10))
        assert store.remove_quota(filled, "specs")
        assert not store.remove_quota(filled, "specs")
        store.put_spec(filled, spec(10))

    @pytest.mark.parametrize(
        ("resource", "most", "policy"),
        [("specs", 1, "evict"), ("gold", 1, "evict"), ("kernels", -1, "evict"), ("kernels", 1, "hope")],
    )
    def test_what_is_no_quota(self, store, ns, resource, most, policy):
        with pytest.raises(InvalidValue):
            store.set_quota(ns, resource, most, policy)


class TestIdle:
    def test_the_longest_unused_go_first(self, store, filled, time):
        store.add_usage(filled, [UsageDelta("kernel", digest(0), 1, 100, time.wall)])
        step = Step(RowKind.IDLE_KERNELS, limit=1, before=time.wall + 1)
        assert store.collect(filled, step).rows == 1
        assert set(store.find_kernels(filled, [digest(n) for n in range(3)])) == {digest(0), digest(2)}
        assert store.collect(filled, replace(step, limit=2)).rows == 2

    def test_a_step_takes_no_more_than_its_limit(self, store, filled, time):
        store.put_mapping(filled, replace(mapping(0, 1), numerics="strict"))
        done = [store.collect(filled, Step(what, limit=1, before=time.wall + 1)) for what in IDLE]
        assert [each.rows for each in done] == [1, 1]
        assert all(each.after is not None for each in done)
        # Both mappings of the program that was just mapped once more are one place in the order.
        step = Step(RowKind.IDLE_MAPPINGS, limit=1, before=time.wall + 1)
        assert [store.collect(filled, step).rows for _ in range(3)] == [1, 2, 0]

    def test_what_was_used_lately_stays(self, store, filled, time):
        assert store.collect(filled, Step(RowKind.IDLE_KERNELS, before=time.wall - 2 * SECOND)).rows == 1
        assert store.find_kernel(filled, digest(0)) is None

    @pytest.mark.issue(number=19, point=25)
    def test_compiles_of_removed_kernels_stay_counted(self, store, filled, time):
        assert store.stats(filled).compiles == 3
        store.collect(filled, Step(RowKind.IDLE_KERNELS, limit=2, before=time.wall + 1))
        assert (store.stats(filled).kernels, store.stats(filled).compiles) == (1, 3)
        store.collect(filled, Step(RowKind.IDLE_KERNELS, before=time.wall + 1))
        assert (store.stats(filled).kernels, store.stats(filled).compiles) == (0, 3)

    def test_a_second_publish_is_a_use(self, store, filled, time):
        store.publish_kernel(filled, kernel(0, key=1))
        store.collect(filled, Step(RowKind.IDLE_KERNELS, before=time.wall))
        assert set(store.find_kernels(filled, [digest(n) for n in range(3)])) == {digest(0)}

    def test_pins_keep(self, store, filled, time):
        assert store.pin(filled, "kernel", digest(0), "golden")
        assert not store.pin(filled, "kernel", digest(0), "again")
        assert store.collect(filled, Step(RowKind.IDLE_KERNELS, before=time.wall)).rows == 2
        assert store.list_pins(filled)[0].reason == "golden"
        assert store.unpin(filled, "kernel", digest(0))
        assert store.collect(filled, Step(RowKind.IDLE_KERNELS, before=time.wall)).rows == 1

    def test_a_pinned_spec_keeps_its_kernels_and_mappings(self, store, filled, time):
        store.pin(filled, "spec", spec(0).spec_digest)
        store.pin(filled, "mapping", program(2))
        assert store.collect(filled, Step(RowKind.IDLE_KERNELS, before=time.wall)).rows == 0
        assert store.collect(filled, Step(RowKind.IDLE_MAPPINGS, before=time.wall)).rows == 1
        assert store.find_mapping(filled, program(1), "default") is None

    def test_totals_of_what_went_stay(self, store, filled, time):
        store.add_usage(filled, [UsageDelta("kernel", digest(0), 3, 4500, time.wall)])
        before = store.stats(filled)
        everything(store, filled)
        after = store.stats(filled)
        assert (after.hits, after.saved_us) == (before.hits, before.saved_us) == (3, 4500)
        assert store.find_usage(filled, "kernel", [digest(0)]) == {}

    def test_cursors_pass_what_stays(self, store, filled, time):
        for number in range(2):
            store.pin(filled, "kernel", digest(number))
        step = Step(RowKind.IDLE_KERNELS, limit=1, before=time.wall)
        assert store.collect(filled, step).rows == 1
        assert store.find_kernel(filled, digest(2)) is None


class TestBlobs:
    def test_blobs_go_with_the_last_kernel_that_has_them(self, store, filled, time):
        first = store.collect(filled, Step(RowKind.IDLE_KERNELS, limit=1, before=time.wall))
        assert (first.rows, first.blobs, first.blob_bytes) == (1, 1, len(b"object 0"))
        assert store.artifact_size(filled, sha256(b"shared IR")) is not None
        rest = store.collect(filled, Step(RowKind.IDLE_KERNELS, before=time.wall))
        assert (rest.rows, rest.blobs) == (2, 3)
        assert store.artifact_size(filled, sha256(b"shared IR")) is None

    def test_a_constant_that_is_lifted_stays(self, store, filled):
        store.put_constants(filled, [blob(b"nobody's")])
        gone = everything(store, filled, before=2**62, limit=1)
        assert gone[RowKind.IDLE_MAPPINGS] == 3
        # Mappings go before constants: theirs follow in the same run.
        assert gone[RowKind.CONSTANTS] == 2
        assert store.artifact_size(filled, sha256(b"weights")) is None

    def test_constants_of_present_mappings_stay(self, store, filled, time):
        store.put_constants(filled, [blob(b"nobody's")])
        for what in (RowKind.CONSTANTS, RowKind.BLOBS):
            store.collect(filled, Step(what, before=time.wall + 1))
        assert store.read_artifact(filled, sha256(b"weights")) == b"weights"
        assert store.artifact_size(filled, sha256(b"nobody's")) is None

    def test_what_is_younger_stays(self, store, filled, time):
        store.put_constants(filled, [blob(b"nobody's")])
        assert store.collect(filled, Step(RowKind.CONSTANTS, before=time.wall)).rows == 0

    def test_programs_without_a_mapping_go(self, store, filled, time):
        store.put_program(filled, program(0), "linalg", b"body")
        store.put_program(filled, program(7), "linalg", b"other")
        assert store.collect(filled, Step(RowKind.PROGRAMS, before=time.wall + 1)).rows == 1
        assert store.get_program(filled, program(0)) == ("linalg", b"body")
        assert store.get_program(filled, program(7)) is None

    def test_what_was_removed_can_be_stored_again(self, store, filled):
        everything(store, filled)
        assert store.publish_kernel(filled, kernel(0, key=1)).inserted
        assert store.put_graph(filled, graph(0, [b"weights"])).new_mapping
        assert store.read_artifact(filled, sha256(b"weights")) == b"weights"

    def test_quarantined_bytes_go_when_they_are_old_enough_and_never_come_back(self, store, filled, time):
        object_0, step = sha256(b"object 0"), Step(RowKind.QUARANTINED, before=time.wall + 5 * SECOND)
        for _ in range(2):
            store.quarantine_artifact(filled, object_0, "test")
            store.publish_kernel(filled, kernel(0, key=1))
        time.advance(10)
        store.quarantine_artifact(filled, sha256(b"object 1"), "test")
        assert store.collect(filled, replace(step, dry_run=True)).rows == 1
        assert store.collect(filled, step).rows == 1
        assert store.collect(filled, step).rows == 0
        assert store.read_artifact(filled, object_0) == b"object 0"
        assert store.stats(filled).artifacts == 4 + 1
        assert store.find_kernel(filled, digest(1)) is None
        store.quarantine_artifact(filled, object_0, "test")
        assert store.find_kernel(filled, digest(0)) is None
        store.publish_kernel(filled, kernel(0, key=1))
        assert store.read_artifact(filled, object_0) == b"object 0"
        everything(store, filled, before=time.wall + 1)
        assert store.read_artifact(filled, object_0) is None

    def test_quarantined_bytes_go_with_their_blob(self, store, filled):
        store.quarantine_artifact(filled, sha256(b"object 0"), "test")
        everything(store, filled)
        assert store.stats(filled).artifacts == 0


class TestEpochs:
    def test_rows_of_earlier_epochs_go_pinned_or_not(self, store, filled):
        store.pin(filled, "kernel", digest(0))
        now = store.raise_epoch(filled)
        store.publish_kernel(now, kernel(0, key=1))
        gone = everything(store, now, before=0)
        assert gone == {RowKind.EPOCH_KERNELS: 3, RowKind.EPOCH_MAPPINGS: 3}
        assert store.find_kernel(now, digest(0)) is not None
        assert store.find_kernel(filled, digest(1)) is None

    def test_specs_and_keys_are_never_removed(self, store, filled):
        store.add_alias(filled, 3, 1)
        now = store.raise_epoch(filled)
        everything(store, now)
        assert [store.get_spec(now, key).key for key in (1, 2, 3)] == [1, 2, 3]
        assert store.resolve_key(now, 3) == 1
        assert store.put_spec(now, spec(9)).key == 4

    def test_mappings_that_tell_an_old_key_stay_while_they_may_be_asked_for(self, store, ns, time):
        text = "kcache.spec v2 default\n"
        newer = SpecDraft(sha256(text), text, "default", canonicalizer=2)
        store.put_graph(ns, graph(0))
        store.put_graph(ns, graph(1))
        now = store.raise_epoch(ns)
        key = store.put_spec(now, newer).key
        store.put_mapping(now, mapping(1, key))
        before = time.wall - HOUR * SECOND
        assert store.collect(now, Step(RowKind.EPOCH_MAPPINGS, before=before)).rows == 1
        assert store.find_mapping(ns, program(0), "default") is not None
        assert store.collect(now, Step(RowKind.EPOCH_MAPPINGS, before=time.wall + 1)).rows == 1


class TestToolchains:
    def test_kernels_of_a_disowned_toolchain_are_neither_taken_nor_kept(self, store, filled):
        toolchain = kernel(0).kernel.toolchain
        assert store.disown_toolchain(filled, toolchain, "miscompiles")
        assert not store.disown_toolchain(filled, toolchain)
        with pytest.raises(ToolchainDisowned) as caught:
            store.publish_kernel(filled, kernel(5))
        assert isinstance(caught.value, PermissionDenied)
        assert everything(store, filled, before=0) == {RowKind.DISOWNED_KERNELS: 3}
        assert [each.reason for each in store.list_disowned(filled)] == ["miscompiles"]

    def test_several_toolchains_are_collected_in_steps_of_any_size(self, store, filled):
        toolchains = [sha256(f"toolchain {number}") for number in range(4)]
        for number in range(10, 22):
            draft = kernel(number)
            store.publish_kernel(
                filled, replace(draft, kernel=replace(draft.kernel, toolchain=toolchains[number % 4]))
            )
        for toolchain in (*toolchains[:3], sha256("nobody has kernels of this one")):
            store.disown_toolchain(filled, toolchain)
        for limit in (100, 2):
            counts = everything(store, filled, before=0, limit=limit, dry_run=True)
            assert counts == {RowKind.DISOWNED_KERNELS: 9}
        assert everything(store, filled, before=0, limit=2) == {RowKind.DISOWNED_KERNELS: 9}
        assert store.stats(filled).kernels == 6

    def test_it_can_be_taken_back(self, store, filled):
        toolchain = kernel(0).kernel.toolchain
        store.disown_toolchain(filled, toolchain)
        assert store.readmit_toolchain(filled, toolchain)
        assert not store.readmit_toolchain(filled, toolchain)
        assert store.publish_kernel(filled, kernel(5)).inserted

    def test_of_an_unknown_namespace(self, store, ns):
        with pytest.raises(MissingReference):
            store.disown_toolchain(replace(ns, id=99, name="nowhere"), bytes(32))


class TestLeasesAndFailures:
    def test_expired_failures_go(self, store, ns, time):
        store.record_failure(ns, digest(1), Failure("COMPILE_FAILED", "lower", "no"), 10)
        store.record_failure(ns, digest(2), Failure("COMPILE_FAILED", "lower", "no"), 100)
        time.advance(20)
        assert store.collect(ns, Step(RowKind.FAILURES)).rows == 1
        assert set(store.find_failures(ns, [digest(1), digest(2)])) == {digest(2)}

    def test_leases_that_rest_for_hours_go(self, store, ns, time):
        store.acquire_lease(ns, digest(1), "dead", 10)
        time.advance(3 * HOUR)
        store.acquire_lease(ns, digest(2), "alive", 10)
        assert store.collect(ns, Step(RowKind.LEASES)).rows == 1
        assert set(store.find_leases(ns, [digest(1), digest(2)])) == {digest(2)}


class TestSteps:
    def test_a_dry_run_changes_nothing_and_tells_the_same(self, store, filled, time):
        store.put_constants(filled, [blob(b"nobody's")])
        store.raise_epoch(store.get_or_create_namespace("other"))
        before = store.stats(filled)
        expected = everything(store, filled, dry_run=True)
        assert store.stats(filled) == before
        # Mappings are still there when a dry run looks at their constants.
        assert expected == {RowKind.IDLE_KERNELS: 3, RowKind.IDLE_MAPPINGS: 3, RowKind.CONSTANTS: 1}
        dry = store.collect(filled, Step(RowKind.IDLE_KERNELS, before=2**62, dry_run=True))
        uses = [(use.digest, use.references) for use in dry.uses]
        assert sorted(uses) == sorted(
            [(sha256(b"shared IR"), 3)] * 3 + [(sha256(f"object {n}"), 1) for n in range(3)]
        )
        assert everything(store, filled) == {**expected, RowKind.CONSTANTS: 2}

    def test_every_step_writes_an_audit_event_and_tells_memories(self, store, filled):
        store.collect(filled, Step(RowKind.IDLE_KERNELS, before=2**62, reason="for a test"))
        events = [record.event for record in store.list_audit(filled, limit=100)]
        assert any("for a test" in event.detail for event in events if event.kind == "collect")
        assert store.find_namespace("default").removals > filled.removals

    def test_a_step_that_finds_nothing_writes_nothing(self, store, ns):
        before = store.list_audit(ns)
        assert everything(store, ns) == {}
        assert store.list_audit(ns) == before
        assert store.find_namespace("default").removals == ns.removals

    def test_quarantine_tells_memories(self, store, filled):
        store.quarantine_artifact(filled, sha256(b"object 0"), "test")
        assert store.find_namespace("default").removals > filled.removals

    def test_quotas_are_relieved(self, store, filled):
        for resource in ("kernels", "mappings", "artifact_bytes"):
            store.set_quota(filled, resource, 10**6)
        everything(store, filled)
        assert [quota.used for quota in store.list_quotas(filled).values()] == [0, 0, 0]

    def test_discard_takes_what_is_named(self, store, filled):
        store.pin(filled, "kernel", digest(0))
        event = AuditEvent("verify", outcome="differs")
        gone = store.discard(filled, [digest(0), digest(9)], [(program(1), "default")], event)
        assert gone == 2
        assert store.find_kernel(filled, digest(0)) is None
        assert store.find_mapping(filled, program(1), "default") is None
        assert store.find_mapping(filled, program(0), "default") is not None
        assert any(record.event.kind == "verify" for record in store.list_audit(filled, limit=100))
        assert store.discard(filled, [digest(9)], [], event) == 0

    def test_pages_hold_everything_of_the_epoch(self, store, filled):
        store.quarantine_artifact(filled, sha256(b"object 1"), "test")
        first = store.page_kernels(filled, 0, 2)
        rest = store.page_kernels(filled, first[-1].id, 2)
        assert [k.kernel.kernel_digest for k in (*first, *rest)] == [digest(n) for n in range(3)]
        page = store.page_mappings(filled, None, 1)
        others = store.page_mappings(filled, (page[0].program_digest, page[0].numerics), 5)
        assert sorted(m.program_digest for m in (*page, *others)) == sorted(program(n) for n in range(3))
        assert store.page_mappings(filled, (b"\xff" * 32, "z"), 5) == ()


@pytest.mark.issue(number=19, point=1)
class TestQuarantinedRows:
    """What verification took out of service is kept, with its bytes, and comes back when asked for."""

    EVENT = AuditEvent("verify", outcome="quarantined", detail="why")

    def test_rows_come_back_with_their_bytes(self, store, filled, time):
        stored = store.find_kernel(filled, digest(0))
        mapped = store.find_mapping(filled, program(0), "default")
        usage = store.find_usage(filled, "kernel", [digest(0)])
        assert store.discard(filled, [digest(0)], [(program(0), "default")], self.EVENT) == 2
        assert store.find_kernel(filled, digest(0)) is None
        kept = store.list_quarantined(filled)
        assert [(row.subject, row.digest, row.problem) for row in kept] == [
            ("kernel", digest(0), "why"),
            ("mapping", program(0), "why"),
        ]
        time.advance(3600)
        for what in (RowKind.CONSTANTS, RowKind.BLOBS, RowKind.QUARANTINED):
            store.collect(filled, Step(what, limit=1000, before=2**62))
        back = store.restore_quarantined(filled, [row.id for row in kept])
        assert [row.subject for row in back] == ["kernel", "mapping"]
        assert store.list_quarantined(filled) == ()
        assert store.find_kernel(filled, digest(0)) == stored
        assert store.find_mapping(filled, program(0), "default") == mapped
        assert all(store.read_artifact(filled, ref.digest) is not None for ref in stored.artifacts)
        assert set(store.find_usage(filled, "kernel", [digest(0)])) <= set(usage)
        assert store.restore_quarantined(filled, [row.id for row in kept]) == ()

    def test_what_was_made_anew_stays(self, store, filled):
        store.discard(filled, [digest(0)], [], self.EVENT)
        (row,) = store.list_quarantined(filled)
        store.publish_kernel(filled, kernel(0))
        assert store.restore_quarantined(filled, [row.id]) == ()
        assert store.list_quarantined(filled) == (row,)

    def test_it_ends_after_thirty_days(self, store, filled, time):
        before = len(store.list_quarantined(filled))
        store.discard(filled, [digest(0)], [], self.EVENT)
        time.advance(29 * 86_400)
        store.collect(filled, Step(RowKind.QUARANTINED, before=2**62))
        assert len(store.list_quarantined(filled)) == before + 1
        time.advance(2 * 86_400)
        store.collect(filled, Step(RowKind.QUARANTINED, before=2**62))
        assert store.list_quarantined(filled) == ()
