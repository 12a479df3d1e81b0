"""Pages of the audit log: which index answers a filter, and how many rows of it one page reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, bindparam, func, select

from kcache_grpc.storage import checks
from kcache_grpc.storage.audit.contract import SPAN, EventPage
from kcache_grpc.storage.audit.fields import FIELDS, Span
from kcache_grpc.storage.audit.filter import And, Comparison, Filter
from kcache_grpc.storage.records import Namespace
from kcache_grpc.storage.schema import audit_events
from kcache_grpc.storage.schema.columns import Hexadecimal
from kcache_grpc.storage.sql.engine.conditions import passing
from kcache_grpc.storage.sql.engine.database import Database
from kcache_grpc.storage.sql.engine.journal import record_of, select_events

_EVENT = audit_events.c
_HERE = (_EVENT.namespace_id == bindparam("ns"),)
_BETWEEN = (*_HERE, _EVENT.id > bindparam("after"), _EVENT.id < bindparam("before"))
#: The same, by no index of ids.
_ANYWHERE = (*_HERE, _EVENT.id + 0 > bindparam("after"), _EVENT.id + 0 < bindparam("before"))
_DIGEST = Hexadecimal(_EVENT.kernel_digest)
_NEXT_DIGEST = (
    select(_DIGEST.label("digest"))
    .where(*_HERE, bindparam("first") <= _DIGEST, bindparam("last") >= _DIGEST)
    .order_by(_DIGEST)
    .limit(1)
)
_RANGES = ("=", ":", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class _Along:
    """Conditions that one index answers in the order of ids. ``whole``: the filter asks for nothing else."""

    conditions: tuple[Comparison, ...]
    whole: bool


@dataclass(frozen=True)
class Search:
    """A question to the log of one namespace."""

    database: Database
    namespace: Namespace
    condition: Filter
    newest_first: bool

    def page(self, cursor: int | None, limit: int) -> EventPage:
        """The next events that pass, at most ``limit``."""
        values = {"ns": self.namespace.id, "after": 0, "before": checks.MAX_INT, "most": limit}
        if cursor is not None:
            values["before" if self.newest_first else "after"] = cursor
        parts = tuple(_conjuncts(self.condition))
        times = _ranges(parts, "time")
        if times and self._are_few(times):
            during = passing(select_events().where(*_ANYWHERE), And(tuple(times)))
            return self._read(self._ordered(self._passing(during), _EVENT.id + 0), values, None)
        along = self._along(parts)
        if along is None:
            return EventPage((), None)
        end = None if along.whole else self._end(along, values)
        if end is not None:
            values |= {"after": end - 1} if self.newest_first else {"before": end + 1}
        asked = passing(select_events().where(*_BETWEEN), And(along.conditions))
        asked = asked if along.whole else self._passing(asked)
        return self._read(self._ordered(asked, _EVENT.id), values, end)

    def _passing(self, query: Select[Any]) -> Select[Any]:
        """The rest of the filter, for rows that an index has found."""
        return passing(query, self.condition, by_index=False)

    def _read(self, statement: Select[Any], values: dict[str, Any], end: int | None) -> EventPage:
        rows = self.database.fetch(statement.limit(bindparam("most")), values)
        records = tuple(map(record_of, rows))
        full = bool(records) and len(records) == values["most"]
        return EventPage(records, records[-1].id if full else end)

    def _ordered(self, statement: Select[Any], order: Any) -> Select[Any]:
        return statement.order_by(order.desc() if self.newest_first else order)

    def _end(self, along: _Along, values: dict[str, Any]) -> int | None:
        """The last id that this page looks at; ``None``: it comes to the end."""
        looked_at = passing(select(_EVENT.id).where(*_BETWEEN), And(along.conditions))
        skipping = self._ordered(looked_at, _EVENT.id).offset(bindparam("skip")).limit(1)
        rows = self.database.fetch(skipping, {**values, "skip": SPAN - 1})
        return rows[0].id if rows else None

    def _are_few(self, times: Sequence[Comparison]) -> bool:
        """Whether these times have no more events than one page looks at: the index of times finds them."""
        some = passing(select(_EVENT.at).where(*_HERE), And(tuple(times))).limit(bindparam("most"))
        count = select(func.count()).select_from(some.subquery("looked_at"))
        return self.database.fetch(count, {"ns": self.namespace.id, "most": SPAN + 1})[0][0] <= SPAN

    def _along(self, parts: Sequence[Filter]) -> _Along | None:
        """``None``: nothing passes."""
        ids = _ranges(parts, "id")
        digest_ranges = _ranges(parts, "kernel_digest") or [
            part for part in _ranges(parts, "job") if part.operator == "="
        ]
        if digest_ranges and isinstance(digest_ranges[0].value, Span):
            digests = self._digests(digest_ranges[0].value)
            if not digests:
                return None
            digest_ranges = (
                [Comparison(FIELDS["kernel_digest"], "=", digests[0])] if len(digests) == 1 else []
            )
        conditions = (*digest_ranges[:1], *ids)
        return _Along(conditions, len(conditions) == len(parts))

    def _digests(self, span: Span) -> list[bytes]:
        """The first kernels, two at most, whose digests begin like that."""
        values = {"ns": self.namespace.id, "first": span.first.hex(), "last": span.last.hex()}
        digests = [row.digest for row in self.database.fetch(_NEXT_DIGEST, values)]
        if digests and digests[0] != values["last"]:
            values["first"] = f"{int(digests[0], 16) + 1:0{len(digests[0])}x}"
            digests += [row.digest for row in self.database.fetch(_NEXT_DIGEST, values)]
        return [bytes.fromhex(digest) for digest in digests]


def _conjuncts(condition: Filter) -> Iterator[Filter]:
    """What must hold, each."""
    if isinstance(condition, And):
        for operand in condition.operands:
            yield from _conjuncts(operand)
    else:
        yield condition


def _ranges(parts: Sequence[Filter], name: str) -> list[Comparison]:
    """Those parts that ask for a field to be within bounds."""
    compared = [part for part in parts if isinstance(part, Comparison)]
    return [
        part
        for part in compared
        if part.field.name == name and part.operator in _RANGES and part.value is not None
    ]
