"""Principals of a server: who has its own token, and in which role."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kcache_grpc.errors import ArgumentError
from kcache_grpc.service.values import ANONYMOUS, LOCAL, SHARED, Principal

_WORD = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
#: SHA-256 of nothing: of an empty token.
_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#: Names of callers without a token of their own.
_RESERVED = frozenset(principal.name for principal in (LOCAL, ANONYMOUS, SHARED))


def read_principals(path: Path) -> Mapping[bytes, Principal]:
    """Principals by SHA-256 of their tokens. Raises ``ArgumentError`` that names the line.

    A line has a name, a role (``-`` for none) and the digest in hex; empty lines and those after ``#`` are
    comments. A principal may have several tokens, all in one role.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"the principals file {path} cannot be read: {error}") from error
    principals: dict[bytes, Principal] = {}
    roles: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            digest, principal = _read_line(words)
        except ValueError as error:
            raise ArgumentError(f"line {number} of {path}: {error}") from None
        if roles.setdefault(principal.name, principal.role) != principal.role:
            raise ArgumentError(f"line {number} of {path}: {principal.name} has another role above")
        if principals.setdefault(digest, principal) != principal:
            raise ArgumentError(f"line {number} of {path}: {principals[digest].name} has the same token")
    if not principals:
        raise ArgumentError(f"the principals file {path} names nobody")
    return principals


def _read_line(words: list[str]) -> tuple[bytes, Principal]:
    """Raises ``ValueError``."""
    if len(words) != 3:
        raise ValueError("use NAME ROLE SHA256_OF_TOKEN, with - for no role")
    name, role, digest = words
    if not _WORD.match(name) or name in _RESERVED:
        raise ValueError(
            f"name {name[:80]!r}: use 1 to 64 of a-z 0-9 . _ -, a letter or digit first, and none of "
            f"{', '.join(sorted(_RESERVED))}"
        )
    if role != "-" and not _WORD.match(role):
        raise ValueError(f"role {role[:80]!r}: use 1 to 64 of a-z 0-9 . _ -, a letter or digit first, or -")
    if not _DIGEST.match(digest) or digest == _EMPTY:
        raise ValueError("the digest of the token is not 64 lower-case hex digits, or that of an empty token")
    return bytes.fromhex(digest), Principal(name, "" if role == "-" else role)
