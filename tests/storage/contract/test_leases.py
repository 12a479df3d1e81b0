"""Leases, remembered failures, usage and audit: the same on every store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kcache_grpc.storage import Clock
from kcache_grpc.storage.errors import InvalidValue, LeaseLost, StoreUnavailable
from kcache_grpc.storage.records import AuditEvent, Failure, Lease, LeaseState, UsageDelta, UsageRecord
from tests.storage.drafts import SECOND, graph, kernel, sha256, spec

KERNEL = sha256("kernel")


class TestLeases:
    def test_one_holder_at_a_time(self, store, ns):
        lease = store.acquire_lease(ns, KERNEL, "a", ttl=10)
        assert lease == Lease(ns, KERNEL, "a", 1)
        seen = store.acquire_lease(ns, KERNEL, "b", ttl=10)
        assert isinstance(seen, LeaseState)
        assert (seen.holder, seen.fencing_token, seen.held) == ("a", 1, True)
        assert 0 < seen.expires_in <= 10 * SECOND
        assert store.acquire_lease(ns, KERNEL, "a", ttl=10) == lease, "as when the answer was lost"

    def test_kernels_namespaces_and_epochs_have_leases_of_their_own(self, store, ns):
        store.acquire_lease(ns, KERNEL, "a", ttl=10)
        other = store.get_or_create_namespace("other")
        assert isinstance(store.acquire_lease(ns, sha256("else"), "b", ttl=10), Lease)
        assert isinstance(store.acquire_lease(other, KERNEL, "b", ttl=10), Lease)
        assert isinstance(store.acquire_lease(store.raise_epoch(ns), KERNEL, "b", ttl=10), Lease)

    def test_an_expired_lease_is_taken_over_with_a_higher_token(self, store, ns, time):
        first = store.acquire_lease(ns, KERNEL, "a", ttl=10)
        store.report_stage(first, "lower")
        time.advance(9.9)
        assert isinstance(store.acquire_lease(ns, KERNEL, "b", ttl=10), LeaseState)
        time.advance(0.1)
        second = store.acquire_lease(ns, KERNEL, "b", ttl=10)
        assert second == Lease(ns, KERNEL, "b", 2)
        assert store.find_leases(ns, [KERNEL])[KERNEL].stages == ()
        for call in (
            lambda: store.heartbeat_lease(first, 10),
            lambda: store.report_stage(first, "codegen"),
            lambda: store.record_failure(ns, KERNEL, Failure("COMPILE_FAILED", "", ""), 10, first),
        ):
            with pytest.raises(LeaseLost):
                call()
        store.release_lease(first)
        assert store.find_leases(ns, [KERNEL])[KERNEL].holder == "b"
        assert dict(store.find_failures(ns, [KERNEL])) == {}

    def test_heartbeats_keep_it(self, store, ns, time):
        lease = store.acquire_lease(ns, KERNEL, "a", ttl=10)
        for _ in range(5):
            time.advance(8)
            store.heartbeat_lease(lease, 10)
            assert isinstance(store.acquire_lease(ns, KERNEL, "b", ttl=10), LeaseState)

    def test_a_holder_that_overslept_holds_it_again_if_nobody_took_it(self, store, ns, time):
        lease = store.acquire_lease(ns, KERNEL, "a", ttl=10)
        time.advance(100)
        assert not store.find_leases(ns, [KERNEL])[KERNEL].held
        store.heartbeat_lease(lease, 10)
        assert store.find_leases(ns, [KERNEL])[KERNEL].held

    def test_a_released_lease_is_free_at_once_and_lost_for_good(self, store, ns):
        first = store.acquire_lease(ns, KERNEL, "a", ttl=10)
        store.release_lease(first)
        store.release_lease(first)
        assert not store.find_leases(ns, [KERNEL])[KERNEL].held
        with pytest.raises(LeaseLost):
            store.heartbeat_lease(first, 10)
        assert store.acquire_lease(ns, KERNEL, "a", ttl=10) == replace(first, fencing_token=2)
        with pytest.raises(LeaseLost):
            store.heartbeat_lease(first, 10)

    def test_the_wall_clock_does_not_matter(self, store, ns, time):
        store.acquire_lease(ns, KERNEL, "a", ttl=10)
        for jump in (10**9 * SECOND, -2 * 10**9 * SECOND):
            time.wall += jump
            assert isinstance(store.acquire_lease(ns, KERNEL, "b", ttl=10), LeaseState)

    def test_a_steady_clock_that_went_back_means_another_boot(self, store, ns, time):
        store.acquire_lease(ns, KERNEL, "a", ttl=10)
        time.steady -= 70 * SECOND
        assert not store.find_leases(ns, [KERNEL])[KERNEL].held
        assert isinstance(store.acquire_lease(ns, KERNEL, "b", ttl=10), Lease)

    def test_a_reader_who_is_a_little_late_does_not_take_a_lease(self, store, ns, time):
        store.acquire_lease(ns, KERNEL, "a", ttl=10)
        time.steady -= 20 * SECOND
        assert isinstance(store.acquire_lease(ns, KERNEL, "b", ttl=10), LeaseState)

    def test_waiters_see_stages_and_time_left(self, store, ns, time):
        lease = store.acquire_lease(ns, KERNEL, "a", ttl=10)
        for stage in ("import", "lower: 'x; --", "codegen"):
            store.report_stage(lease, stage)
        time.advance(4)
        seen = store.find_leases(ns, [KERNEL, *(sha256(str(number)) for number in range(1200))])
        assert list(seen) == [KERNEL]
        assert seen[KERNEL].stages == ("import", "lower: 'x; --", "codegen")
        assert (seen[KERNEL].expires_in, seen[KERNEL].acquired_at) == (6 * SECOND, time.wall - 4 * SECOND)

    @pytest.mark.parametrize("stage", ["", "two\nlines", "a\u2028b", "a\0b"])
    def test_a_stage_is_one_line(self, store, ns, stage):
        lease = store.acquire_lease(ns, KERNEL, "a", ttl=10)
        with pytest.raises(InvalidValue):
            store.report_stage(lease, stage)

    @pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), 1e12])
    def test_a_time_to_live_is_finite_and_positive(self, store, ns, ttl):
        with pytest.raises(InvalidValue):
            store.acquire_lease(ns, KERNEL, "a", ttl)

    def test_a_holder_has_a_name(self, store, ns):
        with pytest.raises(InvalidValue):
            store.acquire_lease(ns, KERNEL, "", 10)


class TestFailures:
    FAILURE = Failure("UNSUPPORTED_OP", "lower", "no lowering for 'fft'", (("op", "stablehlo.fft"),))

    def test_a_failure_is_remembered_until_it_expires(self, store, ns, time):
        start = time.wall
        record = store.record_failure(ns, KERNEL, self.FAILURE, ttl=60)
        assert (record.failure, record.count, record.expires_at) == (self.FAILURE, 1, start + 60 * SECOND)
        assert store.stats(ns).failures == 1
        time.advance(59)
        assert dict(store.find_failures(ns, [KERNEL, sha256("else")])) == {KERNEL: record}
        time.advance(1)
        assert dict(store.find_failures(ns, [KERNEL])) == {}

    def test_failures_are_counted_and_the_last_one_told(self, store, ns, time):
        start = time.wall
        store.record_failure(ns, KERNEL, self.FAILURE, ttl=60)
        time.advance(100)
        again = store.record_failure(ns, KERNEL, replace(self.FAILURE, diagnostic="still"), ttl=60)
        assert (again.count, again.first_at, again.last_at) == (2, start, start + 100 * SECOND)
        assert again.failure.diagnostic == "still"

    def test_a_failure_gives_the_lease_back(self, store, ns):
        lease = store.acquire_lease(ns, KERNEL, "a", ttl=10)
        store.record_failure(ns, KERNEL, self.FAILURE, 60, lease)
        assert isinstance(store.acquire_lease(ns, KERNEL, "b", ttl=10), Lease)

    def test_another_epoch_starts_without_failures(self, store, ns):
        store.record_failure(ns, KERNEL, self.FAILURE, ttl=60)
        assert dict(store.find_failures(store.raise_epoch(ns), [KERNEL])) == {}


class TestUsage:
    def test_deltas_add_up(self, store, ns, time):
        other = sha256("other")
        store.add_usage(ns, [UsageDelta("kernel", KERNEL, 2, 50, 9), UsageDelta("kernel", KERNEL, 1, 10, 7)])
        store.add_usage(ns, [UsageDelta("kernel", KERNEL, 1), UsageDelta("mapping", KERNEL, 5)])
        store.add_usage(ns, [])
        assert dict(store.find_usage(ns, "kernel", [KERNEL, other])) == {
            KERNEL: UsageRecord("kernel", KERNEL, 4, 60, time.wall)
        }
        stats = store.stats(ns)
        assert (stats.hits, stats.saved_us) == (4, 60)

    def test_the_last_use_never_goes_back(self, store, ns):
        for used_at in (100, 50):
            store.add_usage(ns, [UsageDelta("kernel", KERNEL, 1, 0, used_at)])
        assert store.find_usage(ns, "kernel", [KERNEL])[KERNEL].last_used_at == 100

    def test_one_bad_delta_rejects_the_batch(self, store, ns):
        with pytest.raises(InvalidValue):
            store.add_usage(ns, [UsageDelta("kernel", KERNEL, 1), UsageDelta("kernel", b"short", 1)])
        assert dict(store.find_usage(ns, "kernel", [KERNEL])) == {}


class TestAudit:
    EVENT = AuditEvent(
        kind="serve",
        outcome="found",
        origin="stored",
        actor="job'; --",
        peer="ipv4:10.0.0.1:5",
        request_id="r1",
        program_digest=sha256("p"),
        spec_digest=sha256("s"),
        key=5,
        kernel_digest=KERNEL,
        target="x86-64-v3",
        toolchain=sha256("t"),
        duration_us=12,
        byte_count=4096,
        saved_us=10**7,
        detail='{"mapping": "renamed"}',
        at=17,
    )

    def test_events_come_back_in_order_page_by_page(self, store, ns, time):
        events = [replace(self.EVENT, request_id=str(number)) for number in range(7)]
        store.append_audit(ns, events)
        store.append_audit(ns, [AuditEvent("serve")])
        store.append_audit(ns, [])
        first = store.list_audit(ns, limit=5)
        rest = store.list_audit(ns, after_id=first[-1].id)
        assert [record.event for record in first + rest] == [*events, AuditEvent("serve", at=time.wall)]
        assert store.list_audit(ns, after_id=rest[-1].id) == ()
        assert store.stats(ns).audit_events == 8

    def test_a_namespace_sees_its_own(self, store, ns):
        store.append_audit(ns, [self.EVENT])
        assert store.list_audit(store.get_or_create_namespace("other")) == ()

    def test_one_bad_event_rejects_the_batch(self, store, ns):
        with pytest.raises(InvalidValue):
            store.append_audit(ns, [self.EVENT, replace(self.EVENT, program_digest=b"short")])
        assert store.list_audit(ns) == ()


class TestStore:
    def test_stats_count_everything(self, store, ns):
        store.put_graph(ns, graph(0, [b"weights"]), AuditEvent("store"))
        store.put_spec(ns, spec(9))
        store.publish_kernel(ns, kernel(1))
        stats = store.stats(ns)
        assert (stats.specs, stats.mappings, stats.kernels, stats.audit_events) == (2, 1, 1, 1)
        assert (stats.artifacts, stats.artifact_bytes, stats.compile_us) == (3, 7 + 8 + 9, 1501)
        assert store.stats(store.raise_epoch(ns)).kernels == 0

    def test_a_closed_store_says_so(self, store, ns):
        store.check()
        store.close()
        store.close()
        for call in (store.check, lambda: store.get_spec(ns, 1), lambda: store.put_spec(ns, spec(0))):
            with pytest.raises(StoreUnavailable):
                call()

    def test_the_system_clock_is_of_this_boot(self):
        clock = Clock.system()
        assert clock.boot
        assert clock.steady() <= clock.steady()
