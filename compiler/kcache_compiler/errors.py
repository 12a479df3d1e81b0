"""Errors of the compiler.

    CompilerError
     +-- InvalidProgram      the bytes are not a valid program of the stated format
     +-- UnsupportedOp       a valid program that this version cannot compile; names the operation
     +-- LimitExceeded       a documented limit on size, operations, nesting or time is exceeded
     +-- CompileFailed       a stage failed on a valid program; names the stage

The service maps them to the public tree in ``kcache_grpc.errors``.
"""

from __future__ import annotations


class CompilerError(Exception):
    """Base class of the errors of this package."""


class InvalidProgram(CompilerError):
    """The bytes are not a valid program of the stated format."""


class UnsupportedOp(CompilerError):
    """The program is valid, but ``op``, at ``location`` if known, cannot be compiled."""

    def __init__(self, op: str, reason: str, location: str = "") -> None:
        where = f" at {location}" if location else ""
        super().__init__(f"unsupported op {op}{where}: {reason}")
        self.op = op
        self.reason = reason
        self.location = location


class LimitExceeded(CompilerError):
    """A quantity is ``actual``, above its documented ``limit``."""

    def __init__(self, what: str, actual: int, limit: int) -> None:
        super().__init__(f"{what} is {actual}, above the limit of {limit}")
        self.what = what
        self.actual = actual
        self.limit = limit


class CompileFailed(CompilerError):
    """``stage`` failed with ``diagnostic``."""

    def __init__(self, stage: str, diagnostic: str) -> None:
        super().__init__(f"stage {stage} failed: {diagnostic}")
        self.stage = stage
        self.diagnostic = diagnostic
