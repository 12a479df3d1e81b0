"""What is asked of stores that ``filling`` filled."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
import secrets
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timezone

from sqlalchemy import text

from benchmarks.services.filling import (
    EVENTS,
    JOB_EVENTS,
    MAPPINGS,
    NOW,
    RARE_TOOLCHAIN,
    TOOLCHAIN,
    digest,
    job_of,
    spec_digest,
    spec_text,
    toolchain_of,
)
from kcache_grpc.storage import Store
from kcache_grpc.storage.audit.filter import parse_filter
from kcache_grpc.storage.contract.lifecycle import RowKind, Step
from kcache_grpc.storage.records import (
    ArtifactDraft,
    AuditEvent,
    GraphDraft,
    KernelDraft,
    KernelRecord,
    Namespace,
    SignedBytes,
    SpecDraft,
    UsageDelta,
    Wanted,
)
from kcache_grpc.storage.sql.engine.database import Database

#: Later than any use.
_EVER = 2**62
_OF_JOB = text(
    "SELECT key, target, kernel_digest, compiled, served, compile_us, saved_us, first_at, last_at"
    " FROM v_job_kernels WHERE namespace = 'default' AND job = :job ORDER BY first_at"
)
_KERNEL_USERS = text(
    "SELECT actor, job, peer, compiled, served, bytes, first_at, last_at FROM v_kernel_users"
    " WHERE namespace = 'default' AND kernel_digest = :kernel"
)
_TOOLCHAIN_ARTIFACTS = text(
    "SELECT kernel_digest, kind, artifact_digest, size, actor, job, requests, last_at"
    " FROM v_toolchain_artifacts WHERE toolchain = :toolchain ORDER BY last_at DESC"
)
_TOP_MISSES = text(
    "SELECT reason, program_digest, target, misses, last_actor, last_job FROM v_misses"
    " WHERE namespace = 'default' ORDER BY misses DESC LIMIT 20"
)
_TIME_SAVED = text(
    "SELECT namespace, day, served, saved_us / 1000000 AS saved_seconds, compiled,"
    " compile_us / 1000000 AS compile_seconds FROM v_time_saved ORDER BY namespace, day"
)
_SIGNED = SignedBytes(b"b" * 200, b"s" * 64)


@dataclass(frozen=True)
class Question:
    """``ask`` takes a number, and asks for another thing at each. ``uses_up``: it removes what it finds."""

    ask: Callable[[int], object]
    uses_up: bool = False


def questions(store: Store, ns: Namespace, count: int) -> dict[str, Question]:
    """By name. All of them have about as much to find in a small store as in a large one."""
    plain = {
        **_look_ups(store, ns, count),
        **_loop_look_ups(store, ns, count),
        **_inserts(store, ns, count),
        **_audit(store, ns, count),
    }
    return {name: Question(ask) for name, ask in plain.items()} | _collections(store, ns)


def _some(count: int, number: int) -> int:
    return number * 7919 % count + 1


def _wanted(number: int) -> Wanted:
    return Wanted("x86-64-v3", "numerics=default", toolchain_of(number), frozenset({"so"}), 1 << 20)


class _Loop:
    """An event loop that waits for one answer at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        weakref.finalize(self, self._loop.close)

    def wait(self, ask: Callable[[], Awaitable[object] | None]) -> object:
        """The answer, as soon as there is a connection for the question."""
        return self._loop.run_until_complete(self._asked(ask))

    async def _asked(self, ask: Callable[[], Awaitable[object] | None]) -> object:
        while (asking := ask()) is None:  # noqa: ASYNC110 (nothing tells when there is one)
            await asyncio.sleep(0.001)
        return await asking


def _loop_look_ups(store: Store, ns: Namespace, count: int) -> dict[str, Callable[[int], object]]:
    """What a server's event loop asks by itself, of a database that it can ask."""
    database: Database = store._db  # type: ignore[attr-defined]
    if not database.shared:
        return {}
    loop, some = _Loop(), functools.partial(_some, count)

    def ask(n: int) -> object:
        program = digest("program", some(n), n % MAPPINGS)
        return loop.wait(lambda: store.ask_graph(ns, program, "default", _wanted(some(n))))

    return {"load a hit in an event loop": ask}


