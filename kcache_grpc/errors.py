"""The public error tree and the one table that maps it to gRPC.

    KcacheError
     +-- InvalidProgram       the bytes are not a valid program
     +-- UnsupportedOp        valid, but an op has no lowering; ``.op`` names it
     +-- ArgumentError        wrong arguments of a call or of a kernel
     +-- CompileFailed        a stage failed; ``.stage`` and ``.diagnostic``
     +-- CompileTimeout       the compile passed its time limit
     +-- ResourceExhausted    a documented limit was passed
     +-- NotFound             no such key, artifact or program
     +-- Conflict             a different value under a name that the caller gave
     +-- IntegrityError       bytes that do not match their digest or signature
     +-- PermissionDenied     not allowed, or not safe enough to be done
     +-- Unavailable          the service cannot be reached or is shutting down; worth a retry
     +-- CacheError           a key, a value or an entry of ``kcache_grpc.caches`` is not valid

On the wire an error is a ``google.rpc.Status`` with an ``ErrorInfo`` whose domain is ``kcache``.
This module imports neither gRPC nor protobuf: codes are names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: ``ErrorInfo.domain`` of every error that kcache raises on purpose.
DOMAIN = "kcache"


class KcacheError(Exception):
    """Base of all errors of kcache. ``metadata`` travels in ``ErrorInfo.metadata``."""

    def __init__(self, message: str, **metadata: str) -> None:
        super().__init__(message)
        self.message = message
        self.metadata: dict[str, str] = metadata

    @property
    def reason(self) -> str:
        """The reason on the wire, such as ``INVALID_PROGRAM``."""
        return wire_form(self).reason

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return wire_form(self).retryable


class InvalidProgram(KcacheError):
    """The bytes are not a valid program of the stated format."""


class UnsupportedOp(KcacheError):
    """The program is valid, but one of its ops has no lowering."""

    @property
    def op(self) -> str:
        """Name of the op, such as ``stablehlo.fft``."""
        return self.metadata.get("op", "")


class ArgumentError(KcacheError, ValueError):
    """An argument has the wrong dtype, rank, size, layout or value."""


class CompileFailed(KcacheError):
    """A stage of the compiler failed on a valid program."""

    @property
    def stage(self) -> str:
        """The stage that failed."""
        return self.metadata.get("stage", "")

    @property
    def diagnostic(self) -> str:
        """What that stage said."""
        return self.metadata.get("diagnostic", "")


class CompileTimeout(KcacheError, TimeoutError):
    """The compile passed its time limit."""


class ResourceExhausted(KcacheError):
    """A documented limit was passed; ``metadata['limit']`` names it."""


class NotFound(KcacheError, LookupError):
    """No such key, artifact, program or file."""


class Conflict(KcacheError):
    """A different value is stored under the name that the caller gave; the first one stays."""


class IntegrityError(KcacheError):
    """Bytes do not match their digest or signature, or a server its pinned identity."""


class PermissionDenied(KcacheError):
    """Not allowed, or rejected because it would not be safe."""


class Unavailable(KcacheError, ConnectionError):
    """The service cannot be reached, is overloaded or shutting down."""


class CacheError(KcacheError, ValueError):
    """A key or a value of ``kcache_grpc.caches`` has an unsupported type, or a stored entry is damaged."""


@dataclass(frozen=True)
class WireForm:
    """How one error class travels."""

    code: str
    reason: str
    retryable: bool


#: The table: every public class, once.
WIRE_FORMS: Mapping[type[KcacheError], WireForm] = {
    KcacheError: WireForm("INTERNAL", "INTERNAL", False),
    InvalidProgram: WireForm("INVALID_ARGUMENT", "INVALID_PROGRAM", False),
    UnsupportedOp: WireForm("UNIMPLEMENTED", "UNSUPPORTED_OP", False),
    ArgumentError: WireForm("INVALID_ARGUMENT", "ARGUMENT", False),
    CompileFailed: WireForm("FAILED_PRECONDITION", "COMPILE_FAILED", False),
    CompileTimeout: WireForm("DEADLINE_EXCEEDED", "COMPILE_TIMEOUT", False),
    ResourceExhausted: WireForm("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", False),
    NotFound: WireForm("NOT_FOUND", "NOT_FOUND", False),
    Conflict: WireForm("ALREADY_EXISTS", "CONFLICT", False),
    IntegrityError: WireForm("DATA_LOSS", "INTEGRITY", False),
    PermissionDenied: WireForm("PERMISSION_DENIED", "PERMISSION_DENIED", False),
    Unavailable: WireForm("UNAVAILABLE", "UNAVAILABLE", True),
    CacheError: WireForm("INVALID_ARGUMENT", "CACHE", False),
}

#: Reasons that refine a class without a class of their own.
EXTRA_REASONS: Mapping[str, type[KcacheError]] = {"PROGRAM_REQUIRED": NotFound}

#: What a transport error without ``ErrorInfo`` means: the whole of ``grpc.StatusCode`` but ``OK``.
TRANSPORT_CODES: Mapping[str, type[KcacheError]] = {
    "CANCELLED": Unavailable,
    "UNKNOWN": KcacheError,
    "INVALID_ARGUMENT": ArgumentError,
    "DEADLINE_EXCEEDED": Unavailable,
    "NOT_FOUND": NotFound,
    "ALREADY_EXISTS": Conflict,
    "PERMISSION_DENIED": PermissionDenied,
    "UNAUTHENTICATED": PermissionDenied,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
    "FAILED_PRECONDITION": KcacheError,
    "ABORTED": Unavailable,
    "OUT_OF_RANGE": ArgumentError,
    "UNIMPLEMENTED": Unavailable,
    "INTERNAL": KcacheError,
    "UNAVAILABLE": Unavailable,
    "DATA_LOSS": IntegrityError,
}


def wire_form(error: KcacheError | type[KcacheError]) -> WireForm:
    """The row of the table for an error or the nearest class above it."""
    cls = error if isinstance(error, type) else type(error)
    for base in cls.__mro__:
        if base in WIRE_FORMS:
            return WIRE_FORMS[base]
    raise TypeError(f"{cls.__name__} is not an error of kcache")


def from_reason(reason: str, message: str, metadata: Mapping[str, str]) -> KcacheError:
    """The error that a server meant by ``reason``; ``KcacheError`` for a reason from the future."""
    for cls, form in WIRE_FORMS.items():
        if form.reason == reason:
            return cls(message, **metadata)
    return EXTRA_REASONS.get(reason, KcacheError)(message, **metadata)


def from_transport(code: str, message: str) -> KcacheError:
    """The error for a gRPC status without ``ErrorInfo``; ``code`` is the status code's name."""
    return TRANSPORT_CODES.get(code, KcacheError)(message, code=code)
