"""Entries as text: ``key,value`` pairs of Python literals, separated by ``;``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from kcache_grpc.caches.encoding import MAX_DEPTH
from kcache_grpc.errors import CacheError

_OPENING, _CLOSING = "([{", ")]}"


def entries(text: str, source: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields the text, the key and the value of each entry of ``text``, which came from ``source``.

    Separators inside quotes and brackets belong to a literal. Whitespace around entries, keys and values and
    empty entries are ignored. Key and value are what ``ast.literal_eval`` returns: no code is run.

    Raises:
        CacheError: an entry is not a pair of literals; the message names ``source`` and the entry.
    """
    for entry in _split(text, ";", source):
        if not entry:
            continue
        parts = _split(entry, ",", source)
        if len(parts) == 1:
            raise CacheError(f"entry {_short(entry)} of {source} has no comma; write key,value")
        if len(parts) > 2:
            raise CacheError(
                f"entry {_short(entry)} of {source} has {len(parts) - 1} commas outside of quotes and "
                "brackets; write key,value, with tuples in parentheses"
            )
        key, value = (
            _literal(part, f"the {role} of entry {_short(entry)} of {source}")
            for role, part in zip(("key", "value"), parts, strict=True)
        )
        yield entry, key, value


def _literal(text: str, where: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise CacheError(
            f"{where} is not a Python literal: {_short(text)}; write a string in quotes, such as 'name'"
        ) from error


def _split(text: str, separator: str, source: str) -> list[str]:
    """The parts of ``text`` between separators outside of quotes and brackets, without outer whitespace."""
    parts: list[str] = []
    begin = position = depth = 0
    while position < len(text):
        character = text[position]
        if character in "'\"":
            position = _end_of_quotes(text, position)
            continue
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == separator and depth <= 0:
            parts.append(text[begin:position].strip())
            begin = position + 1
        if depth > MAX_DEPTH:
            raise CacheError(f"{source} has more than {MAX_DEPTH} brackets inside each other: {_short(text)}")
        position += 1
    return [*parts, text[begin:].strip()]


def _end_of_quotes(text: str, begin: int) -> int:
    """The position after the quoted literal at ``begin``; the end of ``text`` if it is not closed."""
    quotes = text[begin] * 3 if text.startswith(text[begin] * 3, begin) else text[begin]
    position = begin + len(quotes)
    while position < len(text) and not text.startswith(quotes, position):
        position += 2 if text[position] == "\\" else 1
    return position + len(quotes)


def _short(text: str) -> str:
    return repr(text if len(text) <= 120 else f"{text[:117]}...")
