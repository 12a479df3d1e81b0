"""Reasons for which a program bypasses the cache: it is compiled without it, not kept in it, or not compiled.

A bypass is counted apart from a miss: a miss is filled by a compile whose result the next request finds, and
a bypass leaves the cache as it was. Clients and servers count by the same names (docs/guide/time-saved.md).
"""

from __future__ import annotations

from enum import Enum

from kcache_grpc.errors import (
    CompileFailed,
    CompileTimeout,
    InvalidProgram,
    KcacheError,
    PermissionDenied,
    ResourceExhausted,
    Unavailable,
    UnsupportedOp,
)


class BypassReason(str, Enum):
    """Why a program bypasses the cache; the value is its name in counters."""

    #: The service could not be reached: the embedded service compiles instead.
    SERVICE_UNAVAILABLE = "service_unavailable"
    #: The circuit breaker is open after such failures: the embedded service compiles without a call.
    BREAKER_OPEN = "breaker_open"
    #: A quota of the service is used up: the embedded service compiles instead, or the request fails.
    QUOTA = "quota"
    #: Client and server do not understand each other: the embedded service compiles instead.
    VERSION_SKEW = "version_skew"
    #: The pinned identity of the server cannot be read: the embedded service compiles instead.
    DAMAGED_PIN = "damaged_pin"
    #: The cache directory cannot be used: the kernel is kept in memory only.
    DISK_UNUSABLE = "disk_unusable"
    #: The client cannot make bytes of the program, so that it has no digest.
    UNCACHEABLE_INPUT = "uncacheable_input"
    #: The bytes are no valid program.
    INVALID_PROGRAM = "invalid_program"
    #: An operation has no lowering.
    UNSUPPORTED_OP = "unsupported_op"
    #: The program is above a limit of the service or of the compiler.
    OVER_LIMIT = "over_limit"
    #: The compile failed, now or as remembered.
    COMPILE_FAILED = "compile_failed"
    #: The compile passed its time limit, now or as remembered.
    COMPILE_TIMEOUT = "compile_timeout"
    #: The caller had it compiled although a failure is remembered.
    RETRY = "retry"


#: Reasons that a server sees. The others are counted by clients only.
SERVER_REASONS = (
    BypassReason.QUOTA,
    BypassReason.INVALID_PROGRAM,
    BypassReason.UNSUPPORTED_OP,
    BypassReason.OVER_LIMIT,
    BypassReason.COMPILE_FAILED,
    BypassReason.COMPILE_TIMEOUT,
    BypassReason.RETRY,
)

#: Limits of a busy server: the same program is cached when it has room again.
_OF_A_MOMENT = ("max_waiting", "reply_bytes", "spool_bytes")
_ERRORS: dict[type[KcacheError], BypassReason] = {
    InvalidProgram: BypassReason.INVALID_PROGRAM,
    UnsupportedOp: BypassReason.UNSUPPORTED_OP,
    CompileFailed: BypassReason.COMPILE_FAILED,
    CompileTimeout: BypassReason.COMPILE_TIMEOUT,
}


def counter_of(reason: BypassReason) -> str:
    """The name of the counter of a reason, such as ``bypass_quota``."""
    return f"bypass_{reason.value}"


def rejection_reason(error: KcacheError) -> BypassReason | None:
    """The reason where a program gets no kernel because of ``error``; ``None`` where that is no bypass.

    That the service is away, a wrong argument and a missing permission are none: the same program is cached
    once that is repaired.
    """
    if isinstance(error, ResourceExhausted):
        if error.metadata.get("limit") in _OF_A_MOMENT:
            return None
        return BypassReason.QUOTA if _is_quota(error) else BypassReason.OVER_LIMIT
    return next((reason for cls, reason in _ERRORS.items() if isinstance(error, cls)), None)


def fallback_reason(error: KcacheError) -> BypassReason | None:
    """The reason where the embedded service stands in for one that answers ``error``; else ``None``."""
    if isinstance(error, Unavailable):
        broken = "breaker" in error.metadata
        return BypassReason.BREAKER_OPEN if broken else BypassReason.SERVICE_UNAVAILABLE
    if isinstance(error, ResourceExhausted) and _is_quota(error):
        return BypassReason.QUOTA
    disowned = isinstance(error, PermissionDenied) and "toolchain" in error.metadata
    if "skew" in error.metadata or disowned:
        return BypassReason.VERSION_SKEW
    return BypassReason.DAMAGED_PIN if error.metadata.get("damaged") == "pin" else None


def _is_quota(error: ResourceExhausted) -> bool:
    limit = error.metadata.get("limit", "")
    return limit.startswith("quota.") or limit == "namespaces"
