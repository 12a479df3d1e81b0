"""Filters of the audit log: what they mean, on every store as in their definition, and what they reject."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcache_grpc.errors import ArgumentError
from kcache_grpc.storage import Store
from kcache_grpc.storage.audit.fields import FIELDS, Kind
from kcache_grpc.storage.audit.filter import (
    EVERYTHING,
    MAX_DEPTH,
    MAX_TERMS,
    And,
    Comparison,
    Not,
    Or,
    matches,
    parse_filter,
)
from kcache_grpc.storage.records import AuditEvent, Namespace
from tests.storage.conftest import STORES, Opener
from tests.storage.drafts import Time

#: Texts that mean something in SQL, in patterns or in filters.
TEXTS = (
    "",
    "a",
    "A",
    "train-7",
    "o'brien",
    'say "hi"',
    "100%",
    "a_b",
    "x; DROP TABLE audit_events--",
    "') OR 1=1 --",
    "back\\slash",
    "Ünïcode",
    "AND",
    "*",
    ":x",
)


def digest(number: int) -> bytes:
    return hashlib.sha256(bytes([number])).digest()


def event(at: int) -> AuditEvent:
    return AuditEvent(
        kind=("serve", "miss", "publish")[at % 3],
        outcome=TEXTS[at % len(TEXTS)],
        actor=TEXTS[at * 7 % len(TEXTS)],
        job=TEXTS[at * 4 % len(TEXTS)],
        request_count=1 + at % 2,
        program_digest=digest(at % 5) if at % 4 else None,
        kernel_digest=digest(at % 7) if at % 3 else None,
        key=at % 6 or None,
        duration_us=at * 1000,
        byte_count=at % 5,
        saved_us=at * 250_000 % 3_000_000,
        detail=TEXTS[at * 11 % len(TEXTS)],
        at=1_700_000_000_000_000 + at,
    )


@pytest.fixture(scope="module", params=STORES)
def filled(
    request: pytest.FixtureRequest, openers: dict[str, Opener], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Store, Namespace]]:
    with openers[request.param](tmp_path_factory.mktemp("filled"), Time()) as opened:
        ns, other = opened.get_or_create_namespace("default"), opened.get_or_create_namespace("other")
        for at in range(60):
            opened.append_audit(ns, [event(at)])
            opened.append_audit(other, [event(at)])
        yield opened, ns


def query(filled: tuple[Store, Namespace], text: str) -> list[int]:
    store, ns = filled
    page = store.find_events(ns, parse_filter(text), limit=1000)
    assert page.cursor is None
    return [record.id for record in page.records]


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    field = draw(st.sampled_from(sorted(FIELDS.values(), key=lambda each: each.name)))
    ordered = field.kind in (Kind.NUMBER, Kind.TIME, Kind.DURATION)
    relation = draw(st.sampled_from(["=", "!=", ":", "<", "<=", ">", ">="] if ordered else ["=", "!=", ":"]))
    if relation == ":" and draw(st.booleans()):
        return f"{field.name}:*"
    if field.kind in (Kind.TEXT, Kind.WORD):
        return f"{field.name}{relation}{quoted(draw(st.sampled_from(TEXTS) | st.text('aA%_x', max_size=2)))}"
    if field.kind is Kind.NUMBER:
        return f"{field.name}{relation}{draw(st.integers(-1, 130))}"
    if field.kind is Kind.TIME:
        return f'{field.name}{relation}"2023-11-14T22:13:20.{draw(st.integers(0, 70)):06}Z"'
    if field.kind is Kind.DURATION:
        return f"{field.name} {relation} {draw(st.integers(0, 60)) / 1000}s"
    text = digest(draw(st.integers(0, 7))).hex()
    return f"{field.name}{relation}{text[: draw(st.integers(1, 4))] if relation == ':' else text}"


FILTERS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" AND ", " OR ", " "]), inner).map("".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"NOT ({text})"),
        inner.map(lambda text: f"-({text})"),
    ),
    max_leaves=6,
)


@settings(max_examples=50, deadline=None)
@given(text=FILTERS)
def test_every_store_finds_what_the_definition_says(filled: tuple[Store, Namespace], text: str) -> None:
    store, ns = filled
    condition = parse_filter(text)
    records = store.find_events(ns, EVERYTHING, limit=1000).records
    assert query(filled, text) == [record.id for record in records if matches(condition, record)]


@pytest.mark.issue(number=19, point=24)
@pytest.mark.parametrize("relation", ["=", "!=", ":"])
@pytest.mark.parametrize("text", ["serve", "SERVE", "Serve"])
def test_the_case_of_words_does_not_count(filled: tuple[Store, Namespace], relation: str, text: str) -> None:
    assert query(filled, f"kind{relation}{text}") == query(filled, f"kind{relation}serve") != []
    assert query(filled, "outcome=TRAIN-7") == query(filled, "outcome=train-7") != []
    assert query(filled, "actor=TRAIN-7") == []
    assert query(filled, "actor=train-7") != []


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.text("kind=<>!:\"ANDORNT-() \\'*0123.sz", max_size=40))
def test_any_text_is_a_filter_or_rejected(text: str) -> None:
    with suppress(ArgumentError):
        assert isinstance(parse_filter(text), Comparison | Not | And | Or)


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_can_be_asked_for(filled: tuple[Store, Namespace], text: str) -> None:
    store, ns = filled
    wanted = [r.id for r in store.find_events(ns, EVERYTHING, limit=1000).records if r.event.job == text]
    assert wanted
    assert query(filled, f"job = {quoted(text)}") == wanted


def test_or_binds_more_closely_than_and(filled: tuple[Store, Namespace]) -> None:
    texts = ("kind = serve AND key = 1 OR key = 2", "kind = serve AND (key = 1 OR key = 2)")
    assert query(filled, texts[0]) == query(filled, texts[1])
    assert query(filled, texts[0]) != query(filled, "(kind = serve AND key = 1) OR key = 2")
    assert query(filled, "kind = serve key = 3") == query(filled, "kind = serve AND key = 3")


def test_what_is_not_set_equals_nothing(filled: tuple[Store, Namespace]) -> None:
    assert set(query(filled, "key != 3")) | set(query(filled, "key = 3")) == set(query(filled, ""))
    assert query(filled, "NOT key = 3") == query(filled, "key != 3")
    assert set(query(filled, "-key:*")) < set(query(filled, "key != 3"))
    assert not query(filled, "spec_digest:*")


def test_digests_are_found_by_their_beginning(filled: tuple[Store, Namespace]) -> None:
    whole = digest(3).hex()
    for length in (7, 8, 63, 64):
        assert query(filled, f"kernel_digest:{whole[:length]}") == query(filled, f"kernel_digest={whole}")
    assert query(filled, f"kernel_digest={whole.upper()}") == query(filled, f"kernel_digest={whole}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nothing = 1", "not a field"),
        ("kind", "expected one of ="),
        ("kind =", "expected a value"),
        ("kind < serve", "compared by = != : only"),
        ('kind = "serve', "no end"),
        ("(kind = serve", "expected \\)"),
        ("kind = serve)", "expected AND, OR or the end"),
        ("kind = serve AND", "expected a field"),
        ("kind = serve OR AND key = 1", "expected a field"),
        ("key = one", "a whole number"),
        (f"key = {2**63}", "a whole number"),
        ("kernel_digest = abc", "64 hexadecimal digits"),
        ("kernel_digest : xyz", "hexadecimal"),
        ("time > yesterday", "a time such as"),
        ("time > 2026-01-31T12:00:00", "with its zone"),
        ("duration > 3", "seconds with an s"),
        ("actor = a\0b", "without NUL"),
        ("actor = a\ud800b", "without NUL"),
        ("namespace_id = 1", "not a field"),
        ("id = 1; DROP TABLE audit_events", "a whole number"),
        ("(" * (MAX_DEPTH + 1), "within each other"),
        (" OR ".join(["key = 1"] * (MAX_TERMS + 1)), "comparisons"),
        ("x" * 9000, "longer than"),
    ],
)
def test_what_is_no_filter_is_rejected_with_a_reason(text: str, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        parse_filter(text)


def test_the_largest_filters_run(filled: tuple[Store, Namespace]) -> None:
    most = " OR ".join(f"key = {number}" for number in range(MAX_TERMS))
    assert query(filled, most) == query(filled, "key:*")
    deep = "NOT (" * MAX_DEPTH + "key = 1" + ")" * MAX_DEPTH
    assert query(filled, deep) == query(filled, "key = 1")


def test_pages_neither_repeat_nor_skip_while_events_come_in(store: Store, ns: Namespace) -> None:
    for at in range(50):
        store.append_audit(ns, [AuditEvent("serve" if at % 5 else "miss", at=at + 1)])
    there = {record.id for record in store.list_audit(ns, limit=1000) if record.event.kind == "miss"}
    for newest_first in (False, True):
        seen, cursor = list[int](), None
        while True:
            page = store.find_events(
                ns, parse_filter("kind = miss"), cursor=cursor, newest_first=newest_first, limit=3
            )
            seen += [record.id for record in page.records]
            store.append_audit(ns, [AuditEvent("miss")])
            cursor = page.cursor
            if cursor is None or len(seen) > 100:
                break
        assert len(seen) == len(set(seen))
        assert seen == sorted(seen, reverse=newest_first)
        assert there <= set(seen)
        there = {record.id for record in store.list_audit(ns, limit=1000) if record.event.kind == "miss"}


def test_a_question_looks_at_so_many_events_at_most(
    store: Store, ns: Namespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in ("memory.audit", "sql.audit.searches"):
        monkeypatch.setattr(f"kcache_grpc.storage.{module}.SPAN", 10)
    for at in range(35):
        store.append_audit(ns, [AuditEvent("serve", outcome="" if at else "first")])
    for newest_first, pages in ((False, 4), (True, 4)):
        cursors, records, cursor = 0, list[str](), None
        while cursors == 0 or cursor is not None:
            page = store.find_events(
                ns, parse_filter("outcome:first"), cursor=cursor, newest_first=newest_first
            )
            records += [record.event.outcome for record in page.records]
            cursor, cursors = page.cursor, cursors + 1
        assert (records, cursors) == (["first"], pages)
