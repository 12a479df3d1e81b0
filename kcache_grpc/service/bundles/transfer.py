"""Bytes between a thread that writes or reads a bundle and the event loop that sends or receives it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from kcache_grpc.errors import ResourceExhausted, Unavailable

#: Bytes of one message.
PART_BYTES = 256 << 10
#: Messages that wait to be sent.
_WAITING = 4


class Outgoing:
    """A stream that a thread writes to, and the event loop reads from. The writer waits for the reader."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING)
        self._buffer = bytearray()
        self._stopped = False

    def write(self, data: memoryview, /) -> int:
        """In the thread. Raises ``Unavailable`` when nobody reads any more."""
        self._buffer += data
        while len(self._buffer) >= PART_BYTES:
            self._put(bytes(self._buffer[:PART_BYTES]))
            del self._buffer[:PART_BYTES]
        return len(data)

    def end(self) -> None:
        """In the thread, whatever became of the bundle."""
        if not self._stopped:
            self._put(bytes(self._buffer))
            self._put(None)

    async def parts(self) -> AsyncIterator[bytes]:
        """The bytes, up to the end."""
        while (part := await self._parts.get()) is not None:
            if part:
                yield part

    def stop(self) -> None:
        """Nobody reads any more: a writer that waits goes on, and its next part raises."""
        self._stopped = True
        while not self._parts.empty():
            self._parts.get_nowait()

    def _put(self, part: bytes | None) -> None:
        if self._stopped:
            raise Unavailable("the reader of the bundle is gone")
        asyncio.run_coroutine_threadsafe(self._parts.put(part), self._loop).result()


class Spool:
    """Temporary files of uploads: all together at most ``most`` bytes. One event loop."""

    def __init__(self, directory: Path, most: int) -> None:
        self._directory = directory
        self._most = most
        self._used = 0

    async def receive(self, parts: AsyncIterator[bytes]) -> tuple[IO[bytes], int]:
        """A file without a name that has all bytes, and how many: ``release`` them once it is closed.

        Raises ``ResourceExhausted``, and what ``parts`` raises.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        file, size = tempfile.TemporaryFile(prefix="bundle-", dir=self._directory), 0  # noqa: SIM115
        try:
            async for part in parts:
                self._reserve(len(part))
                size += len(part)
                await _written(file.write, part)
            await _written(file.flush)
        except BaseException:
            # On a full device closing it fails as well: the bytes in its buffer are written again.
            with suppress(OSError):
                file.close()
            self.release(size)
            raise
        return file, size

    def release(self, size: int) -> None:
        """So many bytes are gone."""
        self._used -= size

    def _reserve(self, size: int) -> None:
        if self._used + size > self._most:
            raise ResourceExhausted(
                f"bundles that are being uploaded have more than {self._most} bytes together",
                limit="spool_bytes",
            )
        self._used += size


async def _written(work: Callable[..., object], *arguments: bytes) -> None:
    """Runs a write in a thread. Raises ``ResourceExhausted`` where the device does not take the bytes."""
    try:
        await asyncio.to_thread(work, *arguments)
    except OSError as error:
        raise ResourceExhausted(
            f"the uploaded bundle cannot be kept on this server: {error.strerror or error}",
            limit="spool_bytes",
        ) from error
