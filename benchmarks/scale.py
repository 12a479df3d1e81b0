"""What look-ups, inserts, audit queries and collection cost in a large store, against a small one.

``python -m benchmarks.scale [--db postgresql://HOST/EMPTY --small postgresql://HOST/OTHER] [--specs 200000]``

Fills two stores: one with 1,000,000 mappings, 200,000 specs and kernels and 20 GB worth of artifacts (rows
that name objects of that size, without the objects), one with a thousandth of that. Then it asks both the
same things, interleaved. Without URLs both are SQLite files in a temporary folder.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import Connection, insert, text
from sqlalchemy import Table as SqlTable

from benchmarks.environment import clear_and_restart, description
from benchmarks.rounds import Contender, Sample, interleave
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.lifecycle import Step, What
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
)
from kcache_grpc.storage.schema import (
    artifact_chunks,
    artifacts,
    audit_events,
    graph_mappings,
    kernel_artifacts,
    kernel_ingredients,
    kernels,
    key_counters,
    specs,
    usage,
)
from kcache_grpc.storage.sql.database import Database

#: Mappings a spec, bytes an artifact: 5 and 100 kB, so that 200,000 specs make 1,000,000 mappings and 20 GB.
MAPPINGS, ARTIFACT_BYTES = 5, 100_000
TOOLCHAIN = hashlib.sha256(b"toolchain").digest()
_NOW = 1_750_000_000_000_000
_BATCH = 5000

Question = Callable[[int], object]


def digest(*parts: object) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


def spec_text(number: int) -> str:
    """Of some hundred to some thousand bytes, as specs are."""
    lines = "".join(f"%{line} = add a0[0,1] a0[0,1] : f32[s0,s1]\n" for line in range(4 + number * 31 % 97))
    return f"kcache.spec v2 default\narg a0 f32[s0,s1]\n{lines}ret %{number}\n"


def spec_digest(number: int) -> bytes:
    return hashlib.sha256(spec_text(number).encode()).digest()


def fill(store: Store, count: int) -> Namespace:
    """``count`` specs with all that hangs on them, past the store's own statements: hours else."""
    ns = store.get_or_create_namespace("default")
    database: Database = store._db  # type: ignore[attr-defined]
    for table, rows in _tables(ns, count):
        for batch in _batched(rows):
            database.transact(lambda connection, table=table, batch=batch: _insert(connection, table, batch))
    advance = key_counters.update().where(key_counters.c.namespace_id == ns.id).values(last_key=count)
    database.transact(lambda connection: connection.execute(advance).rowcount)
    database.transact(_settle)
    return ns


def _batched(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], ...]]:
    source = iter(rows)
    while batch := tuple(itertools.islice(source, _BATCH)):
        yield batch


def _insert(connection: Connection, table: SqlTable, batch: Iterable[dict[str, Any]]) -> None:
    connection.execute(insert(table), list(batch))


def _settle(connection: Connection) -> None:
    """As a store that has run for long: statistics, and numbers behind the rows."""
    if connection.dialect.name == "postgresql":
        for table in ("artifacts", "graph_mappings", "kernels", "audit_events"):
            connection.execute(text(f"SELECT setval('{table}_id_seq', (SELECT max(id) FROM {table}))"))
    connection.execute(text("ANALYZE"))