def _look_ups(store: Store, ns: Namespace, count: int) -> dict[str, Callable[[int], object]]:
    some = functools.partial(_some, count)

    return {
        "load a hit": lambda n: store.load_graph(
            ns, digest("program", some(n), n % MAPPINGS), "default", _wanted(some(n))
        ),
        "load a kernel": lambda n: store.load_kernel(ns, digest("kernel", some(n)), _wanted(some(n))),
        "find a mapping": lambda n: store.find_mapping(
            ns, digest("program", some(n), n % MAPPINGS), "default"
        ),
        "find 100 mappings": lambda n: store.find_mappings(
            ns, [digest("program", some(100 * n + i), 0) for i in range(100)], "default"
        ),
        "miss a mapping": lambda n: store.find_mapping(ns, digest("no such program", n), "default"),
        "find a kernel": lambda n: store.find_kernel(ns, digest("kernel", some(n))),
        "find variants": lambda n: store.find_variants(
            ns, some(n), "x86-64-v3", "numerics=default", toolchain_of(some(n))
        ),
        "read a spec": lambda n: store.get_spec(ns, some(n)),
        "resolve a key": lambda n: store.resolve_key(ns, some(n)),
        "count specs": lambda n: store.count_specs(ns),
        "specs near in size": lambda n: store.list_spec_sizes(ns, 700 + n % 50, 64),
        "compile times of a key": lambda n: store.list_compile_times(ns, some(n), None, 64),
        "compile times for a target": lambda n: store.list_compile_times(ns, some(n), "x86-64-v3", 64),
        "operations of 16 specs": lambda n: store.count_operations(ns, [some(n + i) for i in range(16)]),
        "savings by caller": lambda _: store.list_savings(ns, 100),
        "find usage of 100": lambda n: store.find_usage(
            ns, "kernel", [digest("kernel", some(100 * n + i)) for i in range(100)]
        ),
    }


def _inserts(store: Store, ns: Namespace, count: int) -> dict[str, Callable[[int], object]]:
    some = functools.partial(_some, count)
    # Numbers that no run before took: a store may be used again.
    fresh = itertools.count(secrets.randbelow(2**40) + 2**33)

    def new_graph(_: int) -> object:
        n = next(fresh)
        draft = SpecDraft(spec_digest(n), spec_text(n), "default", 2)
        return store.put_graph(ns, GraphDraft(draft, digest("program", n, 0), lambda key: _SIGNED))

    def new_kernel(_: int) -> object:
        n = next(fresh)
        content = f"object {n}".encode() * 500
        record = KernelRecord(
            digest("kernel", n), some(n), "f32[9,9]", "", "x86-64-v3", "numerics=default", TOOLCHAIN
        )
        draft = KernelDraft(
            record,
            SignedBytes(b"m" * 900, b"s" * 64),
            (ArtifactDraft("so", hashlib.sha256(content).digest(), content),),
            (("spec", "x"),),
            1000,
        )
        return store.publish_kernel(ns, draft, event=AuditEvent("publish"))

    return {
        "store a new graph": new_graph,
        "publish a kernel": new_kernel,
        "take a lease": lambda n: store.acquire_lease(ns, digest("lease", next(fresh)), "holder", 60),
        "add usage of 100": lambda n: store.add_usage(
            ns, [UsageDelta("kernel", digest("kernel", some(100 * n + i)), 1) for i in range(100)]
        ),
        "append 100 events": lambda n: store.append_audit(
            # Of kernels that no question names: those have as many events as they were filled with.
            ns,
            [AuditEvent("serve", job="new", kernel_digest=digest("another kernel", n))] * 100,
        ),
    }


