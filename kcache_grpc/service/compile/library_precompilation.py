"""Compiles the libraries that most kernels are linked with while a service has nothing else to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from kcache_grpc.errors import KcacheError
from kcache_grpc.service.tasks.background_task import BackgroundTask
from kcache_grpc.worker import WorkerPool, codec

logger = logging.getLogger("kcache.service")

#: Seconds after which a precompilation is tried again that a caller's job ended or prevented.
REST = 5.0
#: Seconds that the libraries of one target may take.
_TIMEOUT = 600.0
#: Seconds that the warm-up of a target may take: a third of one, as a rule.
_WARM_UP_TIMEOUT = 60.0


class LibraryPrecompilation:
    """Precompiles the libraries of ``targets``, in order, once, in a process of the lowest priority.

    The process is ended as soon as a caller's job comes, and the rest is compiled later: what was compiled is
    in the workers' shared directory. After each target a worker of the pool warms up: it compiles a small
    program, which takes a third of a second. Changes no byte of a kernel. One event loop.
    """

    def __init__(
        self,
        pool: WorkerPool,
        targets: Sequence[str],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._pool = pool
        self._targets = targets
        self._sleep = sleep
        self._task = BackgroundTask(self._run)
        #: Libraries that were compiled, and attempts that a caller's job ended or prevented.
        self.compiled = 0
        self.preempted = 0

    def start(self) -> None:
        """Begins."""
        self._task.start()

    async def wait(self) -> None:
        """Returns when the libraries of all targets are compiled, or ``close`` was called."""
        await self._task.wait()

    async def close(self) -> None:
        """Ends what runs, and waits for that. Idempotent."""
        await self._task.close()

    async def _run(self) -> None:
        for target in self._targets:
            await self._precompile(target)

    async def _precompile(self, target: str) -> None:
        try:
            while (reply := await self._pool.compile_apart(codec.precompile_job(target), _TIMEOUT)) is None:
                self.preempted += 1
                await self._sleep(REST)
        except KcacheError as error:  # kernels compile their libraries themselves
            logger.warning("the libraries of %s were not precompiled: %s", target, error.message)
        else:
            self.compiled += int(reply.header["compiled"])
            await self._warm_up(target)

    async def _warm_up(self, target: str) -> None:
        """Lets a worker that has nothing to do load the libraries, and what else its first kernel needs."""
        try:
            await self._pool.compile_if_idle(codec.warm_up_job(target), _WARM_UP_TIMEOUT)
        except KcacheError as error:
            logger.warning("the warm-up for %s failed: %s", target, error.message)
