"""A store of a schema revision, with data, as a file of SQL.

``python -m tests.storage.dump`` writes that of the present revision: once, when it is released. Such a file
never changes afterwards; every later version must bring it to its own schema.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.contract.assertions import AssertionDraft
from kcache_grpc.storage.contract.blob_cache import ValueDraft
from kcache_grpc.storage.records import AuditEvent, Failure, UsageDelta
from kcache_grpc.storage.schema import APPLICATION_ID, SCHEMA_REVISION
from tests.storage.drafts import Time, graph, kernel, mapping, sha256, spec
from tests.storage.inside import raw

SCHEMAS = Path(__file__).parent / "schemas"


def fill(store: Store) -> None:
    """A little of everything."""
    ns = store.get_or_create_namespace("default")
    store.put_graph(ns, graph(0, [b"weights"]), AuditEvent("store", actor="job"))
    store.put_spec(ns, spec(1))
    store.put_mapping(ns, mapping(7, key=2))
    store.publish_kernel(ns, kernel(1, extra=[("asm", b"")]), event=AuditEvent("publish"))
    store.acquire_lease(ns, kernel(2).kernel.kernel_digest, "holder", ttl=10)
    store.record_failure(ns, kernel(3).kernel.kernel_digest, Failure("COMPILE_FAILED", "lower", "no"), 60)
    store.add_usage(ns, [UsageDelta("kernel", kernel(1).kernel.kernel_digest, 3, 4500)])
    store.put_values(ns, [ValueDraft.of(sha256("key"), sha256(b"value"), b"value", "key", 7)])
    asserted = store.put_assertion(
        ns, AssertionDraft(sha256("source"), "local", b"{}", (sha256("program"),), "torch 2.13", "ci")
    ).assertion
    store.put_assertion(ns, AssertionDraft(sha256("source"), "local", b"[]"))
    store.dispute_assertion(ns, asserted, sha256("observed"), "local", "another program")
    store.add_assertion_hits(ns, {asserted.id: 1})
    store.set_trusted_roles(ns, ["ci"])
    store.raise_epoch(store.get_or_create_namespace("other"))


def sql_of(path: Path) -> str:
    """The database as SQL. Tables come with their rows first, then triggers, which would reject them."""
    with raw(path) as connection:
        return "\n".join([f"PRAGMA application_id = {APPLICATION_ID};", *connection.iterdump(), ""])


def load(sql: str, path: Path) -> None:
    """Make a database from ``sql_of``."""
    with raw(path) as connection:
        connection.executescript(sql)


def main() -> None:
    target = SCHEMAS / f"{SCHEMA_REVISION}.sql"
    assert not target.exists(), f"{target} is released and never changes"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        with open_store(f"sqlite:///{path}", migrate=True, clock=Time().clock) as store:
            fill(store)
        target.write_text(sql_of(path))


if __name__ == "__main__":
    main()