def _audit(store: Store, ns: Namespace, count: int) -> dict[str, Callable[[int], object]]:
    """Pages of 100 at most."""
    events = count * EVENTS
    database: Database = store._db  # type: ignore[attr-defined]
    some = functools.partial(_some, count)

    def job(n: int) -> str:
        return job_of(n * JOB_EVENTS * 7919 % events)

    def page(text: str, cursor: int | None = None, *, newest_first: bool = False) -> object:
        condition = parse_filter(text)
        return store.find_events(ns, condition, cursor=cursor, newest_first=newest_first, limit=100)

    def during(n: int) -> str:
        """Times of 100 events."""
        at = (NOW + n * 100 * 7919 % (events - 100) * 1000) / 1e6
        return f'time >= "{_iso(at)}" AND time < "{_iso(at + 0.1)}"'

    def since(n: int) -> str:
        """Nearly all times."""
        return f'time >= "{_iso((NOW + n % 50 * 1000) / 1e6)}"'

    return {
        "list events": lambda n: store.list_audit(ns, after_id=n * 7919 % (events - 100), limit=100),
        "audit: all": lambda n: page("", n * 7919 % (events - 100)),
        "audit: newest": lambda n: page("", newest_first=True),
        "audit: job": lambda n: page(f"job = {job(n)}"),
        "audit: job, newest first": lambda n: page(f"job = {job(n)}", newest_first=True),
        "audit: misses of a job": lambda n: page(f"job = {job(n)} AND kind = miss"),
        "audit: kernel": lambda n: page(f"kernel_digest = {digest('kernel', some(n)).hex()}"),
        "audit: kernel by prefix": lambda n: page(f"kernel_digest:{digest('kernel', some(n)).hex()[:12]}"),
        "audit: short time": lambda n: page(during(n)),
        "audit: job since": lambda n: page(f"job = {job(n)} AND {since(n)}"),
        "audit: since": lambda n: page(since(n), n * 7919 % max(1, events - 2000)),
        "audit: kernels of a digit": lambda n: page(f"kernel_digest:{n % 16:x}", n * 7919 % (events - 100)),
        "audit: other jobs' kernels": lambda n: page(
            f"job != {job(n)} AND kernel_digest:*", n * 7919 % (events - 500)
        ),
        "audit view: job": lambda n: database.fetch(_OF_JOB, {"job": job(n)}),
        "audit view: users of a kernel": lambda n: database.fetch(
            _KERNEL_USERS, {"kernel": digest("kernel", some(n)).hex()}
        ),
        "audit view: toolchain": lambda _: database.fetch(
            _TOOLCHAIN_ARTIFACTS, {"toolchain": RARE_TOOLCHAIN.hex()}
        ),
        "audit view: top misses": lambda _: database.fetch(_TOP_MISSES),
        "audit view: time saved": lambda _: database.fetch(_TIME_SAVED),
        "audit: misses": lambda n: page("kind = miss", n * 7919 % (events - 500)),
        "audit: user": lambda n: page(f"actor = user{n % 50}", n * 7919 % max(1, events - 2000)),
        "audit: nothing passes": lambda n: page("actor = nobody", n * 7919 % max(1, events - 2000)),
        # As a seal lists them: every third, as three writers append here.
        "audit: read 100 of a seal": lambda n: store.read_events(
            [1 + n * 7919 % (events - 300) + 3 * i for i in range(100)]
        ),
        "audit: list writers": lambda n: store.list_writers(),
    }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="microseconds")


def _collections(store: Store, ns: Namespace) -> dict[str, Question]:
    """Steps of each kind: counting as many rows as ``kcache gc`` does, and removing a few."""
    kinds = {
        RowKind.DISOWNED_KERNELS: 2,
        RowKind.IDLE_KERNELS: 4,
        RowKind.IDLE_MAPPINGS: 10,
        RowKind.BLOBS: 100,
        RowKind.CONSTANTS: 100,
        RowKind.PROGRAMS: 100,
        RowKind.EPOCH_KERNELS: 10,
        RowKind.EPOCH_MAPPINGS: 10,
        RowKind.FAILURES: 10,
        RowKind.LEASES: 10,
        RowKind.QUARANTINED: 1,
    }

    def step(what: RowKind, limit: int, *, dry_run: bool = False) -> Question:
        step = Step(what, limit, _EVER, dry_run=dry_run)
        return Question(lambda _: store.collect(ns, step), not dry_run)

    counted = {f"gc counts {what.value}": step(what, 30, dry_run=True) for what in kinds}
    return counted | {f"gc removes {limit} {what.value}": step(what, limit) for what, limit in kinds.items()}
