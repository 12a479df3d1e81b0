"""Flow control of replies: bounds the bytes that clients have not read yet by connection, caller, process.

A stream that several tasks write to sends the parts that wait in one message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from kcache_grpc.errors import ResourceExhausted

#: The last part of a reply is not counted if it has at most this many bytes: gRPC buffers as much.
SMALL = 64 << 10
#: Seconds that a reply waits for others of its connection or caller to be read.
UNREAD_TIMEOUT = 30.0
#: Most seconds between two messages.
_SLOWEST = 1.0


@dataclass(frozen=True)
class ReplyLimits:
    """Bytes of unread replies of one connection, of one caller and of the process."""

    connection: int = 4 << 20
    caller: int = 16 << 20
    process: int = 128 << 20


@dataclass(frozen=True)
class Reader:
    """Who reads a reply. ``caller``: the host or user that its connection belongs to, and whom it names."""

    connection: str
    caller: str


class ReplyFlowControl:
    """A handler acquires the bytes of a part of a reply before it makes it, and releases them once sent.

    A connection without unread replies is always served, however many bytes others leave unread: clients that
    do not read hold up themselves. One event loop.
    """

    def __init__(self, limits: ReplyLimits | None = None, timeout: float = UNREAD_TIMEOUT) -> None:
        self._limits = limits or ReplyLimits()
        self._timeout = timeout
        self._connections: dict[str, int] = {}
        self._callers: dict[str, int] = {}
        #: First come, first served in each connection.
        self._waiting: dict[Reader, dict[asyncio.Future[None], int]] = {}
        #: Bytes of all unread replies.
        self.size = 0

    def try_acquire(self, reader: Reader, size: int) -> bool:
        """Whether this many bytes may be produced at once; then they are taken."""
        if self._waiting and self._waiting.get(reader):
            return False
        if size and reader.connection not in self._connections:  # always served, as ``_fits`` has it
            self._connections[reader.connection] = size
            self._callers[reader.caller] = self._callers.get(reader.caller, 0) + size
            self.size += size
            return True
        if not self._fits(reader, size):
            return False
        self._add(reader, size)
        return True

    async def acquire(self, reader: Reader, size: int) -> None:
        """Returns when this many bytes may be produced. Raises ``ResourceExhausted`` after ``timeout``."""
        if self.try_acquire(reader, size):
            return
        waiting = self._waiting.get(reader)
        if waiting is None:
            waiting = self._waiting[reader] = {}
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        waiting[turn] = size
        alarm = loop.call_later(self._timeout, self._late, reader, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.release(reader, size)  # admitted, and cancelled before it could go on
            raise
        finally:
            alarm.cancel()
            waiting.pop(turn, None)
            if not waiting and self._waiting.get(reader) is waiting:
                del self._waiting[reader]

    def release(self, reader: Reader, size: int) -> None:
        """Release bytes that were taken: they are sent, or were not produced."""
        self._add(reader, -size)
        if self._waiting:
            self._admit()

    def _late(self, reader: Reader, turn: asyncio.Future[None]) -> None:
        if not turn.done():
            held = max(self._connections.get(reader.connection, 0), self._callers.get(reader.caller, 0))
            turn.set_exception(
                ResourceExhausted(
                    f"{held} bytes of earlier replies to this connection or caller are not read, for "
                    f"{self._timeout:g} s now: read those replies or cancel their calls",
                    limit="reply_bytes",
                )
            )

    def _admit(self) -> None:
        for reader, waiting in list(self._waiting.items()):
            for turn, size in list(waiting.items()):
                if not self._fits(reader, size):
                    break
                del waiting[turn]
                if not turn.done():
                    self._add(reader, size)
                    turn.set_result(None)

    def _fits(self, reader: Reader, size: int) -> bool:
        held = self._connections.get(reader.connection, 0)
        if not held:
            return True
        limits = self._limits
        return (
            held + size <= limits.connection
            and self._callers.get(reader.caller, 0) + size <= limits.caller
            and self.size + size <= limits.process
        )

    def _add(self, reader: Reader, size: int) -> None:
        self.size += size
        _count(self._connections, reader.connection, size)
        _count(self._callers, reader.caller, size)


def _count(counts: dict[str, int], name: str, size: int) -> None:
    """Adds to a count; one of nothing is forgotten."""
    if held := counts.get(name, 0) + size:
        counts[name] = held
    else:
        counts.pop(name, None)


class StreamWriter:
    """Joins serialized parts of several tasks to messages; one task writes them.

    ``most``: bytes of a message, above which ``put`` waits; a single part may be larger. ``pace``: seconds
    between two messages, except if parts do not fit, and for the last one, which is not delayed.
    """

    def __init__(self, most: int, pace: Callable[[], float]) -> None:
        self._most = most
        self._pace = pace
        self._parts: list[bytes] = []
        self._size = 0
        self._working = 0
        #: There is something to write, or nobody works any more.
        self._due = asyncio.Event()
        #: Somebody waits for room, nobody works any more, or it is time.
        self._urgent = asyncio.Event()
        self._not_full = asyncio.Event()

    async def put(self, part: bytes) -> None:
        """Adds a part; those of one task are sent in their order."""
        while self._parts and self._size + len(part) > self._most:
            self._not_full.clear()
            self._urgent.set()
            await self._not_full.wait()
        self._parts.append(part)
        self._size += len(part)
        self._due.set()

    async def write_all(
        self, works: Sequence[Coroutine[Any, Any, None]], write: Callable[[bytes], Awaitable[None]]
    ) -> bytes:
        """Runs ``works``, which put, and writes what they put; returns the last message unwritten.

        Their tasks end with this call. Raises what one of them raised, once all have ended.
        """
        now = asyncio.get_running_loop().time
        self._working, written = len(works), now()
        tasks = [asyncio.create_task(self._counted(work)) for work in works]
        try:
            while True:
                await self._due.wait()
                early = written + min(self._pace(), _SLOWEST) - now()
                if early > 0:
                    await self._urgent_within(early)
                message = self._take()
                if not self._working:
                    break
                await write(message)
                written = now()
            if any(task.cancelled() or task.exception() for task in await _all(tasks)):
                await write(message)
                for task in tasks:
                    task.result()
            return message
        finally:
            for task in tasks:
                task.cancel()
            await _all(tasks)

    async def _urgent_within(self, seconds: float) -> None:
        alarm = asyncio.get_running_loop().call_later(seconds, self._urgent.set)
        try:
            await self._urgent.wait()
        finally:
            alarm.cancel()

    def _take(self) -> bytes:
        self._due.clear()
        self._urgent.clear()
        self._not_full.set()
        message = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return message

    async def _counted(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._working -= 1
            if not self._working:
                self._due.set()
                self._urgent.set()


async def _all(tasks: Sequence[asyncio.Task[None]]) -> Sequence[asyncio.Task[None]]:
    """The tasks, when they have ended."""
    await asyncio.wait(tasks)
    return tasks
