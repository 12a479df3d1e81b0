"""Checks of arguments that every store makes before it reads or writes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from kcache_grpc.storage.contract.assertions import AssertionDraft
from kcache_grpc.storage.contract.autotune import Timing
from kcache_grpc.storage.contract.blob_cache import ValueDraft
from kcache_grpc.storage.contract.lifecycle import EVICT, PINNABLE, REFUSE, RESOURCES, Step
from kcache_grpc.storage.errors import DigestMismatch, InvalidValue
from kcache_grpc.storage.records import (
    AuditEvent,
    Failure,
    GraphDraft,
    KernelDraft,
    KernelRecord,
    Lease,
    MappingDraft,
    Namespace,
    SpecDraft,
    UsageDelta,
)

#: A role of a principal.
_ROLE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
#: Keys, counters and sizes are 64-bit signed in every database.
MAX_INT = 2**63 - 1
#: Longest namespace name: it is part of an index.
MAX_NAME_CHARS = 200
#: Longest text in an index (target, options, numerics): Postgres rejects index rows above 2,700 bytes.
MAX_INDEXED_BYTES = 800


def digest(subject: str, value: bytes) -> None:
    """Raises ``InvalidValue`` unless ``value`` has the size of a SHA-256."""
    if len(value) != 32:
        raise InvalidValue(f"{subject} has {len(value)} bytes, a digest has 32")


def digests(subject: str, values: Iterable[bytes]) -> None:
    """``digest`` for each."""
    for value in values:
        digest(subject, value)


def signer(key_id: bytes) -> None:
    """Raises ``InvalidValue`` unless ``key_id`` has the size of one."""
    if len(key_id) != 8:
        raise InvalidValue(f"a key id has 8 bytes, not {len(key_id)}")


def text(subject: str, *values: str) -> None:
    """Raises ``InvalidValue`` for text that some database cannot keep: lone surrogates, NUL."""
    for value in values:
        if value.isascii() and "\0" not in value:
            continue
        if "\0" in value:
            raise InvalidValue(f"{subject} contains a NUL character")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidValue(f"{subject} has no UTF-8 form: {error.reason}") from error


def indexed(subject: str, *values: str) -> None:
    """``text``, and short enough for an index."""
    text(subject, *values)
    for value in values:
        if len(value.encode()) > MAX_INDEXED_BYTES:
            raise InvalidValue(f"{subject} is longer than {MAX_INDEXED_BYTES} bytes")


def namespace_name(name: str) -> None:
    """1 to 200 printable characters."""
    text("namespace name", name)
    if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise InvalidValue(f"namespace name must be 1 to {MAX_NAME_CHARS} printable characters")


def number(subject: str, *values: int, least: int = 0) -> None:
    """Raises ``InvalidValue`` for what does not fit 64 bits or is below ``least``."""
    for value in values:
        if not least <= value <= MAX_INT:
            raise InvalidValue(f"{subject} is {value}, outside of [{least}, {MAX_INT}]")


def named_bytes(subject: str, name: bytes, content: bytes) -> None:
    """Raises ``DigestMismatch`` unless ``content`` hashes to ``name``."""
    digest(subject, name)
    if hashlib.sha256(content).digest() != name:
        raise DigestMismatch(f"{subject} does not hash to its digest {name.hex()}")


def spec(draft: SpecDraft) -> None:
    """A spec that may be stored."""
    text("spec text", draft.text)
    indexed("numerics", draft.numerics)
    indexed("family", draft.family)
    number("canonicalizer", draft.canonicalizer)
    named_bytes("spec text", draft.spec_digest, draft.text.encode())


def mapping(draft: MappingDraft) -> None:
    """A mapping that may be stored, if its key and constants are there."""
    digest("program digest", draft.program_digest)
    indexed("numerics", draft.numerics)
    number("key", draft.key, least=1)
    digests("constant", draft.constants)


def graph(draft: GraphDraft) -> None:
    """A graph that may be stored."""
    spec(draft.spec)
    digest("program digest", draft.program_digest)
    for constant in draft.constants:
        named_bytes("constant", constant.digest, constant.content)


def kernel(draft: KernelDraft) -> None:
    """A kernel that may be published, if its key is there."""
    record = draft.kernel
    digest("kernel digest", record.kernel_digest)
    digest("toolchain", record.toolchain)
    number("key", record.key, least=1)
    number("compile time", draft.compile_us)
    text("kernel", record.arg_spec, record.guard)
    indexed("target", record.target)
    indexed("options", record.options)
    text("ingredient", *(part for pair in draft.ingredients for part in pair))
    kinds = [artifact.kind for artifact in draft.artifacts]
    indexed("artifact kind", *kinds)
    if not kinds or len(set(kinds)) != len(kinds):
        raise InvalidValue("a kernel has at least one artifact, and one of a kind")
    for artifact in draft.artifacts:
        named_bytes(f"artifact {artifact.kind}", artifact.digest, artifact.content)


def wanted(record: KernelRecord, limit: int) -> None:
    """A kernel that others may be compared with."""
    digest("toolchain", record.toolchain)
    number("key or limit", record.key, limit)
    text("kernel", record.arg_spec, record.guard, record.target, record.options)


def events(batch: Iterable[AuditEvent]) -> None:
    """Audit events that may be stored."""
    for event in batch:
        texts = (event.outcome, event.origin, event.actor, event.peer, event.request_id, event.target)
        text("audit event", event.kind, event.detail, *texts)
        indexed("job", event.job)
        number("audit requests", event.request_count, least=1)
        number("audit number", event.duration_us, event.byte_count, event.saved_us, event.at)
        number("audit key", event.key or 0)
        names = (event.program_digest, event.spec_digest, event.kernel_digest, event.toolchain)
        digests("audit digest", [name for name in names if name is not None])


def usage(delta: UsageDelta) -> None:
    """A count that may be added."""
    indexed("subject", delta.subject)
    digest("digest", delta.digest)
    number("usage", delta.hits, delta.saved_us, delta.last_used_at)


def quota(resource: str, most: int, policy: str) -> None:
    """A quota that may be set."""
    if resource not in RESOURCES:
        raise InvalidValue(f"there is no quota of {resource!r}: use {', '.join(RESOURCES)}")
    if policy not in (EVICT, REFUSE):
        raise InvalidValue(f"a quota's policy is {EVICT} or {REFUSE}, not {policy!r}")
    if (resource, policy) == ("specs", EVICT):
        raise InvalidValue(f"specs are never removed: their quota has the policy {REFUSE}")
    number("quota", most)


def pin(subject: str, value: bytes, reason: str) -> None:
    """A pin that may be set."""
    if subject not in PINNABLE:
        raise InvalidValue(f"{subject!r} is not pinned: use {', '.join(PINNABLE)}")
    digest(subject, value)
    text("reason", reason)


def step(request: Step) -> None:
    """A step of a collection."""
    number("limit", request.limit, least=1)
    number("time", request.before)
    text("reason", request.reason)


def ttl(seconds: float) -> int:
    """A time to live in whole microseconds, at most a century."""
    if not 0 < seconds <= 3.2e9:
        raise InvalidValue(f"a time to live is positive and at most a century, not {seconds} s")
    return int(seconds * 1_000_000)


def holder(kernel_digest: bytes, name: str) -> None:
    """A kernel and the name of one attempt to compile it."""
    digest("kernel digest", kernel_digest)
    indexed("holder", name)
    if not name:
        raise InvalidValue("a holder has a name")


def stage(name: str) -> None:
    """One line."""
    indexed("stage", name)
    if len(name.splitlines()) != 1:
        raise InvalidValue("a stage is one line of text")


def lease(shown: Lease | None, namespace: Namespace, kernel_digest: bytes) -> None:
    """A lease, if one is shown, for just this kernel."""
    if shown is not None and (shown.namespace, shown.kernel_digest) != (namespace, kernel_digest):
        raise InvalidValue("the lease is for another kernel, namespace or epoch")


def failure(kernel_digest: bytes, reported: Failure) -> None:
    """A failure that may be remembered."""
    digest("kernel digest", kernel_digest)
    text("failure", reported.reason, reported.stage, reported.diagnostic)
    text("failure detail", *(part for pair in reported.detail for part in pair))


def timings(batch: Iterable[Timing]) -> None:
    """Whether each can be stored."""
    for each in batch:
        digest("subject", each.subject)
        indexed("shape, config or device", each.shape, each.config, each.device)
        number("nanoseconds or samples", each.nanoseconds, each.samples, least=1)


def values(drafts: Sequence[ValueDraft]) -> None:
    """Raises ``InvalidValue`` for values that no store keeps, and for a key that comes twice."""
    for draft in drafts:
        digest("key", draft.key)
        digest("digest of a value", draft.digest)
        indexed("label", draft.label)
        number("size or time", draft.size, draft.saved_us)
    if len({draft.key for draft in drafts}) < len(drafts):
        raise InvalidValue("a key comes twice")


def assertion(draft: AssertionDraft) -> None:
    """Raises ``InvalidValue`` for an assertion that no store keeps."""
    digest("source digest", draft.source_digest)
    digests("program digest", draft.programs)
    indexed("actor", draft.actor, draft.role)
    text("toolchain", draft.toolchain)
    if not draft.actor or not draft.record:
        raise InvalidValue("an assertion has an actor and a record")


def dispute(observed: bytes, disputed_by: str, reason: str) -> None:
    """Raises ``InvalidValue`` for a dispute that no store keeps."""
    digest("observed digest", observed)
    indexed("actor", disputed_by)
    text("reason", reason)


def roles(names: Sequence[str]) -> None:
    """Raises ``InvalidValue`` unless these are at most 32 names of roles."""
    for name in names:
        if not _ROLE.match(name):
            raise InvalidValue(f"role {name[:80]!r}: use 1 to 64 of a-z 0-9 . _ -, a letter or digit first")
    if len(names) > 32:
        raise InvalidValue(f"{len(names)} roles; a namespace trusts at most 32")
