"""Column types of all tables: UTC microseconds, sizes in bytes, digests of 32 bytes."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from kcache_migrations.naming import NAMING_CONVENTION
from kcache_migrations.views import hexadecimal

METADATA = MetaData(naming_convention=NAMING_CONVENTION)

#: SQLite numbers rows automatically only in a column that is exactly INTEGER.
_RowId = BigInteger().with_variant(Integer(), "sqlite")


def id_column() -> Column[int]:
    return Column("id", _RowId, primary_key=True, autoincrement=True)


def namespace_column() -> Column[int]:
    return Column("namespace_id", BigInteger, ForeignKey("namespaces.id"), nullable=False)


def int_column(name: str, default: str | None = None) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=default)


def text_column(name: str, default: str | None = None) -> Column[str]:
    """``default`` is an expression of SQL."""
    return Column(name, Text, nullable=False, server_default=None if default is None else text(default))


def bytes_column(name: str, nullable: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=nullable)


def is_digest(*columns: str) -> list[CheckConstraint]:
    return [CheckConstraint(f"length({name}) = 32", name=name) for name in columns]


class Hexadecimal(FunctionElement[str]):
    """A column of bytes as views show it and indexes of that know it: lower-case hex, NULL of none."""

    name = "kcache_hex"
    type = Text()
    inherit_cache = True


@compiles(Hexadecimal)
def _sqlite_hexadecimal(element: Hexadecimal, compiler: SQLCompiler, **options: Any) -> str:
    return hexadecimal("sqlite", compiler.process(element.clauses, **options))


@compiles(Hexadecimal, "postgresql")
def _postgres_hexadecimal(element: Hexadecimal, compiler: SQLCompiler, **options: Any) -> str:
    return hexadecimal("postgresql", compiler.process(element.clauses, **options))
