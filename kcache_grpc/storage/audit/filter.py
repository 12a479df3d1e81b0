"""Filters of audit events: a documented part of AIP-160, parsed to values that name known fields only.

expression  = sequence { "AND" sequence }
sequence    = choice { choice }                  (side by side means AND)
choice      = term { "OR" term }                 (OR binds more closely than AND, as in AIP-160)
term        = [ "NOT" | "-" ] ( "(" expression ")" | comparison )
comparison  = field ( "=" | "!=" | "<" | "<=" | ">" | ">=" | ":" ) value
value       = "quoted" | 'quoted' | bare
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kcache_grpc.errors import ArgumentError
from kcache_grpc.storage.audit.fields import FIELDS, Field, Kind, Span, ascii_lower, read_value
from kcache_grpc.storage.records import AuditRecord

#: Characters of a filter, nested terms, comparisons: far below what databases and this parser can do.
MAX_CHARS, MAX_DEPTH, MAX_TERMS = 8192, 32, 128

_SPACE = re.compile(r"\s*")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*", re.ASCII)
_OPERATOR = re.compile(r"<=|>=|!=|=|<|>|:")
_BARE = re.compile(r"""[^\s()"']+""")
_WORD = re.compile(r"(AND|OR|NOT)(?![A-Za-z0-9_.])", re.ASCII)


@dataclass(frozen=True)
class Comparison:
    """``field operator value``; ``value`` ``None`` asks for any: is it set?"""

    field: Field
    operator: str
    value: str | int | bytes | Span | None


@dataclass(frozen=True)
class Not:
    """The opposite."""

    operand: Filter


@dataclass(frozen=True)
class And:
    """All of them; of none: everything."""

    operands: tuple[Filter, ...]


@dataclass(frozen=True)
class Or:
    """One of them at least."""

    operands: tuple[Filter, ...]


Filter = Comparison | Not | And | Or

#: What an empty filter means.
EVERYTHING = And(())


def parse_filter(text: str) -> Filter:
    """The filter that ``text`` means. Raises ``ArgumentError``, which says where it went wrong."""
    if len(text) > MAX_CHARS:
        raise ArgumentError(f"filter: longer than {MAX_CHARS} characters", field="filter")
    return _Parser(text).whole()


class _Parser:
    """Parses a filter by recursive descent. Its methods have the names of the grammar's rules."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._terms = 0

    def whole(self) -> Filter:
        self._skip()
        if self._at == len(self._text):
            return EVERYTHING
        expression = self._expression()
        if self._at < len(self._text):
            raise self._error("expected AND, OR or the end")
        return expression

    def _expression(self) -> Filter:
        operands = [self._sequence()]
        while self._take_word("AND"):
            operands.append(self._sequence())
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _sequence(self) -> Filter:
        operands = [self._choice()]
        while self._begins_term():
            operands.append(self._choice())
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _choice(self) -> Filter:
        operands = [self._term()]
        while self._take_word("OR"):
            operands.append(self._term())
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def _term(self) -> Filter:
        if self._take_word("NOT") or self._take("-"):
            return Not(self._simple())
        return self._simple()

    def _simple(self) -> Filter:
        if not self._take("("):
            return self._comparison()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} parentheses within each other")
        inner = self._expression()
        if not self._take(")"):
            raise self._error("expected )")
        self._depth -= 1
        return inner

    def _comparison(self) -> Comparison:
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise self._error(f"more than {MAX_TERMS} comparisons")
        name = "" if _WORD.match(self._text, self._at) else self._match(_FIELD)
        if not name:
            raise self._error("expected a field")
        field = FIELDS.get(name)
        if field is None:
            raise self._error(f"{name[:80]!r} is not a field; use one of {', '.join(FIELDS)}")
        relation = self._match(_OPERATOR)
        if not relation:
            raise self._error(f"expected one of = != < <= > >= : after {name}")
        if relation not in _RELATIONS[field.kind]:
            allowed = " ".join(_RELATIONS[field.kind])
            raise self._error(f"{name} is compared by {allowed} only, not {relation}")
        return self._compared(field, relation)

    def _compared(self, field: Field, relation: str) -> Comparison:
        if self._text[self._at : self._at + 1] in ('"', "'"):
            return Comparison(field, relation, read_value(field, relation, self._quoted()))
        value = self._match(_BARE)
        if not value:
            raise self._error(f"expected a value after {field.name}{relation}")
        if relation == ":" and value == "*":
            return Comparison(field, relation, None)
        return Comparison(field, relation, read_value(field, relation, value))

    def _quoted(self) -> str:
        quote, characters, at = self._text[self._at], list[str](), self._at + 1
        while at < len(self._text):
            character = self._text[at]
            if character == quote:
                self._at = at + 1
                self._skip()
                return "".join(characters)
            if character == "\\":
                at += 1
                character = self._text[at : at + 1]
            characters.append(character)
            at += 1
        raise self._error("a quoted value has no end")

    def _begins_term(self) -> bool:
        rest = self._text[self._at : self._at + 1]
        return rest not in ("", ")") and not (
            (word := _WORD.match(self._text, self._at)) and word[1] in ("AND", "OR")
        )

    def _take_word(self, word: str) -> bool:
        match = _WORD.match(self._text, self._at)
        if match is None or match[1] != word:
            return False
        self._at = match.end()
        self._skip()
        return True

    def _take(self, character: str) -> bool:
        if not self._text.startswith(character, self._at):
            return False
        self._at += 1
        self._skip()
        return True

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        self._skip()
        return match[0]

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()

    def _error(self, message: str) -> ArgumentError:
        near = self._text[self._at : self._at + 20]
        where = f"at character {self._at + 1}" + (f", {near!r}" if near else ", the end")
        return ArgumentError(f"filter: {message} ({where})", field="filter")


_ORDERED = ("=", "!=", "<", "<=", ">", ">=", ":")
#: Order of text differs between databases, and that of digests means nothing.
_RELATIONS: Mapping[Kind, tuple[str, ...]] = {
    Kind.TEXT: ("=", "!=", ":"),
    Kind.WORD: ("=", "!=", ":"),
    Kind.NUMBER: _ORDERED,
    Kind.TIME: _ORDERED,
    Kind.DURATION: _ORDERED,
    Kind.DIGEST: ("=", "!=", ":"),
}

_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matches(condition: Filter, record: AuditRecord) -> bool:
    """Whether an event passes. The same as what the databases do with a filter."""
    match condition:
        case Not(operand):
            return not matches(operand, record)
        case And(operands):
            return all(matches(operand, record) for operand in operands)
        case Or(operands):
            return any(matches(operand, record) for operand in operands)
        case Comparison():
            value = _value_of(record, condition.field.column)
            if condition.field.kind is Kind.WORD and isinstance(value, str):
                value = ascii_lower(value)
            return _holds(condition, value)


def _value_of(record: AuditRecord, column: str) -> str | int | bytes | None:
    return getattr(record if column in ("id", "epoch", "writer") else record.event, column)


def _holds(test: Comparison, value: str | int | bytes | None) -> bool:
    """What is not set equals nothing, and is neither more nor less than anything."""
    expected, relation = test.value, test.operator
    if expected is None:
        return bool(value)
    if value is None:
        return relation == "!="
    if isinstance(expected, Span):
        return isinstance(value, bytes) and expected.first <= value <= expected.last
    if relation == ":" and isinstance(expected, str):
        return isinstance(value, str) and expected in value
    if relation in _COMPARE:
        assert isinstance(value, int)
        assert isinstance(expected, int)
        return _COMPARE[relation](value, expected)
    return (value != expected) if relation == "!=" else value == expected
