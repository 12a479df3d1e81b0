"""Errors of the compiler.

    CompilerError
     +-- InvalidProgram      the bytes are not a program of the stated format
     +-- UnsupportedOp       a valid program that this version cannot compile; names the op
     +-- LimitExceeded       a documented size, operation, nesting or time limit was passed
     +-- CompileFailed       a stage failed on a valid program; names the stage

The service maps them to the public tree in ``kcache_grpc.errors``.
"""

from __future__ import annotations


class CompilerError(Exception):
    """Base of everything this package raises on purpose."""


class InvalidProgram(CompilerError):
    """The bytes are not a valid program of the stated format."""


class UnsupportedOp(CompilerError):
    """The program is valid, but ``op`` at ``location`` has no lowering."""

    def __init__(self, op: str, reason: str, location: str = "") -> None:
        where = f" at {location}" if location else ""
        super().__init__(f"unsupported op {op}{where}: {reason}")
        self.op = op
        self.reason = reason
        self.location = location


class LimitExceeded(CompilerError):
    """``what`` is ``actual``, above the documented ``limit``."""

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
