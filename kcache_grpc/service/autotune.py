"""Timings of schedule choices: written by tuners, read by whoever wants the best schedule."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kcache_grpc.errors import ArgumentError, IntegrityError, NotFound
from kcache_grpc.model.identity import ingredients_digest
from kcache_grpc.model.options import Options
from kcache_grpc.model.schedule import canonical_schedule, is_known
from kcache_grpc.model.sizes.expression import parse, symbols_of
from kcache_grpc.model.sizes.guard import MAX_SIZE
from kcache_grpc.model.target import Target
from kcache_grpc.model.variants import parse_arg_spec, symbols_in
from kcache_grpc.service.audit.recorder import AuditRecorder
from kcache_grpc.service.namespaces import Namespaces
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.values import Caller
from kcache_grpc.storage.contract.autotune import Timing, TimingRecord
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import AuditEvent, Namespace, SpecRecord

_PAGE, _MOST_PAGE = 256, 1024
_MOST_TIMINGS = 256
_LONGEST_ARG_SPEC = 65_536
_LONGEST_SIZES = 4096
#: Above it an arg spec is stored as its digest: it stands in an index. So are sizes.
_LONGEST_SHAPE = 512
_LONGEST_DEVICE = 200
_SIZE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<size>0|[1-9][0-9]{0,18})")
#: A median above ten minutes is no call of a kernel.
_LONGEST_CALL = 600_000_000_000


@dataclass(frozen=True)
class Subject:
    """What is tuned, and the machine that it is timed on. Raises ``ArgumentError``."""

    spec_digest: bytes
    arg_spec: str
    target: Target
    options: Options
    device: str
    #: Of dynamic sizes those that were timed; empty: all that there are timings of.
    sizes: str = ""

    def __post_init__(self) -> None:
        if len(self.spec_digest) != 32:
            raise ArgumentError(
                f"spec_digest has {len(self.spec_digest)} bytes instead of 32", field="spec_digest"
            )
        if len(self.arg_spec) > _LONGEST_ARG_SPEC or self.symbols is None:
            raise ArgumentError(
                "arg_spec names types and sizes, such as f32[64,128];f32[128] or f32[s0,128];f32[128], in at "
                f"most {_LONGEST_ARG_SPEC} characters",
                field="arg_spec",
            )
        if self.sizes and not self._sizes_fit(self.symbols):
            raise ArgumentError(
                f"sizes are {self.sizes[:100]!r}; give each symbol of the arg spec once, in order "
                f"({', '.join(self.symbols) or 'it has none'}), such as s0=64,s1=128",
                field="sizes",
            )
        if self.options.schedule:
            raise ArgumentError("the options of a subject choose no schedule", field="options.schedule")
        if not 0 < len(self.device) <= _LONGEST_DEVICE or not self.device.isprintable():
            raise ArgumentError(
                f"device is {self.device[:40]!r}; use 1 to {_LONGEST_DEVICE} printable characters",
                field="device",
            )

    @property
    def shape(self) -> str:
        """The arg spec or, if that is dynamic, the sizes; a digest for a long one."""
        text = self.sizes if self.symbols else self.arg_spec
        if len(text) <= _LONGEST_SHAPE:
            return text
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    @cached_property
    def symbols(self) -> tuple[str, ...] | None:
        """The names in the arg spec, in order; ``None`` where it is no arg spec."""
        return _symbols(self.arg_spec)

    def _sizes_fit(self, symbols: Sequence[str]) -> bool:
        matches = [_SIZE.fullmatch(part) for part in self.sizes.split(",")]
        accepted = [match for match in matches if match is not None and int(match["size"]) <= MAX_SIZE]
        complete = len(accepted) == len(matches) and len(self.sizes) <= _LONGEST_SIZES
        return complete and [match["name"] for match in accepted] == list(symbols)

    @property
    def digest(self) -> bytes:
        """Of all but sizes and machine, which are columns of their own. No toolchain.

        Which sizes are open is part of it.
        """
        pairs = [
            ("spec", self.spec_digest.hex()),
            ("target", str(self.target)),
            ("options", str(replace(self.options, schedule=""))),
        ]
        if self.symbols:
            pairs.append(("arg_spec", self.arg_spec))
        return ingredients_digest("kcache.tuning.v1", tuple(pairs))


@dataclass(frozen=True)
class Measured:
    """A schedule and the median of its calls. Raises ``ArgumentError``."""

    schedule: str
    nanoseconds: int
    samples: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedule", canonical_schedule(self.schedule))
        if not 0 < self.nanoseconds <= _LONGEST_CALL:
            raise ArgumentError(f"a duration is {self.nanoseconds} ns; use 1 ns to 10 min", field="duration")
        if self.samples < 1:
            raise ArgumentError("sample_count is 0; a median is of one sample at least", field="sample_count")


class Autotune:
    """The use cases."""

    def __init__(
        self, store: Store, threads: StoreThreads, namespaces: Namespaces, audit_recorder: AuditRecorder
    ) -> None:
        self._store = store
        self._threads = threads
        self._namespaces = namespaces
        self._audit_recorder = audit_recorder

    async def record(self, caller: Caller, subject: Subject, timings: Sequence[Measured]) -> int:
        """Stores timings; how many were new. Raises ``ArgumentError``, ``NotFound``."""
        if not 0 < len(timings) <= _MOST_TIMINGS:
            raise ArgumentError(f"{len(timings)} timings; use 1 to {_MOST_TIMINGS}", field="timings")
        if len({each.schedule for each in timings}) < len(timings):
            raise ArgumentError("one schedule has two timings", field="timings")
        if subject.symbols and not subject.sizes:
            raise ArgumentError(
                f"a timing is of some sizes: give those of {', '.join(subject.symbols)}", field="sizes"
            )
        namespace = await self._namespaces.get(caller.namespace)
        spec = await self._spec(namespace, subject)
        batch = [
            Timing(
                subject.digest,
                subject.shape,
                stored_choice(each.schedule),
                subject.device,
                each.nanoseconds,
                each.samples,
            )
            for each in timings
        ]
        created = await self._threads(self._store.add_timings, namespace, batch)
        detail = {"shape": subject.shape, "device": subject.device, "timings": len(batch)}
        event = AuditEvent(
            "tune",
            "recorded" if created else "known",
            spec_digest=subject.spec_digest,
            key=spec.key,
            target=str(subject.target),
            detail=json.dumps({**detail, "created": created}),
        )
        self._audit_recorder.note(namespace, caller, event)
        return created

    async def timings(
        self, caller: Caller, subject: Subject, page_size: int, page_token: str
    ) -> tuple[tuple[TimingRecord, ...], str]:
        """Some timings, by sizes where they are open, then fastest first, and what asks for the next ones.

        Raises ``ArgumentError``, ``NotFound``.
        """
        namespace = await self._namespaces.get(caller.namespace)
        await self._spec(namespace, subject)
        start, most = _start(page_token, subject), min(page_size or _PAGE, _MOST_PAGE)
        if subject.symbols and not subject.sizes:
            records = await self._threads(self._store.list_shapes, namespace, subject.digest, subject.device)
        else:
            records = await self._threads(
                self._store.list_timings, namespace, subject.digest, subject.shape, subject.device
            )
        known = [_plain(record) for record in records if is_known(_plain(record).timing.config)]
        more = len(known) > start + most
        return tuple(known[start : start + most]), f"{start + most}-{_mark(subject)}" if more else ""

    async def _spec(self, namespace: Namespace, subject: Subject) -> SpecRecord:
        spec = await self._threads(self._store.find_spec, namespace, subject.spec_digest)
        if spec is None:
            raise NotFound(
                f"namespace {namespace.name} has no spec {subject.spec_digest.hex()}; "
                "store its program first",
                spec_digest=subject.spec_digest.hex(),
            )
        return spec


#: How all defaults are stored, where a text must not be empty.
_DEFAULT = "default"


def plain_choice(config: str) -> str:
    """A stored choice as callers write it."""
    return "" if config == _DEFAULT else config


def stored_choice(schedule: str) -> str:
    """A choice as it is stored."""
    return schedule or _DEFAULT


def _plain(record: TimingRecord) -> TimingRecord:
    if record.timing.config != _DEFAULT:
        return record
    return replace(record, timing=replace(record.timing, config=""))


def _symbols(arg_spec: str) -> tuple[str, ...] | None:
    try:
        dims = {dim for tensor in parse_arg_spec(arg_spec) for dim in tensor.dims}
        formulas = [dim for dim in dims if not (dim.isascii() and dim.isdigit())]
        for formula in formulas:
            parse(formula)
        return symbols_in(formulas) if all(map(symbols_of, formulas)) else None
    except (IntegrityError, ArgumentError):
        return None


def _mark(subject: Subject) -> str:
    where = f"{subject.shape}\0{subject.device}".encode()
    return hashlib.sha256(subject.digest + where).hexdigest()[:8]


def _start(token: str, subject: Subject) -> int:
    if not token:
        return 0
    number, _, mark = token.partition("-")
    if not (number.isascii() and number.isdigit() and len(number) < 10 and mark == _mark(subject)):
        raise ArgumentError(
            "page_token is not one that this method gave for the same subject", field="page_token"
        )
    return int(number)
