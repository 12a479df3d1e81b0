"""Flow control of replies: bounds the bytes that clients have not read yet by connection, caller, process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from kcache_grpc.errors import ResourceExhausted

#: The last part of a reply is not counted if it has at most this many bytes: gRPC buffers as much.
SMALL = 64 << 10
#: Seconds that a reply waits for others of its connection or caller to be read.
PATIENCE = 30.0


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

    def __init__(self, limits: ReplyLimits | None = None, patience: float = PATIENCE) -> None:
        self._limits = limits or ReplyLimits()
        self._patience = patience
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
        """Returns when this many bytes may be produced. Raises ``ResourceExhausted`` after ``patience``."""
        if self.try_acquire(reader, size):
            return
        waiting = self._waiting.get(reader)
        if waiting is None:
            waiting = self._waiting[reader] = {}
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        waiting[turn] = size
        alarm = loop.call_later(self._patience, self._late, reader, turn)
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
        """So many bytes that were taken are sent, or were not produced."""
        self._add(reader, -size)
        if self._waiting:
            self._admit()

    def _late(self, reader: Reader, turn: asyncio.Future[None]) -> None:
        if not turn.done():
            held = max(self._connections.get(reader.connection, 0), self._callers.get(reader.caller, 0))
            turn.set_exception(
                ResourceExhausted(
                    f"{held} bytes of earlier replies to this connection or caller are not read, for "
                    f"{self._patience:g} s now: read those replies or cancel their calls",
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