def _tables(ns: Namespace, count: int) -> Iterator[tuple[SqlTable, Iterator[dict[str, Any]]]]:
    here = {"namespace_id": ns.id, "created_at": _NOW}
    epoch = {**here, "epoch": ns.epoch}
    numbers = range(1, count + 1)
    yield specs, (
        {
            **here, "key": n, "spec_digest": spec_digest(n), "numerics": "default", "canonicalizer": 2,
            "family": "stablehlo", "text_size": len(spec_text(n)), "text": spec_text(n),
        }
        for n in numbers
    )  # fmt: skip
    yield graph_mappings, (
        {
            **epoch, "program_digest": digest("program", n, m), "numerics": "default", "key": n,
            "binding": b"b" * 200, "signature": b"s" * 64, "id": (n - 1) * MAPPINGS + m + 1,
        }
        for n in numbers
        for m in range(MAPPINGS)
    )  # fmt: skip
    yield artifacts, ({**here, "id": n, "digest": digest("so", n), "size": ARTIFACT_BYTES} for n in numbers)
    yield artifact_chunks, (
        {
            "artifact_id": n, "generation": 1, "seq": 0, "size": ARTIFACT_BYTES, "content": None,
            "location": f"sha256/{n}",
        }
        for n in numbers
    )  # fmt: skip
    yield kernels, (
        {
            **epoch, "id": n, "kernel_digest": digest("kernel", n), "key": n, "target": "x86-64-v3",
            "options": "numerics=default", "toolchain": TOOLCHAIN, "compile_us": 100_000, "fencing_token": 1,
            "arg_spec": "f32[8,8]", "guard": "", "manifest": b"m" * 900, "signature": b"s" * 64,
        }
        for n in numbers
    )  # fmt: skip
    yield kernel_artifacts, ({"kernel_id": n, "position": 0, "kind": "so", "artifact_id": n} for n in numbers)
    yield (
        kernel_ingredients,
        (
            {"kernel_id": n, "position": position, "name": name, "value": f"{name} {n % 7}"}
            for n in numbers
            for position, name in enumerate(("spec", "target", "toolchain.llvm"))
        ),
    )
    used = {"namespace_id": ns.id, "hits": 3, "saved_us": 1000}
    yield (
        usage,
        (
            {**used, "subject": "kernel", "digest": digest("kernel", n), "last_used_at": _NOW + n}
            for n in numbers
        ),
    )
    yield (
        usage,
        (
            {**used, "subject": "mapping", "digest": digest("program", n, m), "last_used_at": _NOW + n}
            for n in numbers
            for m in range(MAPPINGS)
        ),
    )
    words = dict.fromkeys(("origin", "peer", "request_id", "detail"), "")
    yield audit_events, (
        {
            **words, "namespace_id": ns.id, "epoch": 1, "at": _NOW + n, "writer": f"w{n % 3}",
            "kind": "serve", "outcome": "hit", "actor": f"user{n % 50}", "job": f"job{n % 1000}",
            "target": "x86-64-v3", "kernel_digest": digest("kernel", n), "key": n, "duration_us": 900,
            "byte_count": ARTIFACT_BYTES, "saved_us": 100_000, "toolchain": TOOLCHAIN, "request_count": 1,
        }
        for n in numbers
    )  # fmt: skip


def questions(store: Store, ns: Namespace, count: int) -> dict[str, Question]:
    """What is asked, by name; each takes a number, and asks for something else at each."""
    fresh = itertools.count(count + 1)

    def some(n: int) -> int:
        return n * 7919 % count + 1

    def new_graph(_: int) -> object:
        n = next(fresh)
        draft = SpecDraft(spec_digest(n), spec_text(n), "default", 2)
        signed = SignedBytes(b"b" * 200, b"s" * 64)
        return store.put_graph(ns, GraphDraft(draft, digest("program", n, 0), lambda key: signed))

    def new_kernel(_: int) -> object:
        n = next(fresh)
        content = f"object {n}".encode() * 500
        record = KernelRecord(
            digest("kernel", n), some(n), "f32[9,9]", "", "x86-64-v3", "numerics=default", TOOLCHAIN
        )
        draft = KernelDraft(
            record, SignedBytes(b"m" * 900, b"s" * 64),
            (ArtifactDraft("so", hashlib.sha256(content).digest(), content),), (("spec", "x"),), 1000,
        )  # fmt: skip
        return store.publish_kernel(ns, draft, event=AuditEvent("publish"))

    def lease(_: int) -> object:
        return store.acquire_lease(ns, digest("lease", next(fresh)), "holder", 60)

    return {
        "find a mapping": lambda n: store.find_mapping(
            ns, digest("program", some(n), n % MAPPINGS), "default"
        ),
        "find 100 mappings": lambda n: store.find_mappings(
            ns, [digest("program", some(n + i), 0) for i in range(100)], "default"
        ),
        "find a kernel": lambda n: store.find_kernel(ns, digest("kernel", some(n))),
        "find variants": lambda n: store.find_variants(
            ns, some(n), "x86-64-v3", "numerics=default", TOOLCHAIN
        ),
        "read a spec": lambda n: store.get_spec(ns, some(n)),
        "miss a mapping": lambda n: store.find_mapping(ns, digest("no such program", n), "default"),
        "resolve a key": lambda n: store.resolve_key(ns, some(n)),
        "count specs": lambda n: store.count_specs(ns),
        "specs near in size": lambda n: store.list_spec_sizes(ns, 700 + n % 50, 10),
        "store a new graph": new_graph,
        "publish a kernel": new_kernel,
        "take a lease": lease,
        "add usage of 100": lambda n: store.add_usage(
            ns, [UsageDelta("kernel", digest("kernel", some(n + i)), 1) for i in range(100)]
        ),
        "append 100 events": lambda n: store.append_audit(ns, [AuditEvent("serve") for _ in range(100)]),
        "page the audit log": lambda n: store.list_audit(ns, after_id=some(n), limit=100),
        "collect idle kernels": lambda n: store.collect(ns, Step(What.IDLE_KERNELS, 1, _NOW + count)),
        "collect idle mappings": lambda n: store.collect(ns, Step(What.IDLE_MAPPINGS, 1, _NOW + count)),
        "collect blobs": lambda n: store.collect(ns, Step(What.BLOBS, 1, _NOW + 2 * count)),
        "collect old epochs": lambda n: store.collect(ns, Step(What.EPOCH_KERNELS, 10)),
    }


