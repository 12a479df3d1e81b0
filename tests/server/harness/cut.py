"""A TCP proxy in front of a local port, whose connections a test can cut."""

from __future__ import annotations

import re
import socket
import threading
from types import TracebackType

from typing_extensions import Self


class Proxy:
    """Passes bytes on, both ways. While it is cut, connections are torn down at once."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._cut = False

    @property
    def port(self) -> int:
        return self._server.getsockname()[1]

    def url(self, direct: str) -> str:
        """``direct``, through this proxy."""
        return re.sub(r":\d+/", f":{self.port}/", direct)

    def cut(self) -> None:
        with self._lock:
            self._cut = True
            for each in self._sockets:
                _shut(each)

    def heal(self) -> None:
        with self._lock:
            self._cut = False

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _shut(self._server)
        self._server.close()
        self.cut()
        for thread in self._threads:
            thread.join(30)
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with self._lock:
                cut = self._cut
            if cut:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets |= {client, server}
            self._start(lambda source=client, target=server: _pass(source, target))
            self._start(lambda source=server, target=client: _pass(source, target))

    def _start(self, work: object) -> None:
        thread = threading.Thread(target=work, name="test-proxy")  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()


def _pass(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        pass
    _shut(source)
    _shut(sink)


def _shut(each: socket.socket) -> None:
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
