"""SQLite against the oracle in memory: any sequence of calls has the same results on both."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.contract.lifecycle import PINNABLE, RESOURCES, Collected, RowKind, Step
from kcache_grpc.storage.errors import StorageError
from kcache_grpc.storage.records import AuditEvent, Failure, Lease, Namespace, UsageDelta, Wanted
from tests.storage.drafts import Time, blob, graph, kernel, mapping, program, sha256, spec
from tests.storage.inside import assert_sound, hurry

few = st.integers(0, 3)
keys = st.integers(0, 4)
contents = st.sampled_from([b"", b"object 1", b"shared IR", b"weights", b"x" * 3000])
events = st.one_of(st.none(), st.builds(AuditEvent, kind=st.sampled_from(["store", "publish"])))
guards = st.sampled_from(["", "s0 % 8 == 0"])
WANTED = Wanted("x86-64-v3", "numerics=default", sha256("toolchain"), frozenset({"so", "llvm"}), 100)
ttls = st.sampled_from([1.0, 10.0])


class Stores(RuleBasedStateMachine):
    """Two stores on one pair of clocks."""

    template: Path

    @initialize()
    def open(self) -> None:
        self.time = Time()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "store.sqlite"
        shutil.copy(self.template, self.path)
        self.oracle = open_store("memory:", clock=self.time.clock)
        self.sqlite = open_store(f"sqlite:///{self.path}", clock=self.time.clock)
        hurry(self.sqlite)
        self.namespaces = [
            self.both(lambda store, name=name: store.get_or_create_namespace(name)) for name in ("a", "b")
        ]
        self.leases: list[Lease] = []

    def teardown(self) -> None:
        if hasattr(self, "sqlite"):
            self.sqlite.close()
            assert_sound(self.path)
            self.folder.cleanup()

    def both(self, call: Callable[[Store], Any]) -> Any:
        """The result of ``call``, or the class of its error, which are the same on both."""
        results: list[Any] = []
        for store in (self.oracle, self.sqlite):
            try:
                results.append(call(store))
            except StorageError as error:  # noqa: PERF203 (the error is the result)
                results.append(type(error))
        assert results[0] == results[1]
        return results[0]

    def ns(self, index: int) -> Namespace:
        return self.namespaces[index % 2]

    @rule(seconds=st.sampled_from([0.5, 5, 20]))
    def time_passes(self, seconds: float) -> None:
        self.time.advance(seconds)

    @rule(seconds=st.sampled_from([-1000, 1000]))
    def wall_clock_jumps(self, seconds: int) -> None:
        self.time.wall += seconds * 1_000_000

    @rule(which=few)
    def raise_epoch(self, which: int) -> None:
        self.namespaces[which % 2] = self.both(lambda store: store.raise_epoch(self.ns(which)))

    @rule(which=few, number=few)
    def put_spec(self, which: int, number: int) -> None:
        self.both(lambda store: store.put_spec(self.ns(which), spec(number)))

    @rule(which=few, number=few, key=keys, constants=st.lists(contents, max_size=2))
    def put_mapping(self, which: int, number: int, key: int, constants: list[bytes]) -> None:
        draft = mapping(number, key, [sha256(content) for content in constants])
        self.both(lambda store: store.put_mapping(self.ns(which), draft))

    @rule(which=few, number=few, constants=st.lists(contents, max_size=2), event=events)
    def put_graph(self, which: int, number: int, constants: list[bytes], event: AuditEvent | None) -> None:
        self.both(lambda store: store.put_graph(self.ns(which), graph(number, constants), event))

    @rule(which=few, alias=keys, key=keys)
    def add_alias(self, which: int, alias: int, key: int) -> None:
        self.both(lambda store: store.add_alias(self.ns(which), alias, key))

    @rule(which=few, content=contents)
    def put_constant(self, which: int, content: bytes) -> None:
        self.both(lambda store: store.put_constants(self.ns(which), [blob(content)]))

    @rule(which=few, number=few, content=contents)
    def put_program(self, which: int, number: int, content: bytes) -> None:
        self.both(lambda store: store.put_program(self.ns(which), program(number), "linalg", content))

    @rule(which=few, content=contents)
    def quarantine(self, which: int, content: bytes) -> None:
        self.both(lambda store: store.quarantine_artifact(self.ns(which), sha256(content), "why"))

    @rule(which=few, number=few, key=keys, so=st.one_of(st.none(), contents), guard=guards, event=events)
    def publish(
        self, which: int, number: int, key: int, so: bytes | None, guard: str, event: AuditEvent | None
    ) -> None:
        draft = kernel(number, key, so=so, guard=guard)
        self.both(lambda store: store.publish_kernel(self.ns(which), draft, None, event))

    @rule(which=few, number=few, holder=st.sampled_from("ab"), ttl=ttls)
    def acquire(self, which: int, number: int, holder: str, ttl: float) -> None:
        digest = kernel(number).kernel.kernel_digest
        lease = self.both(lambda store: store.acquire_lease(self.ns(which), digest, holder, ttl))
        if isinstance(lease, Lease):
            self.leases.append(lease)

    @rule(pick=st.integers(0, 99), number=few, action=st.integers(0, 4), event=events)
    def use_lease(self, pick: int, number: int, action: int, event: AuditEvent | None) -> None:
        if not self.leases:
            return
        lease = self.leases[pick % len(self.leases)]
        ns, digest = lease.namespace, lease.kernel_digest
        failure = Failure("COMPILE_FAILED", "lower", str(number), (("op", "x"),))
        calls: list[Callable[[Store], Any]] = [
            lambda store: store.heartbeat_lease(lease, 5),
            lambda store: store.report_stage(lease, f"stage {number}"),
            lambda store: store.release_lease(lease),
            lambda store: store.record_failure(ns, digest, failure, 30, lease),
            lambda store: store.publish_kernel(ns, kernel(number), lease, event),
        ]
        self.both(calls[action])

    @rule(which=few, hits=few, saved=few, used_at=st.sampled_from([0, 5, 10**15]))
    def use(self, which: int, hits: int, saved: int, used_at: int) -> None:
        deltas = [
            UsageDelta("kernel", sha256(str(hits % 2)), hits, saved, used_at),
            UsageDelta("spec", sha256(""), 1),
        ]
        self.both(lambda store: store.add_usage(self.ns(which), deltas))

    @rule(which=few, resource=st.sampled_from(RESOURCES), most=st.sampled_from([0, 1, 3, 40]))
    def limit(self, which: int, resource: str, most: int) -> None:
        self.both(lambda store: store.set_quota(self.ns(which), resource, most, "refuse"))

    @rule(which=few, resource=st.sampled_from(RESOURCES))
    def lift_limit(self, which: int, resource: str) -> None:
        self.both(lambda store: store.remove_quota(self.ns(which), resource))

    @rule(which=few, number=few, subject=st.sampled_from(PINNABLE), on=st.booleans())
    def pin(self, which: int, number: int, subject: str, on: bool) -> None:
        names = (kernel(number).kernel.kernel_digest, program(number), spec(number).spec_digest)
        digest = names[PINNABLE.index(subject)]
        self.both(lambda store: (store.pin if on else store.unpin)(self.ns(which), subject, digest))

    @rule(which=few, on=st.booleans())
    def disown(self, which: int, on: bool) -> None:
        toolchain = kernel(0).kernel.toolchain
        self.both(
            lambda store: (store.disown_toolchain if on else store.readmit_toolchain)(
                self.ns(which), toolchain
            )
        )

    @rule(
        which=few,
        what=st.sampled_from(RowKind),
        limit=st.integers(1, 5),
        age=st.sampled_from([-100, 0, 3, 10]),
        dry_run=st.booleans(),
    )
    def collect(self, which: int, what: RowKind, limit: int, age: int, dry_run: bool) -> None:
        """To the end of a kind: nothing that anything refers to is gone afterwards (``assert_sound``)."""
        before, after = max(0, self.time.wall - age * 1_000_000), None
        while True:
            step = Step(what, limit, before, after, dry_run)
            done = self.both(lambda store, step=step: plain(store.collect(self.ns(which), step)))
            if isinstance(done, type) or (after := done.after) is None:
                return

    @rule(which=few, number=few)
    def discard(self, which: int, number: int) -> None:
        event = AuditEvent("verify", outcome="differs")
        names = ([kernel(number).kernel.kernel_digest], [(program(number), "default")])
        self.both(lambda store: store.discard(self.ns(which), *names, event))

    @invariant()
    def looks_the_same(self) -> None:
        if hasattr(self, "namespaces"):
            for namespace in self.namespaces:
                self.both(lambda store, ns=namespace: look(store, ns))


def plain(done: Collected) -> Collected:
    """The references in any order."""
    return replace(done, uses=tuple(sorted(done.uses, key=lambda use: use.digest)))


def look(store: Store, ns: Namespace) -> list[Any]:
    """All that can be asked."""
    kernels = [kernel(number).kernel.kernel_digest for number in range(4)]
    blobs = [
        sha256(content) for content in (b"", b"object 1", b"object 2", b"shared IR", b"weights", b"x" * 3000)
    ]
    key = store.count_specs(ns)
    return [
        [store.get_spec(ns, number) for number in range(6)],
        [store.find_spec(ns, spec(number).spec_digest) for number in range(4)],
        [store.resolve_key(ns, number) for number in range(6)],
        dict(store.find_mappings(ns, [program(number) for number in range(4)], "default")),
        [store.get_program(ns, program(number)) for number in range(4)],
        [(store.artifact_size(ns, digest), store.read_artifact(ns, digest, 1, 5)) for digest in blobs],
        dict(store.find_kernels(ns, kernels)),
        [store.load_kernel(ns, digest, WANTED) for digest in kernels],
        [store.load_graph(ns, program(number), "default", WANTED) for number in range(4)],
        [store.find_variants(ns, key, "x86-64-v3", "numerics=default", sha256("toolchain"))],
        [store.list_kernels(ns, key, 2), [store.list_ingredients(ns, digest) for digest in kernels]],
        [store.list_mappings(ns, number, 3) for number in range(6)],
        [store.list_spec_sizes(ns, size, 3) for size in (0, 40, 10**6)],
        [store.list_near_kernels(ns, replace(kernel(0).kernel, key=number), 3) for number in range(6)],
        dict(store.find_leases(ns, kernels)),
        dict(store.find_failures(ns, kernels)),
        dict(store.find_usage(ns, "kernel", [sha256("0"), sha256("1")])),
        # Engines tell more or less of a collection.
        [each.event for each in store.list_audit(ns, limit=1000) if each.event.kind != "collect"],
        (dict(store.list_quotas(ns)), store.list_pins(ns), store.list_disowned(ns)),
        (store.page_kernels(ns, 0, 9), store.page_mappings(ns, None, 9)),
        store.list_conflicts(ns, limit=1000),
        replace(store.stats(ns), audit_events=0),
    ]


def run(template: Path, examples: int, steps: int) -> None:
    machine = type("Machine", (Stores,), {"template": template})
    slow = [HealthCheck.too_slow]
    wanted = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=slow
    )
    run_state_machine_as_test(machine, settings=wanted)


def test_any_sequence_of_calls(template):
    run(template, examples=6, steps=40)


@pytest.mark.long
def test_many_sequences_of_calls(template):
    run(template, examples=300, steps=80)
