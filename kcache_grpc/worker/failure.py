"""Errors of workers: the compiler's exceptions as public errors, and these as frames."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from kcache_compiler import errors as compiler
from kcache_grpc.errors import (
    CompileFailed,
    CompileTimeout,
    InvalidProgram,
    KcacheError,
    ResourceExhausted,
    Unavailable,
    UnsupportedOp,
    from_reason,
)
from kcache_grpc.worker.frames import Frame

#: Longest texts that leave a worker: gRPC's trailing metadata holds about 8 KB in all.
MAX_MESSAGE = 1000
MAX_DIAGNOSTIC = 16_000

#: What native code prints when the address space limit stopped it. MLIR and LLVM abort then.
_OUT_OF_MEMORY = (b"bad_alloc", b"out of memory", b"Cannot allocate memory", b"MemoryError")


def public_error(error: Exception, stage: str) -> KcacheError:
    """The public error for anything that a job raised; ``stage`` is where it was."""
    match error:
        case KcacheError():
            return error
        case compiler.InvalidProgram():
            return InvalidProgram(clip(str(error)))
        case compiler.UnsupportedOp():
            return UnsupportedOp(clip(str(error)), op=error.op, location=clip(error.location))
        case compiler.LimitExceeded():
            return ResourceExhausted(
                clip(str(error)), limit=error.what, actual=str(error.actual), maximum=str(error.limit)
            )
        case compiler.CompileFailed():
            return _failed(error.stage, error.diagnostic)
        case MemoryError():
            return out_of_memory(stage)
        case _:
            return _failed(stage, f"{type(error).__name__}: {error}")


def out_of_memory(stage: str) -> ResourceExhausted:
    """The worker's memory limit was passed."""
    return ResourceExhausted(
        f"stage {stage} needs more memory than a worker may use", limit="worker_memory_bytes", stage=stage
    )


#: Sent by operators, supervisors and the kernel when memory is short: they say nothing about the job.
_FOREIGN_SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")


def crash(stage: str, returncode: int, tail: bytes) -> KcacheError:
    """The public error for a worker that died inside a job; ``tail`` is the end of what it printed.

    ``Unavailable`` when somebody ended it: the job may be given to another worker.
    """
    if any(mark in tail for mark in _OUT_OF_MEMORY):
        return out_of_memory(stage)
    how = signal_name(returncode)
    if how in _FOREIGN_SIGNALS:
        return Unavailable(
            f"the worker was ended from outside in stage {stage}: {how}", stage=stage, signal=how
        )
    if how == "SIGXCPU":
        return CompileTimeout(
            f"stage {stage} passed its limit of processor time: the program expands while it is parsed, or "
            "is not what its format says",
            stage=stage,
        )
    text = tail.decode(errors="replace").strip()
    return CompileFailed(
        f"the worker died in stage {stage}: {how}", stage=stage, signal=how, diagnostic=clip_end(text)
    )


def is_crash(error: KcacheError) -> bool:
    """Whether the worker died of its job, or of what jobs before it left behind."""
    return isinstance(error, CompileFailed) and "signal" in error.metadata


def signal_name(returncode: int) -> str:
    """``SIGSEGV``, or ``exit status 3``."""
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def encode_error(error: KcacheError, last: bool) -> Frame:
    """The reply to a job that failed; ``last``: this worker takes no other."""
    return Frame(
        {
            "type": "error",
            "reason": error.reason,
            "message": error.message,
            "metadata": error.metadata,
            "last": last,
        }
    )


def decode_error(header: Mapping[str, Any]) -> KcacheError:
    """The value of ``encode_error``."""
    return from_reason(header["reason"], header["message"], header["metadata"])


def clip(text: str) -> str:
    """At most ``MAX_MESSAGE`` characters from the beginning."""
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 4] + " ..."


def clip_end(text: str) -> str:
    """At most ``MAX_DIAGNOSTIC`` characters from the end, where the reason usually is."""
    return text if len(text) <= MAX_DIAGNOSTIC else "... " + text[4 - MAX_DIAGNOSTIC :]


def _failed(stage: str, diagnostic: str) -> CompileFailed:
    return CompileFailed(
        clip(f"stage {stage} failed: {diagnostic}"), stage=stage, diagnostic=clip_end(diagnostic)
    )
