"""Filters as SQLAlchemy expressions: columns of the table, values as parameters, no text of SQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, Text, and_, false, func, literal, or_, true
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from kcache_grpc.storage.audit.fields import Kind, Span
from kcache_grpc.storage.audit.filter import And, Comparison, Filter, Not, Or
from kcache_grpc.storage.schema import audit_events
from kcache_grpc.storage.schema.columns import Hexadecimal

#: Columns that begin an index within a namespace, but for the id.
_INDEXED = frozenset({"at", "job", "writer"})
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">", ":": "!="}


class _Position(FunctionElement[int]):
    """Where a text occurs in another, from 1; 0: nowhere. Upper and lower case differ."""

    name = "kcache_position"
    inherit_cache = True


@compiles(_Position)
def _sqlite_position(element: _Position, compiler: SQLCompiler, **options: Any) -> str:
    return f"instr({compiler.process(element.clauses, **options)})"


@compiles(_Position, "postgresql")
def _postgres_position(element: _Position, compiler: SQLCompiler, **options: Any) -> str:
    return f"strpos({compiler.process(element.clauses, **options)})"


class _Lower(FunctionElement[str]):
    """A text with A to Z lowered, and no other letter."""

    name = "kcache_lower"
    inherit_cache = True
    type = Text()


@compiles(_Lower)
def _sqlite_lower(element: _Lower, compiler: SQLCompiler, **options: Any) -> str:
    return f"lower({compiler.process(element.clauses, **options)})"


@compiles(_Lower, "postgresql")
def _postgres_lower(element: _Lower, compiler: SQLCompiler, **options: Any) -> str:
    return f'lower({compiler.process(element.clauses, **options)} COLLATE "C")'


def passing(statement: Select[Any], condition: Filter, *, by_index: bool = True) -> Select[Any]:
    """``statement`` over ``audit_events``, with ``condition`` in addition to its own.

    Not ``by_index``: rows are to be found by what it asks already. A planner that takes another index for a
    condition that most rows meet would read and sort them all; SQLite has no statistics to know better.
    """
    return statement.where(_where(condition, False, by_index))


def _where(condition: Filter, negated: bool, by_index: bool) -> ColumnElement[bool]:
    """Negations are pushed down to comparisons, which answer yes or no for NULL too."""
    match condition:
        case Not(operand):
            return _where(operand, not negated, by_index)
        case And(operands):
            parts = [_where(operand, negated, by_index) for operand in operands]
            return or_(false(), *parts) if negated else and_(true(), *parts)
        case Or(operands):
            parts = [_where(operand, negated, by_index) for operand in operands]
            return and_(true(), *parts) if negated else or_(false(), *parts)
        case Comparison():
            return _comparison(condition, negated, by_index)


def _comparison(test: Comparison, negated: bool, by_index: bool) -> ColumnElement[bool]:
    column: ColumnElement[Any] = audit_events.c[test.field.column]
    if by_index and not negated and test.field.column == "kernel_digest" and test.operator in ("=", ":"):
        return _kernel(test, column)
    nullable = audit_events.c[test.field.column].nullable
    if not by_index and test.field.column in _INDEXED:
        column = func.coalesce(column, column)
    if test.field.kind is Kind.WORD and test.value is not None:
        column = _Lower(column)
    if test.value is None:
        return _is_set(column, test.field.kind, negated)
    if isinstance(test.value, Span):
        inside = column.between(test.value.first, test.value.last)
        return or_(column.is_(None), ~inside) if negated else inside
    if test.operator == ":" and test.field.kind in (Kind.TEXT, Kind.WORD):
        place = _Position(column, literal(test.value, Text))
        return place == 0 if negated else place > 0
    relation = "=" if test.operator == ":" else test.operator
    relation = _OPPOSITE[relation] if negated else relation
    compared = column.op(relation, is_comparison=True)(test.value)
    unset_passes = (test.operator == "!=") != negated
    return or_(column.is_(None), compared) if nullable and unset_passes else compared


def _kernel(test: Comparison, column: ColumnElement[Any]) -> ColumnElement[bool]:
    """By the index, which has digests in hex."""
    if test.value is None:
        return column.is_not(None)
    if isinstance(test.value, Span):
        return Hexadecimal(column).between(test.value.first.hex(), test.value.last.hex())
    assert isinstance(test.value, bytes)
    return Hexadecimal(column) == test.value.hex()


def _is_set(column: ColumnElement[Any], kind: Kind, negated: bool) -> ColumnElement[bool]:
    if kind is Kind.DIGEST:
        return column.is_(None) if negated else column.is_not(None)
    nothing = "" if kind in (Kind.TEXT, Kind.WORD) else 0
    if negated:
        return or_(column.is_(None), column == nothing)
    return column != nothing
