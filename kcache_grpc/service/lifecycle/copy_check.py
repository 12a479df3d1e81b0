"""Checks of a copy of a store: every digest, every signature. What is damaged can be taken out of it."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from kcache_grpc.model.program import ProgramFormat, program_digest
from kcache_grpc.model.signing import key_id_of
from kcache_grpc.service.audit import proof
from kcache_grpc.service.lifecycle.verify import Counts, Fault, Verification
from kcache_grpc.storage.backup import damaged_blobs, make_one_file
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.opening import open_store
from kcache_grpc.storage.records import Namespace
from kcache_grpc.storage.sql.engine.errors import translated

#: Findings by the name of their namespace; that of the audit log has none.
Named = tuple[str, Fault]

_SPECS = """
SELECT n.name, s.key, s.spec_digest, s.text FROM specs s JOIN namespaces n ON n.id = s.namespace_id
"""
_PROGRAMS = "SELECT program_digest FROM programs WHERE namespace_id = ?"
_OUT = "left out: the next compile repairs it"


@dataclass(frozen=True)
class Examined:
    """What is damaged in a copy. ``signatures``: whether they were checked, for which the key is needed."""

    faults: tuple[Named, ...]
    signatures: bool


def examine_copy(path: Path, objects: str | None, key: bytes | None, *, leave_out: bool = False) -> Examined:
    """Check specs, bytes, programs, kernels and mappings of all epochs, and the chains of the audit log.

    ``path``: a file that nobody else uses, whose schema is this version's. ``objects``: URL of its object
    store, whose bytes are not read. ``key``: the public key of the signer; without it, or with another one,
    that which the store itself names is used. ``leave_out``: kernels, mappings and bytes that are damaged are
    taken out of the file; specs and events stay. Raises ``CorruptStore`` for a file that cannot be read.
    """
    with open_store(f"sqlite:///{path}", objects=objects) as store:
        known = [writer.public_key for writer in store.list_writers() if writer.public_key]
        signer = store.find_signer()
        public_key = next((each for each in (key, *known) if each and key_id_of(each) == signer), None)
        faults = [
            *_specs(path),
            *_blobs(store, path, leave_out),
            *_programs(store, path, leave_out),
            *_rows(store, public_key, known, leave_out),
            *_chains(store),
        ]
    make_one_file(path)
    return Examined(tuple(faults), signer is None or public_key is not None)


def _specs(path: Path) -> Iterator[Named]:
    with translated(), closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        for namespace, key, digest, text in connection.execute(_SPECS):
            if hashlib.sha256(text).digest() != digest:
                problem = f"the text of spec {key} does not hash to its digest"
                action = "left: specs are never removed; nothing is served from it"
                yield namespace.decode(), Fault("spec", digest, problem, action)


def _blobs(store: Store, path: Path, leave_out: bool) -> Iterator[Named]:
    for name, digest, problem in list(damaged_blobs(path)):
        if leave_out and store.verify_artifact(_namespace(store, name), digest):
            store.quarantine_artifact(_namespace(store, name), digest, problem)
        yield name, Fault("artifact", digest, problem, _OUT if leave_out else "left")


def _programs(store: Store, path: Path, leave_out: bool) -> Iterator[Named]:
    for namespace in store.list_namespaces():
        with translated(), closing(sqlite3.connect(path)) as connection:
            digests = [row[0] for row in connection.execute(_PROGRAMS, (namespace.id,))]
        for digest in digests:
            program = store.get_program(namespace, digest)
            if program is None or _is_program(digest, *program):
                continue
            if leave_out:
                store.quarantine_artifact(
                    namespace, hashlib.sha256(program[1]).digest(), "it is another program"
                )
            problem = "the kept program does not hash to its digest"
            yield namespace.name, Fault("program", digest, problem, _OUT if leave_out else "left")


def _is_program(digest: bytes, format: str, body: bytes) -> bool:
    try:
        return program_digest(ProgramFormat(format), body) == digest
    except ValueError:
        return False


def _rows(store: Store, public_key: bytes | None, known: list[bytes], leave_out: bool) -> Iterator[Named]:
    """Kernels and mappings. Those of earlier epochs may be signed by any key that the store names."""
    for namespace in store.list_namespaces():
        for epoch in range(1, namespace.epoch + 1):
            former = known if epoch < namespace.epoch else ()
            checks = Verification(store, public_key, former=former, blobs=False)
            of_epoch = replace(namespace, epoch=epoch)
            repair = leave_out and public_key is not None
            for event in checks.steps(of_epoch, None, repair=repair, confirmed=True):
                # Specs are named once, separately.
                if not isinstance(event, Counts) and event.subject != "spec":
                    action = event.action if repair and not event.action.startswith("left") else "left"
                    yield namespace.name, replace(event, action=action)


def _chains(store: Store) -> Iterator[Named]:
    for chain in proof.Verification(store).all():
        for finding in chain.findings:
            where = f"seal {finding.sequence}" if finding.event_id is None else f"event {finding.event_id}"
            problem = f"{where} of writer {chain.writer}: {finding.problem}"
            yield "", Fault("audit", bytes(32), problem, "left: it says what it says")


def _namespace(store: Store, name: str) -> Namespace:
    namespace = store.find_namespace(name)
    assert namespace is not None
    return namespace
