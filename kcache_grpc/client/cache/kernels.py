"""Kernels in memory: by program digest, and by the text itself, so that a hit hashes nothing."""

from __future__ import annotations

import contextlib
import copy
import time
from typing import Any

from kcache_grpc.client.cache.memory import Lru
from kcache_grpc.client.trust.server_state import Generation
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.errors import KcacheError
from kcache_grpc.model.options import Options
from kcache_grpc.model.sizes.modes import EXACT, ShapeWish
from kcache_grpc.programs.source import ProgramLike
from kcache_grpc.runtime import Kernel
from kcache_grpc.runtime.bound_kernel import BoundArguments, BoundKernel

_EVER = float("inf")
AskKey = tuple[bytes, str, Options, ShapeWish]
_ProgramKey = tuple[str | bytes, str | None, str, Options | None, ShapeWish | None]


def ask_key(ask: KernelRequest) -> AskKey:
    """What makes two asks the same."""
    return (ask.program.digest, str(ask.target), ask.options, ask.shapes)


class Kept:
    """One kernel, and what its server was when it came.

    ``until``: when the service is to be asked again, on the clock of ``time.monotonic``.
    """

    def __init__(self, generation: Generation, kernel: Kernel, until: float = _EVER) -> None:
        self.generation = generation
        self.kernel = kernel
        self.until = until
        self._again: Kernel | None = None

    @property
    def is_due(self) -> bool:
        """Whether the service is to be asked for a better kernel."""
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


class Named:
    """The kernel of a text, and the arguments that the text brings."""

    def __init__(self, kept: Kept, arguments: BoundArguments | None) -> None:
        self.generation = kept.generation
        self._kept, self._arguments = kept, arguments

    @property
    def is_due(self) -> bool:
        """See ``Kept.is_due``."""
        return self._kept.is_due

    def again(self) -> Kernel:
        """See ``Kept.again``."""
        kernel = self._kept.again()
        return kernel if self._arguments is None else BoundKernel(kernel, self._arguments)


class KernelTable:
    """Both ways to a kept kernel. Thread-safe, bounded in kernels and in bytes of texts."""

    def __init__(self, max_kernels: int, max_program_bytes: int) -> None:
        self._by_digest: Lru[AskKey, Kept] = Lru(max_kernels)
        self._by_program: Lru[_ProgramKey, Named] = Lru(max_kernels, max_program_bytes)

    def by_digest(self, key: AskKey) -> Kept | None:
        """By all that decides which kernel it is."""
        return self._by_digest.get(key)

    def by_program(
        self,
        program: ProgramLike,
        format: str | None,
        target: str,
        options: Options | None,
        shapes: ShapeWish = EXACT,
    ) -> Named | None:
        """By an equal text or equal bytes; Python caches their hashes."""
        if type(program) is not str and type(program) is not bytes:
            return None
        try:
            return self._by_program.get((program, format, target, options, _quick(shapes)))
        except TypeError:  # an argument of a wrong, unhashable type: refused where it is read
            return None

    def keep(self, key: AskKey, generation: Generation, kernel: Kernel, window: float = _EVER) -> None:
        """Keeps a kernel; one for a lower target than that of ``key`` for ``window`` seconds."""
        lower = str(kernel.manifest.target) != key[1]
        until = time.monotonic() + window if lower else _EVER
        self._by_digest.put(key, Kept(generation, kernel, until))

    def name_program(
        self,
        program: Any,
        format: str | None,
        target: str,
        options: Options | None,
        key: AskKey,
        shapes: ShapeWish = EXACT,
        arguments: BoundArguments | None = None,
    ) -> None:
        """Lets an equal text find the kernel of ``key``, with the arguments that the text brings."""
        kept = self._by_digest.get(key)
        if kept is not None and (type(program) is str or type(program) is bytes):
            named = Named(kept, arguments)
            self._by_program.put((program, format, target, options, _quick(shapes)), named, len(program))

    def clear(self) -> None:
        """Forgets all kernels; those that callers hold stay usable."""
        self._by_digest.clear()
        self._by_program.clear()

    def after_fork(self) -> None:
        """See ``Lru.after_fork``."""
        self._by_digest.after_fork()
        self._by_program.after_fork()


def _quick(shapes: ShapeWish) -> ShapeWish | None:
    """``None`` stands for the usual wish, and costs no hash."""
    return None if shapes is EXACT else shapes
