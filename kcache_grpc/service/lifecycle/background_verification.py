"""Background verification: an idle server compiles stored kernels again and compares bytes."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from kcache_grpc.errors import KcacheError, Unavailable
from kcache_grpc.model.identity import ingredients_digest
from kcache_grpc.model.staleness import is_current_epoch, staleness
from kcache_grpc.service.claims import Claims
from kcache_grpc.service.lifecycle.verify import Fault, Verification, last_kernel
from kcache_grpc.service.tasks.background_task import BackgroundTask
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import AuditEvent, Namespace, StoredKernel
from kcache_grpc.worker import WorkerPool
from kcache_grpc.worker.frames import Frame

logger = logging.getLogger("kcache.service")

#: Seconds between two looks whether the server is idle.
IDLE_LOOK = 1.0
#: Seconds after a verification that a caller's job ended: more jobs may come.
REST = 10.0
#: Faulty kernels that are quarantined whatever their share; beyond, the check is more likely wrong than they.
FIRST_FAULTS = 3
#: The share of faulty kernels above which nothing more is quarantined: one in a hundred.
IMPLAUSIBLE_SHARE = 0.01
_PAGE = 100


class Clock(Protocol):
    """Time as the loop sees it."""

    def now(self) -> float:
        """Seconds since any moment."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Returns after this many seconds."""
        ...


