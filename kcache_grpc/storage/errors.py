"""Errors of the store. Each is also an error of the public tree, so that nobody maps it again.

    StorageError
     +-- InvalidValue       an argument that no store accepts (ArgumentError)
     +-- MissingReference   a row that the call builds on is not stored (NotFound)
     +-- DigestMismatch     bytes whose SHA-256 is not their name (IntegrityError)
     +-- Conflict           a different value is stored under the name that the caller gave (Conflict)
     +-- LeaseLost          the lease was taken over, released or given out again
     +-- SchemaMismatch     the database has another schema revision; ``.command`` is what to type
     +-- SignerMismatch     another key signed what the store holds (PermissionDenied)
     +-- QuotaExceeded      the namespace holds as much as its quota allows (ResourceExhausted)
     +-- ToolchainDisowned  kernels of that toolchain are not taken any longer (PermissionDenied)
     +-- ForeignDatabase    the file or database is not a store of kcache
     +-- UnsupportedStore   this store cannot work there: a network file system, an unknown engine
     +-- ObjectStoreMismatch   bytes are in another object store than the one given (ArgumentError)
     +-- CorruptStore       the database itself is damaged or was edited (IntegrityError)
     +-- StoreUnavailable   full disk, read-only, locked, closed: worth a retry (Unavailable)

A call that raises has changed nothing.
"""

from __future__ import annotations

from kcache_grpc import errors


class StorageError(errors.KcacheError):
    """Base of everything that storage raises."""


class InvalidValue(StorageError, errors.ArgumentError):
    """An argument that no store accepts: a digest of the wrong size, text that has no UTF-8 form."""


class MissingReference(StorageError, errors.NotFound):
    """The call names a spec or a kernel that is not stored."""


class DigestMismatch(StorageError, errors.IntegrityError):
    """The bytes given do not hash to the name given."""


class Conflict(StorageError, errors.Conflict):
    """A different value is stored under that name. The first stays, and the attempt is recorded."""


class LeaseLost(StorageError):
    """The lease that the caller shows is no longer its own."""


class SchemaMismatch(StorageError):
    """The database has schema revision ``current`` (empty: none yet), this version needs ``expected``."""

    def __init__(self, current: str, expected: str, command: str) -> None:
        state = f"has schema revision {current}" if current else "has no schema yet"
        super().__init__(
            f"the store {state}, this version of kcache needs {expected}; run: {command}",
            current=current,
            expected=expected,
            command=command,
        )
        self.current = current
        self.expected = expected
        self.command = command


class SignerMismatch(StorageError, errors.PermissionDenied):
    """Another key signed what the store holds: clients would reject it under this one."""


class QuotaExceeded(StorageError, errors.ResourceExhausted):
    """The insert would pass a quota of the namespace. What is stored is served as before."""

    def __init__(self, namespace: str, resource: str, most: int, wanted: int, policy: str) -> None:
        place = f"namespace {namespace} may hold {most} {resource.replace('_', ' ')}, and would hold {wanted}"
        super().__init__(
            f"{place}; raise the quota (kcache quota set {namespace} {resource} NUMBER) "
            f"or remove what is not used (kcache gc --apply --namespace {namespace})",
            limit=f"quota.{resource}",
            namespace=namespace,
            most=str(most),
        )
        self.resource = resource
        self.most = most
        self.wanted = wanted
        self.policy = policy


class TooManyNamespaces(StorageError, errors.ResourceExhausted):
    """The store has as many namespaces as it may have. Those that are stored are served as before."""

    def __init__(self, namespace: str, most: int) -> None:
        super().__init__(
            f"namespace {namespace} is not created: the store has {most} namespaces, the limit; "
            "use one that is there, or raise the server's KCACHE_MAX_NAMESPACES",
            limit="max_namespaces",
            maximum=str(most),
        )


class ToolchainDisowned(StorageError, errors.PermissionDenied):
    """The namespace does not take or serve kernels of that toolchain any longer."""

    def __init__(self, namespace: str, toolchain: bytes) -> None:
        super().__init__(
            f"namespace {namespace} has disowned toolchain {toolchain.hex()}: upgrade this server, or take "
            f"that back (kcache disown --undo --namespace {namespace} --toolchain {toolchain.hex()})",
            toolchain=toolchain.hex(),
        )


class ForeignDatabase(StorageError):
    """What is there was not made by kcache, and is left alone."""


class UnsupportedStore(StorageError, errors.ArgumentError):
    """The store cannot be kept safely at that place, or by that engine."""


class ObjectStoreMismatch(StorageError, errors.ArgumentError):
    """The rows of the store point to another object store, or that one is another store's."""


class CorruptStore(StorageError, errors.IntegrityError):
    """The database is damaged, or a row does not say what it said when it was written."""

    def __init__(self, message: str, **metadata: str) -> None:
        super().__init__(message, **{"damaged": "store", **metadata})


class StoreUnavailable(StorageError, errors.Unavailable):
    """The database cannot be used now: full disk, read-only, locked for too long, closed."""
