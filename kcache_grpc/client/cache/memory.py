"""The tier in memory: a bounded table, single flight within the process, and the kernels themselves.

Kernels are found by program digest, and by the text itself, so that a hit hashes nothing.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kcache_grpc.client.progress import Progress
from kcache_grpc.client.trust.server_state import Provenance
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.errors import KcacheError
from kcache_grpc.model.options import Options
from kcache_grpc.model.sizes.modes import EXACT, ShapeRequirements
from kcache_grpc.programs.source import ProgramLike
from kcache_grpc.runtime import Kernel
from kcache_grpc.runtime.bound_kernel import BoundArguments, BoundKernel

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_EVER = float("inf")
RequestKey = tuple[bytes, str, Options, ShapeRequirements]
_ProgramKey = tuple[str | bytes, str | None, str, Options | None, ShapeRequirements | None]


class Lru(Generic[K, V]):
    """A table that forgets what was used longest ago; thread-safe; a hit takes about a microsecond.

    Bounded by entries, and by the sum of the weights that ``put`` was told.
    """

    def __init__(self, max_entries: int, max_weight: int = 0) -> None:
        self._max_entries = max_entries
        self._max_weight = max_weight
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, weight: int = 0) -> None:
        """Keeps ``value``, unless its weight alone is above the bound."""
        if self._max_weight and weight > self._max_weight:
            return
        with self._lock:
            old = self._entries.pop(key, None)
            self._weight += weight - (old[1] if old else 0)
            self._entries[key] = (value, weight)
            while len(self._entries) > self._max_entries or (
                self._max_weight and self._weight > self._max_weight
            ):
                _, (_, forgotten) = self._entries.popitem(last=False)
                self._weight -= forgotten

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._weight = 0

    def after_fork(self) -> None:
        """A fork may have copied the lock while another thread held it."""
        self._lock = threading.Lock()


class Abandoned(Exception):
    """The leader gave up; another waiter has to become the leader."""


@dataclass
class InFlightCall(Generic[V]):
    """A call that makes one value, and the listeners to its progress."""

    future: Future[V] = field(default_factory=Future["V"])
    listeners: list[Progress] = field(default_factory=list["Progress"])


class SingleFlight(Generic[K, V]):
    """Running calls by key; thread-safe. The first to enter is the leader, the others wait."""

    def __init__(self) -> None:
        self._calls: dict[K, InFlightCall[V]] = {}
        self._lock = threading.Lock()

    def enter(self, key: K) -> tuple[InFlightCall[V], bool]:
        """The running call of ``key``, and whether the caller is its leader."""
        with self._lock:
            call = self._calls.get(key)
            if call is not None:
                return call, False
            call = self._calls[key] = InFlightCall[V]()
            return call, True

    def finish(self, key: K, outcome: V | BaseException) -> None:
        """Ends the call of ``key`` with its value or error, and wakes its waiters."""
        with self._lock:
            call = self._calls.pop(key)
        if isinstance(outcome, BaseException):
            call.future.set_exception(outcome)
        else:
            call.future.set_result(outcome)

    def after_fork(self) -> None:
        """The threads of running calls are not in this process."""
        self._lock = threading.Lock()
        self._calls = {}


def request_key(request: KernelRequest) -> RequestKey:
    """What equal requests have in common."""
    return (request.program.digest, str(request.target), request.options, request.shapes)


class CachedKernel:
    """A kernel, and the provenance of the server that sent it.

    ``until``: when a better kernel is requested again, on the clock of ``time.monotonic``.
    """

    def __init__(self, provenance: Provenance, kernel: Kernel, until: float = _EVER) -> None:
        self.provenance = provenance
        self.kernel = kernel
        self.until = until
        self._again: Kernel | None = None

    @property
    def is_due(self) -> bool:
        """Whether a better kernel is to be requested from the service."""
        return self.until != _EVER and time.monotonic() >= self.until

    def again(self) -> Kernel:
        """The same kernel with the origin "memory"; code and constants are shared."""
        if self._again is None:
            # Loaded before it is copied, so that both share what was loaded. A kernel for another
            # machine cannot be, and says so when it is called.
            with contextlib.suppress(KcacheError):
                self.kernel.load()
            twin = copy.copy(self.kernel)
            twin.origin, twin.seconds_saved = "memory", twin.manifest.compile_seconds
            self._again = twin
        return self._again


class BoundEntry:
    """A cached kernel with the bound arguments of one program text."""

    def __init__(self, entry: CachedKernel, arguments: BoundArguments | None) -> None:
        self.provenance = entry.provenance
        self._entry, self._arguments = entry, arguments

    @property
    def is_due(self) -> bool:
        """See ``CachedKernel.is_due``."""
        return self._entry.is_due

    def again(self) -> Kernel:
        """See ``CachedKernel.again``."""
        kernel = self._entry.again()
        return kernel if self._arguments is None else BoundKernel(kernel, self._arguments)


class KernelTable:
    """Cached kernels by request and by program. Thread-safe, bounded in kernels and in bytes of programs."""

    def __init__(self, max_kernels: int, max_program_bytes: int) -> None:
        self._by_digest: Lru[RequestKey, CachedKernel] = Lru(max_kernels)
        self._by_program: Lru[_ProgramKey, BoundEntry] = Lru(max_kernels, max_program_bytes)

    def by_digest(self, key: RequestKey) -> CachedKernel | None:
        """By all that decides which kernel it is."""
        return self._by_digest.get(key)

    def by_program(
        self,
        program: ProgramLike,
        format: str | None,
        target: str,
        options: Options | None,
        shapes: ShapeRequirements = EXACT,
    ) -> BoundEntry | None:
        """By an equal text or equal bytes; Python caches their hashes."""
        if type(program) is not str and type(program) is not bytes:
            return None
        try:
            return self._by_program.get((program, format, target, options, _quick(shapes)))
        except TypeError:  # an argument of a wrong, unhashable type: rejected where it is read
            return None

    def keep(self, key: RequestKey, provenance: Provenance, kernel: Kernel, window: float = _EVER) -> None:
        """Keeps a kernel; one for a lower target than that of ``key`` for ``window`` seconds."""
        lower = str(kernel.manifest.target) != key[1]
        until = time.monotonic() + window if lower else _EVER
        self._by_digest.put(key, CachedKernel(provenance, kernel, until))

    def name_program(
        self,
        program: Any,
        format: str | None,
        target: str,
        options: Options | None,
        key: RequestKey,
        shapes: ShapeRequirements = EXACT,
        arguments: BoundArguments | None = None,
    ) -> None:
        """Lets an equal text find the kernel of ``key``, with the arguments that the text brings."""
        entry = self._by_digest.get(key)
        if entry is not None and (type(program) is str or type(program) is bytes):
            named = BoundEntry(entry, arguments)
            self._by_program.put((program, format, target, options, _quick(shapes)), named, len(program))

    def clear(self) -> None:
        """Forgets all kernels; those that callers hold stay usable."""
        self._by_digest.clear()
        self._by_program.clear()

    def after_fork(self) -> None:
        """See ``Lru.after_fork``."""
        self._by_digest.after_fork()
        self._by_program.after_fork()


def _quick(shapes: ShapeRequirements) -> ShapeRequirements | None:
    """``None`` stands for the default requirements, and costs no hash."""
    return None if shapes is EXACT else shapes