class LoopClock:
    """The clock of the running event loop."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True)
class Checked:
    """A kernel that was verified; ``faults`` is empty where all is as it was stored."""

    namespace: Namespace
    kernel_digest: bytes
    faults: tuple[Fault, ...]


class Preempted(Exception):
    """A job of a caller came, or was there."""


class BackgroundVerification:
    """Verifies ``per_hour`` stored kernels an hour, at most, while no caller's job runs or waits.

    Each is compiled again in a fresh process of the lowest priority, which is ended as soon as a caller's job
    comes; the kernel is then tried again later. A round visits every kernel of the present toolchains once,
    from a random place on in each namespace; of neighbors those that this server did not compile come first
    (``is_own``). Servers of one Postgres store claim what they verify, so no two verify one kernel at once.

    What is faulty is repaired as ``kcache verify --apply`` does it, up to ``FIRST_FAULTS`` kernels or
    ``IMPLAUSIBLE_SHARE`` of those verified here, and told in the audit log in any case. One event loop.
    """

    def __init__(
        self,
        store: Store,
        pool: WorkerPool,
        claims: Claims,
        public_key: bytes,
        per_hour: float,
        compile_seconds: float,
        is_own: Callable[[bytes], bool] = lambda digest: False,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._pool = pool
        self._claims = claims
        self._public_key = public_key
        self._interval = 3600.0 / per_hour
        self._compile_seconds = compile_seconds
        self._is_own = is_own
        self._clock = clock or LoopClock()
        self._round: Iterator[tuple[Namespace, StoredKernel]] = iter(())
        #: What was preempted, and is tried again first.
        self._again: tuple[Namespace, StoredKernel] | None = None
        self._task = BackgroundTask(self._run)
        #: Kernels verified, those of them that were faulty, and attempts that a caller's job ended.
        self.verified = 0
        self.faulty = 0
        self.preempted = 0

    def start(self) -> None:
        """Begins; the first kernel is verified an interval from now."""
        self._task.start()

    async def close(self) -> None:
        """Ends what runs, and waits for that. Idempotent."""
        await self._task.close()

    async def _run(self) -> None:
        due = self._clock.now() + self._interval
        while True:
            await self._clock.sleep(max(due - self._clock.now(), 0.0))
            began, before = self._clock.now(), self.preempted
            try:
                await self.step()
                due = began + self._interval
            except Preempted:
                pause = IDLE_LOOK if self.preempted == before else REST
                due = self._clock.now() + min(pause, self._interval)
            except KcacheError as error:
                logger.warning("a stored kernel was not verified: %s", error)
                due = began + self._interval

    async def step(self) -> Checked | None:
        """Verifies the next kernel; ``None`` where a round has none.

        Raises ``Preempted`` where a caller's job runs, waits or comes, and what the store raises.
        """
        if not self._pool.idle:
            raise Preempted
        for _ in range(2):  # what is left of this round, then a whole one
            while (candidate := await self._next()) is not None:
                claim = await self._claims.take(_claim_name(*candidate))
                if claim is None:
                    continue  # another server is verifying it
                try:
                    return await self._verify(*candidate)
                except Preempted:
                    self._again = candidate
                    self.preempted += 1
                    raise
                finally:
                    await self._claims.give_back(claim)
            self._round = self._kernels()
        return None

    async def _next(self) -> tuple[Namespace, StoredKernel] | None:
        """The next kernel of the round that is still served; ``None`` at its end."""
        candidate, self._again = self._again, None
        while candidate is None or not await asyncio.to_thread(self._is_served, *candidate):
            candidate = await asyncio.to_thread(next, self._round, None)
            if candidate is None:
                return None
        return candidate

    def _kernels(self) -> Iterator[tuple[Namespace, StoredKernel]]:
        """Every kernel of the present toolchains once. Blocking."""
        namespaces = list(self._store.list_namespaces())
        random.shuffle(namespaces)
        for namespace in namespaces:
            disowned = {each.toolchain for each in self._store.list_disowned(namespace)}
            for page in self._pages(namespace):
                mine = [kernel for kernel in page if not self._is_stale(kernel, namespace, disowned)]
                mine.sort(key=lambda kernel: self._is_own(kernel.kernel.kernel_digest))
                for kernel in mine:
                    yield namespace, kernel

    def _is_stale(self, kernel: StoredKernel, namespace: Namespace, disowned: Collection[bytes]) -> bool:
        reason = staleness(
            kernel.epoch,
            kernel.kernel.toolchain,
            namespace_epoch=namespace.epoch,
            disowned=disowned,
            toolchains=self._pool.toolchains.digests,
        )
        return reason is not None

    def _pages(self, namespace: Namespace) -> Iterator[list[StoredKernel]]:
        """All kernels of a namespace, from a random place to the end and from the beginning to there."""
        last = last_kernel(self._store, namespace)
        start = random.randrange(last + 1)  # noqa: S311 (an order, not a secret)
        for after, end in ((start, last), (0, start)):
            while page := self._store.page_kernels(namespace, after, _PAGE):
                if some := [kernel for kernel in page if kernel.id <= end]:
                    yield some
                after = page[-1].id
                if after >= end:
                    break

    def _is_served(self, namespace: Namespace, kernel: StoredKernel) -> bool:
        """Whether the kernel was not removed, nor its epoch disowned, since it was listed. Blocking."""
        present = self._store.find_namespace(namespace.name)
        if present is None or not is_current_epoch(namespace.epoch, present.epoch):
            return False
        return self._store.find_kernel(present, kernel.kernel.kernel_digest) is not None

    async def _verify(self, namespace: Namespace, kernel: StoredKernel) -> Checked:
        """Compile a stored kernel again and compare it, with an audit event.

        If too many kernels fail, the server itself is suspect, and nothing is repaired.
        """
        loop = asyncio.get_running_loop()

        def recompile(job: Frame) -> Frame:
            work = self._pool.compile_apart(job, self._compile_seconds)
            try:
                reply = asyncio.run_coroutine_threadsafe(work, loop).result()
            except Unavailable as error:  # no process to compile in: nothing is said of the kernel
                logger.warning("a stored kernel was not compiled again: %s", error)
                raise Preempted from error
            if reply is None:
                raise Preempted
            return reply

        plausible = self.faulty < max(FIRST_FAULTS, IMPLAUSIBLE_SHARE * self.verified)
        checks = Verification(self._store, self._public_key, self._pool.toolchains.digests, recompile)
        began = time.monotonic()
        faults = await self._in_thread(lambda: checks.one(namespace, kernel, repair=plausible))
        self.verified += 1
        self.faulty += bool(faults)
        event = _event(kernel, faults, time.monotonic() - began)
        await asyncio.to_thread(self._store.append_audit, namespace, [event])
        for fault in faults:
            logger.error("%s %s: %s (%s)", fault.subject, fault.digest.hex(), fault.problem, fault.action)
        if faults and not plausible:
            logger.error(
                "%d of %d verified kernels are faulty, more than is plausible: none is quarantined any more",
                self.faulty,
                self.verified,
            )
        return Checked(namespace, kernel.kernel.kernel_digest, faults)

    async def _in_thread(self, work: Callable[[], tuple[Fault, ...]]) -> tuple[Fault, ...]:
        """Runs ``work`` off the loop; a caller that is cancelled ends its compile and waits for it."""
        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            while not running.done():
                self._pool.end_apart()
                await asyncio.wait({running}, timeout=0.1)
            if not running.cancelled():
                running.exception()
            raise


def _claim_name(namespace: Namespace, kernel: StoredKernel) -> bytes:
    """What a server claims that is about to verify a kernel."""
    pairs = (
        ("namespace", f"{namespace.name}.{namespace.epoch}"),
        ("kernel", kernel.kernel.kernel_digest.hex()),
    )
    return ingredients_digest("kcache.verifying.v1", pairs)


def _event(kernel: StoredKernel, faults: tuple[Fault, ...], seconds: float) -> AuditEvent:
    described = [
        {"subject": f.subject, "digest": f.digest.hex(), "problem": f.problem, "action": f.action}
        for f in faults
    ]
    return AuditEvent(
        "verify",
        outcome="faulty" if faults else "ok",
        key=kernel.kernel.key,
        kernel_digest=kernel.kernel.kernel_digest,
        target=kernel.kernel.target,
        toolchain=kernel.kernel.toolchain,
        duration_us=round(seconds * 1e6),
        detail=json.dumps({"background": True, "faults": described}),
    )
