"""Exit codes: one for each class of the error tree, so that scripts need no parsing."""

from __future__ import annotations

from collections.abc import Mapping

from kcache_grpc import errors

OK = 0
ERROR = 1
USAGE = 2
INTERRUPTED = 130

CODES: Mapping[type[errors.KcacheError], int] = {
    errors.KcacheError: ERROR,
    errors.InvalidProgram: 3,
    errors.UnsupportedOp: 4,
    errors.ArgumentError: 5,
    errors.CompileFailed: 6,
    errors.CompileTimeout: 7,
    errors.ResourceExhausted: 8,
    errors.NotFound: 9,
    errors.Conflict: 10,
    errors.IntegrityError: 11,
    errors.PermissionDenied: 12,
    errors.Unavailable: 13,
    errors.CacheError: 14,
}


def code_of(error: errors.KcacheError) -> int:
    """The code of the nearest class that has one."""
    public = (base for base in type(error).__mro__ if base in CODES and base is not errors.KcacheError)
    return CODES[next(public, errors.KcacheError)]


def table() -> str:
    """All codes in one paragraph, for ``--help``."""
    rows = [(OK, "done"), (ERROR, "any other error, or a failed check"), (USAGE, "wrong usage")]
    rows += [(code, cls.__name__) for cls, code in CODES.items() if code != ERROR]
    rows.append((INTERRUPTED, "interrupted"))
    return "Exit codes: " + ", ".join(f"{code} {meaning}" for code, meaning in rows) + "."
