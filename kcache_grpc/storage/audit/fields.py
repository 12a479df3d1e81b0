"""The fields that an audit filter may name, and the text of their values."""

from __future__ import annotations

import enum
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal

from kcache_grpc.errors import ArgumentError

_START = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MAX_INT = 2**63 - 1
_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_SECONDS = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,9})?s", re.ASCII)
_HEX = re.compile(r"[0-9a-fA-F]{1,64}", re.ASCII)
_DIGEST_BYTES = 32
_LOWER = {ord(letter): letter.lower() for letter in string.ascii_uppercase}


class Kind(enum.Enum):
    """How values of a field are written and compared."""

    TEXT = "text"
    #: A word of the service, compared without regard to the case of ASCII letters.
    WORD = "word"
    NUMBER = "number"
    TIME = "time"
    DURATION = "duration"
    DIGEST = "digest"


@dataclass(frozen=True)
class Field:
    """A field of events, as filters name it; ``column`` is what records and tables call it."""

    name: str
    column: str
    kind: Kind


FIELDS: Mapping[str, Field] = {
    name: Field(name, column or name, kind)
    for name, kind, column in (
        ("id", Kind.NUMBER, ""),
        ("time", Kind.TIME, "at"),
        ("epoch", Kind.NUMBER, ""),
        ("writer", Kind.TEXT, ""),
        ("kind", Kind.WORD, ""),
        ("outcome", Kind.WORD, ""),
        ("origin", Kind.WORD, ""),
        ("actor", Kind.TEXT, ""),
        ("job", Kind.TEXT, ""),
        ("peer", Kind.TEXT, ""),
        ("request_id", Kind.TEXT, ""),
        ("request_count", Kind.NUMBER, ""),
        ("program_digest", Kind.DIGEST, ""),
        ("spec_digest", Kind.DIGEST, ""),
        ("key", Kind.NUMBER, ""),
        ("kernel_digest", Kind.DIGEST, ""),
        ("target", Kind.TEXT, ""),
        ("toolchain_digest", Kind.DIGEST, "toolchain"),
        ("duration", Kind.DURATION, "duration_us"),
        ("size_bytes", Kind.NUMBER, "byte_count"),
        ("time_saved", Kind.DURATION, "saved_us"),
        ("detail", Kind.TEXT, ""),
    )
}


@dataclass(frozen=True)
class Span:
    """Digests from ``first`` to ``last``: those that begin alike."""

    first: bytes
    last: bytes


def read_value(field: Field, operator: str, text: str) -> str | int | bytes | Span:
    """What ``text`` means with ``field`` and ``operator``. Raises ``ArgumentError``."""
    match field.kind:
        case Kind.TEXT:
            return _text(field, text)
        case Kind.WORD:
            return ascii_lower(_text(field, text))
        case Kind.NUMBER:
            return _number(field, text)
        case Kind.TIME:
            return _time(field, text)
        case Kind.DURATION:
            return _duration(field, text)
        case Kind.DIGEST:
            return _digest(field, operator, text)


def ascii_lower(text: str) -> str:
    """``text`` as databases lower it whatever the language: other letters than A to Z stay."""
    return text.translate(_LOWER)


def _text(field: Field, text: str) -> str:
    if "\0" in text or not _has_utf8(text):
        raise _wrong(field, text, "text without NUL and lone surrogates")
    return text


def _has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number(field: Field, text: str) -> int:
    if not _NUMBER.fullmatch(text) or not -_MAX_INT <= int(text) <= _MAX_INT:
        raise _wrong(field, text, "a whole number of 64 bits")
    return int(text)


def _time(field: Field, text: str) -> int:
    try:
        moment = datetime.fromisoformat(re.sub("[Zz]$", "+00:00", text))
    except ValueError:
        raise _wrong(field, text, "a time such as 2026-01-31T12:00:00Z, or a date") from None
    if moment.tzinfo is None:
        if len(text) != len("2026-01-31"):
            raise _wrong(field, text, "a time with its zone, such as 2026-01-31T12:00:00Z")
        moment = moment.replace(tzinfo=timezone.utc)
    return (moment - _START) // timedelta(microseconds=1)


def _duration(field: Field, text: str) -> int:
    if not _SECONDS.fullmatch(text):
        raise _wrong(field, text, "seconds with an s, such as 1.5s")
    return int(Decimal(text[:-1]) * 1_000_000)


def _digest(field: Field, operator: str, text: str) -> bytes | Span:
    if not _HEX.fullmatch(text):
        raise _wrong(field, text, "hexadecimal digits")
    digits = 2 * _DIGEST_BYTES
    if operator == ":":
        return Span(bytes.fromhex(text.ljust(digits, "0")), bytes.fromhex(text.ljust(digits, "f")))
    if len(text) != digits:
        raise _wrong(field, text, f"{digits} hexadecimal digits; {field.name}:{text} matches a beginning")
    return bytes.fromhex(text)


def _wrong(field: Field, text: str, expected: str) -> ArgumentError:
    return ArgumentError(
        f"filter: {field.name} is compared with {expected}, not {text[:80]!r}", field="filter"
    )