def measure(large: Store, small: Store, count: int, rounds: int, calls: int) -> dict[str, dict[str, float]]:
    """Medians of both, in microseconds, and their ratio."""
    asked = {
        size: questions(store, fill(store, number), number)
        for size, store, number in (("large", large, count), ("small", small, max(count // 1000, 20)))
    }
    found: dict[str, dict[str, float]] = {}
    for name in asked["large"]:
        samples = interleave(
            {size: _contender(each[name]) for size, each in asked.items()}, rounds=rounds, calls=calls
        )
        found[name] = _row(samples)
    return found


def _contender(question: Question) -> Contender:
    numbers = itertools.count()

    def run(count: int) -> None:
        for _ in range(count):
            question(next(numbers))

    return run


def _row(samples: dict[str, Sample]) -> dict[str, float]:
    pairs = zip(samples["large"].seconds, samples["small"].seconds, strict=True)
    ratios = sorted(large / small for large, small in pairs)
    return {
        "large_us": samples["large"].median * 1e6,
        "small_us": samples["small"].median * 1e6,
        "ratio": ratios[len(ratios) // 2],
        "ratio_low": ratios[0],
        "ratio_high": ratios[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--db", default="", help="an empty database for the large store")
    parser.add_argument("--small", default="", help="another one for the small store")
    parser.add_argument("--specs", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out")
    chosen = parser.parse_args()
    clear_and_restart("benchmarks.scale")
    with tempfile.TemporaryDirectory() as folder:
        urls = [
            chosen.db or f"sqlite:///{folder}/large.sqlite",
            chosen.small or f"sqlite:///{folder}/s.sqlite",
        ]
        began = time.monotonic()
        with open_store(urls[0], migrate=True) as large, open_store(urls[1], migrate=True) as small:
            found = measure(large, small, chosen.specs, rounds=7, calls=25)
        kind = urls[0].partition(":")[0]
    shown = Table(
        "question", "us, small", "us, large", "ratio (low to high)", title=f"{kind}, {chosen.specs:,} specs"
    )
    for name, row in found.items():
        ratio = f"{row['ratio']:.2f}x ({row['ratio_low']:.2f} to {row['ratio_high']:.2f})"
        shown.add_row(name, f"{row['small_us']:,.0f}", f"{row['large_us']:,.0f}", ratio)
    Console(width=110).print(shown)
    chosen.out.mkdir(parents=True, exist_ok=True)
    report = {"environment": description(), "seconds": time.monotonic() - began, "questions": found}
    (chosen.out / f"scale-{kind}.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
