"""Questions that an event loop asks Postgres itself, without a thread that waits for the answer.

To another thread and back, and through the driver's cursor, costs a server as much as the rest of a hit.
Here the loop sends a prepared statement and goes on; when the answer has come, it reads it. Connections are
made in a thread. Whatever goes wrong, the question was not answered: who asked takes the ordinary way, which
knows how to wait, to connect again, and what the error means.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kcache_grpc.storage.errors import StoreUnavailable

#: Connections, at most. Who finds all of them busy waits for the next that is not.
MOST = 4
#: Seconds until connecting is tried again where it failed.
_PAUSE = 1.0
#: Statements are planned once: each looks into indexes, whatever it looks for.
_SETTINGS = "SET plan_cache_mode = force_generic_plan"

_NUMBER, _SMALL = struct.Struct(">q").unpack, struct.Struct(">i").unpack
#: By the number of a type: bigint, integer, text, varchar, bytea in the binary format.
_TYPES: dict[int, Callable[[bytes], Any]] = {
    20: lambda cell: _NUMBER(cell)[0],
    23: lambda cell: _SMALL(cell)[0],
    25: bytes.decode,
    1043: bytes.decode,
    17: lambda cell: cell,
}

_NAME = b"asked"

Answer = asyncio.Future[list[list[Any]]]


class Asker:
    """Asks one statement: ``text`` with $1, $2, ... for ``names``, of which ``constants`` has some.

    For one event loop. ``connect`` gives a connection of psycopg.
    """

    def __init__(
        self, connect: Callable[[], Any], text: str, names: Sequence[str], constants: Mapping[str, Any]
    ) -> None:
        self._connect = connect
        self._text = text.encode()
        self._names = names
        self._constants = constants
        self._loop = asyncio.get_running_loop()
        self._lines: set[_Line] = set()
        self._free: list[_Line] = []
        self._waiting: deque[tuple[Answer, list[bytes | None]]] = deque()
        self._lock = threading.Lock()
        self._connecting = False
        #: What a thread connected, until the loop takes it.
        self._made: Any = None
        self._again_from = 0.0
        self._process = os.getpid()
        self._closed = False

    def ask(self, values: Mapping[str, Any]) -> Answer | None:
        """All rows. It raises ``StoreUnavailable`` when no answer came.

        ``None``: there is no connection, at the moment or for this loop.
        """
        if self._closed or _running() is not self._loop:
            return None
        if not self._free and len(self._lines) < MOST:
            self._grow()
        if not self._lines:
            return None
        constants = self._constants
        parameters = [_cell(values[name] if name in values else constants[name]) for name in self._names]
        answer: Answer = self._loop.create_future()
        self._waiting.append((answer, parameters))
        self._serve()
        return answer

    def close(self) -> None:
        """Closes the connections: who waits gets no answer. Idempotent, and from any thread."""
        with self._lock:
            self._closed = True
        if self._process != os.getpid():
            return  # in the child of a fork: the connections are the parent's
        if self._loop.is_closed() or _running() is self._loop:
            self._end()
        else:
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        for line in list(self._lines):
            line.end()
        self._fail_waiting()
        if self._made is not None:
            self._made.close()
            self._made = None

    def _serve(self) -> None:
        while self._waiting and self._free:
            answer, parameters = self._waiting.popleft()
            if not answer.done():
                self._free.pop().ask(answer, parameters)

    def _fail_waiting(self) -> None:
        while self._waiting:
            _fail(self._waiting.popleft()[0])

    def _grow(self) -> None:
        if not self._connecting and time.monotonic() >= self._again_from:
            self._connecting = True
            threading.Thread(target=self._open, name="kcache-asker", daemon=True).start()

    def _open(self) -> None:
        """In a thread."""
        connection = None
        with contextlib.suppress(Exception):  # who takes the ordinary way learns what it is
            connection = self._prepared()
        with self._lock:
            if self._closed:
                if connection is not None:
                    connection.close()
                return
            self._made = connection
        with contextlib.suppress(RuntimeError):  # the loop is closed, and ``close`` follows
            self._loop.call_soon_threadsafe(self._opened)

    def _opened(self) -> None:
        connection, self._made, self._connecting = self._made, None, False
        if connection is None:
            self._again_from = time.monotonic() + _PAUSE
            return
        line = _Line(self._loop, connection, self._freed, self._ended)
        self._lines.add(line)
        self._freed(line)

    def _prepared(self) -> Any:
        connection = self._connect()
        try:
            connection.execute(_SETTINGS)
            prepared = connection.pgconn.prepare(_NAME, self._text)
            if prepared.error_message:
                raise StoreUnavailable(prepared.error_message.decode(errors="replace"))
            connection.pgconn.nonblocking = 1
        except BaseException:
            connection.close()
            raise
        return connection

    def _freed(self, line: _Line) -> None:
        self._free.append(line)
        self._serve()

    def _ended(self, line: _Line) -> None:
        self._lines.discard(line)
        if line in self._free:
            self._free.remove(line)
        if not self._lines:
            self._fail_waiting()


class _Line:
    """One connection, which answers one question at a time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: Any,
        freed: Callable[[_Line], None],
        ended: Callable[[_Line], None],
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._libpq = connection.pgconn
        self._freed = freed
        self._ended = ended
        self._answer: Answer | None = None
        self._rows: list[list[Any]] | None = None
        self._socket: int = self._libpq.socket
        loop.add_reader(self._socket, self._readable)

    def ask(self, answer: Answer, parameters: list[bytes | None]) -> None:
        """Sends it. The answer is an error when the connection ends first."""
        self._answer, self._rows = answer, None
        try:
            self._libpq.send_query_prepared(_NAME, parameters, result_format=1)
            # A question is small: what the system does not take at once is a connection that hangs.
            if self._libpq.flush():
                self.end()
        except Exception:  # noqa: BLE001 (the same)
            self.end()

    def end(self) -> None:
        """Closes it. Idempotent."""
        if self._connection is None:
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
        connection, self._connection = self._connection, None
        connection.close()
        answer, self._answer = self._answer, None
        self._ended(self)
        if answer is not None:
            _fail(answer)

    def _readable(self) -> None:
        try:
            self._libpq.consume_input()
            while not self._libpq.is_busy():
                result = self._libpq.get_result()
                if result is None:
                    self._done()
                    return
                self._rows = _rows(result)
        except Exception:  # noqa: BLE001 (an error of the statement too: the ordinary way meets it again)
            self.end()

    def _done(self) -> None:
        answer, rows = self._answer, self._rows
        if answer is None:
            return  # a notice
        self._answer = self._rows = None
        if rows is None:
            _fail(answer)
        elif not answer.done():
            answer.set_result(rows)
        self._freed(self)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _rows(result: Any) -> list[list[Any]]:
    """Raises whatever is wrong with it."""
    if result.error_message:
        raise StoreUnavailable(result.error_message.decode(errors="replace"))
    read = [_TYPES[result.ftype(column)] for column in range(result.nfields)]
    cell = result.get_value
    return [
        [None if (raw := cell(row, column)) is None else read[column](raw) for column in range(len(read))]
        for row in range(result.ntuples)
    ]


def _cell(value: Any) -> bytes | None:
    """A parameter in the text format."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    return str(value).encode()


def _fail(answer: Answer) -> None:
    if not (answer.done() or answer.get_loop().is_closed()):
        answer.set_exception(StoreUnavailable("the connection ended before it answered"))
