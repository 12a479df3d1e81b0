"""The cache in the memory of this process."""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

from kcache_grpc.caches.base import Cache, Key, Value
from kcache_grpc.caches.encoding import MAX_DEPTH, decode, describe, encode, encode_key, encode_value
from kcache_grpc.caches.files import Files
from kcache_grpc.errors import CacheError
from kcache_grpc.local_files import read_regular

#: First bytes of a file of entries. The SHA-256 of the rest follows, then the encoding of a list of pairs.
MAGIC = b"kcache.caches\x01\n"
_DIGEST_SIZE = 32
#: Containers inside each other in a file: the list, a pair, and those of a key or a value.
_FILE_DEPTH = 2 + MAX_DEPTH

_Memory = TypeVar("_Memory", bound="InMemoryCache[Any, Any]")
_OPENING, _CLOSING = "([{", ")]}"


class InMemoryCache(Cache[Key, Value]):
    """A thread-safe cache in the memory of this process, without a bound on its size.

    Each entry is stored encoded, so that a list or a dict which the caller changes later changes no entry.
    There is no lock, which a process that is forked could inherit: each operation is one of ``dict``.
    """

    def __init__(self) -> None:
        #: Encoded key to encoded value.
        self._entries: dict[bytes, bytes] = {}

    def get(self, key: Key) -> Value | None:
        value = self._entries.get(encode_key(key))
        return None if value is None else decode(value)

    def insert(self, key: Key, value: Value) -> bool:
        encoded_key, encoded_value = encode_key(key), encode_value(value)
        # ``encoded_value`` is an object of this call, even if another thread inserts an equal value.
        return self._entries.setdefault(encoded_key, encoded_value) is encoded_value

    def count(self) -> int:
        """Returns the number of entries."""
        return len(self._entries)

    @classmethod
    def from_env_var(cls: type[_Memory], name: str, *, allow_pickle: bool = False) -> _Memory:
        """Returns a cache of the entries in an environment variable.

        The variable contains ``key,value`` pairs separated by ``;``, each a Python literal:
        ``'answer',42; ('matmul', 128),{'tile': [32, 32]}``. Whitespace around keys and values is ignored. The
        cache is empty if the variable is unset or empty.

        Args:
            name: name of the variable.
            allow_pickle: read what ``torch._inductor.cache`` writes instead: each key and each value is a
                ``bytes`` literal with a pickle of plain data. Pickles that call code are rejected.

        Raises:
            CacheError: an entry is invalid, or one key has two values; the message names the entry. Identical
                duplicates are allowed.
        """
        cache = cls()
        source = f"environment variable {name}"
        pairs: list[tuple[str, Any, Any]] = []
        for entry, key, value in _entries(os.environ.get(name, ""), source):
            if allow_pickle:
                key, value = (_unpickled_literal(part, entry, source) for part in (key, value))
            pairs.append((f"entry {describe(entry)}", key, value))
        cache._add(pairs, source)
        return cache

    @classmethod
    def from_file_path(
        cls: type[_Memory], path: str | os.PathLike[str], *, allow_pickle: bool = False
    ) -> _Memory:
        """Returns a cache of the entries in a file of ``to_file_path``; empty if there is no such file.

        Args:
            path: the file.
            allow_pickle: also read a pickled dict, as ``torch._inductor.cache`` does. Pickles that call code
                are rejected.

        Raises:
            CacheError: the file cannot be read, is damaged, or is of another format; the message names it.
        """
        path, cache = Path(path), cls()
        try:
            data = read_regular(path)
            pairs = (
                _pickled_pairs(data) if allow_pickle and not data.startswith(MAGIC) else _stored_pairs(data)
            )
            cache._add(((describe(key), key, value) for key, value in pairs), "this file")
        except FileNotFoundError:
            return cache
        except CacheError as error:
            raise CacheError(f"{path} does not contain the entries of a cache: {error.message}") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CacheError(f"{path} cannot be read: {reason}") from error
        return cache

    def to_file_path(self, path: str | os.PathLike[str], *, files: Files | None = None) -> None:
        """Writes all entries to a file for ``from_file_path``, and replaces an older file as a whole.

        Equal caches write equal bytes. ``files`` are the file operations. Raises ``OSError`` if the file
        cannot be written, ``CacheError`` if the entries together exceed a limit of the encoding; an older
        file remains.
        """
        entries = sorted(self._entries.copy().items())
        try:
            content = encode([(decode(key), decode(value)) for key, value in entries], _FILE_DEPTH)
        except CacheError as error:
            raise CacheError(f"the entries cannot be written to {path}: {error.message}") from error
        files, path = files or Files(), Path(path)
        temporary = files.write_temporary(path.parent, MAGIC + hashlib.sha256(content).digest() + content)
        try:
            files.rename(temporary, path)
        except BaseException:
            files.remove(temporary)
            raise

    def _add(self, pairs: Iterable[tuple[str, Any, Any]], source: str) -> None:
        """Inserts pairs of a description, a key and a value; conflicting values raise ``CacheError``."""
        for entry, key, value in pairs:
            try:
                conflict = not self.insert(key, value) and encode_value(self.get(key)) != encode_value(value)
            except CacheError as error:
                raise CacheError(f"{entry} of {source} is invalid: {error.message}") from error
            if conflict:
                raise CacheError(
                    f"key {describe(key)} has two values in {source}: "
                    f"{describe(self.get(key))} and {describe(value)}"
                )


def _unpickled_literal(part: object, entry: str, source: str) -> Any:
    from kcache_grpc.caches import pickled

    if not isinstance(part, bytes):
        raise CacheError(f"entry {describe(entry)} of {source} is not a pair of bytes literals with pickles")
    try:
        return pickled.loads(part)
    except CacheError as error:
        raise CacheError(f"entry {describe(entry)} of {source}: {error.message}") from error


def _stored_pairs(data: bytes) -> Iterable[tuple[Any, Any]]:
    begin = len(MAGIC) + _DIGEST_SIZE
    if not data.startswith(MAGIC):
        raise CacheError("it was not written by InMemoryCache.to_file_path")
    content = data[begin:]
    if hashlib.sha256(content).digest() != data[len(MAGIC) : begin]:
        raise CacheError("its content does not match its checksum; it is truncated or damaged")
    pairs = decode(content, _FILE_DEPTH)
    if not isinstance(pairs, list) or not all(
        isinstance(pair, tuple) and len(cast("tuple[Any, ...]", pair)) == 2
        for pair in cast("list[Any]", pairs)
    ):
        raise CacheError("it is not a list of pairs")
    return cast("list[tuple[Any, Any]]", pairs)


def _pickled_pairs(data: bytes) -> Iterable[tuple[Any, Any]]:
    from kcache_grpc.caches import pickled

    entries = pickled.loads(data)
    if not isinstance(entries, dict):
        raise CacheError("the pickle is not a dict")
    return cast("dict[Any, Any]", entries).items()


def _entries(text: str, source: str) -> Iterator[tuple[str, Any, Any]]:
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
