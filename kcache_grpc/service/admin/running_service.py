"""Administration of a running service: the same, off the event loop, with the service's own compiler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import TypeVar

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.identity import Toolchains
from kcache_grpc.service.admin.operations import Administration
from kcache_grpc.service.lifecycle.garbage_collection import CollectionOptions, Report
from kcache_grpc.service.lifecycle.verify import SAMPLE, Compile, Counts, Fault
from kcache_grpc.service.namespaces import Namespaces
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.values import Caller
from kcache_grpc.storage import checks
from kcache_grpc.storage.contract.lifecycle import Pin, Quota
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.worker import WorkerPool
from kcache_grpc.worker.frames import Frame

T = TypeVar("T")

#: Kernels that one call may check without checking all.
_MOST_SAMPLED = 100_000


class Admin:
    """One event loop."""

    def __init__(
        self,
        store: Store,
        threads: StoreThreads,
        namespaces: Namespaces,
        pool: WorkerPool,
        public_key: bytes,
        toolchains: Toolchains,
        compile_seconds: float,
    ) -> None:
        self._store = store
        self._threads = threads
        self._namespaces = namespaces
        self._pool = pool
        self._public_key = public_key
        self._toolchains = toolchains.digests
        self._compile_seconds = compile_seconds

    async def collect(self, caller: Caller, options: CollectionOptions) -> AsyncGenerator[Report]:
        """A collection: what came of it so far, after each transaction."""
        namespace = await self._namespaces.get(caller.namespace)
        async for report in self._each(lambda: self._as(caller).collect(namespace, options)):
            yield report

    async def set_quota(self, caller: Caller, resource: str, most: int | None, policy: str) -> Quota | None:
        """Raises ``ArgumentError``."""
        namespace = await self._namespaces.get(caller.namespace)
        if most is None:
            if not namespace.is_stored:
                return None
        else:
            checks.quota(resource, most, policy)
            namespace = await self._namespaces.create(namespace)
        return await self._threads(self._as(caller).set_quota, namespace, resource, most, policy)

    async def list_quotas(self, caller: Caller) -> list[Quota]:
        """All quotas of the namespace."""
        namespace = await self._namespaces.get(caller.namespace)
        return list((await self._threads(self._store.list_quotas, namespace)).values())

    async def pin(self, caller: Caller, subject: str, digest: bytes, reason: str) -> bool:
        """Raises ``ArgumentError``."""
        checks.pin(subject, digest, reason)
        namespace = await self._namespaces.create(await self._namespaces.get(caller.namespace))
        return await self._threads(self._as(caller).pin, namespace, subject, digest, reason)

    async def unpin(self, caller: Caller, subject: str, digest: bytes) -> bool:
        """Raises ``ArgumentError``."""
        checks.pin(subject, digest, "")
        namespace = await self._namespaces.get(caller.namespace)
        if not namespace.is_stored:
            return False
        return await self._threads(self._as(caller).unpin, namespace, subject, digest)

    async def list_pins(self, caller: Caller) -> tuple[Pin, ...]:
        """All pins of the namespace."""
        namespace = await self._namespaces.get(caller.namespace)
        return await self._threads(self._store.list_pins, namespace)

    async def raise_epoch(self, caller: Caller, reason: str) -> int:
        """The epoch that holds now: here at once, in other servers within their window."""
        checks.text("reason", reason)
        namespace = await self._namespaces.create(await self._namespaces.get(caller.namespace))
        raised = await self._threads(self._as(caller).raise_epoch, namespace, reason)
        self._namespaces.forget(namespace.id)
        return raised.epoch

    async def disown(self, caller: Caller, toolchain: bytes, reason: str, undo: bool) -> bool:
        """True when it changed anything: here at once, in other servers within their window."""
        checks.digest("toolchain", toolchain)
        checks.text("reason", reason)
        namespace = await self._namespaces.get(caller.namespace)
        if undo and not namespace.is_stored:
            return False
        namespace = await self._namespaces.create(namespace)
        admin = self._as(caller)
        changed = await self._threads(lambda: admin.disown(namespace, toolchain, reason, undo=undo))
        self._namespaces.forget(namespace.id)
        return changed

    async def set_compatible_targets(self, caller: Caller, allowed: bool) -> bool:
        """True when it changed anything: here at once, in other servers within their window."""
        namespace = await self._namespaces.create(await self._namespaces.get(caller.namespace))
        changed = await self._threads(self._as(caller).set_compatible_targets, namespace, allowed)
        self._namespaces.forget(namespace.id)
        return changed

    async def set_trusted_roles(self, caller: Caller, roles: Sequence[str]) -> bool:
        """True when it changed anything, which holds from the next lookup on. Raises ``ArgumentError``."""
        checks.roles(roles)
        namespace = await self._namespaces.create(await self._namespaces.get(caller.namespace))
        return await self._threads(self._as(caller).set_trusted_roles, namespace, list(roles))

    async def verify(
        self,
        caller: Caller,
        sample: int | None,
        compile: bool = True,
        *,
        repair: bool = False,
        confirmed: bool = False,
    ) -> AsyncGenerator[Fault | Counts]:
        """Faults, then the counts; ``sample`` 0: as many as usual. See ``verify.Verification``.

        Raises ``ArgumentError``, and ``SignerMismatch`` once the store belongs to another key.
        """
        if sample is not None and sample > _MOST_SAMPLED:
            raise ArgumentError(f"a sample has at most {_MOST_SAMPLED} kernels", field="sample")
        namespace = await self._namespaces.get(caller.namespace)
        number = SAMPLE if sample == 0 else sample
        recompile = self._recompiling() if compile else None
        checks = self._as(caller)
        async for event in self._each(
            lambda: checks.verify(
                namespace,
                self._public_key,
                number,
                self._toolchains,
                recompile,
                repair=repair,
                confirmed=confirmed,
            )
        ):
            yield event

    def _as(self, caller: Caller) -> Administration:
        return Administration(self._store, caller)

    def _recompiling(self) -> Compile:
        return recompiling(self._pool, asyncio.get_running_loop(), self._compile_seconds)

    async def _each(self, begin: Callable[[], Iterator[T]]) -> AsyncGenerator[T]:
        """The values of a blocking iterator, each made off the loop, in a thread of their own.

        Ended early it is closed between two values: each of them is whole.
        """
        values = begin()
        end = object()
        try:
            while (value := await asyncio.to_thread(next, values, end)) is not end:
                yield value  # pyright: ignore[reportReturnType]
        finally:
            close = getattr(values, "close", None)
            if close is not None:
                await asyncio.to_thread(close)


def recompiling(pool: WorkerPool, loop: asyncio.AbstractEventLoop, seconds: float) -> Compile:
    """Compiles in the workers of a pool, for other threads than that of its loop."""

    def recompile(job: Frame) -> Frame:
        work = pool.compile(job, seconds, lambda stage: None)
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    return recompile
