"""A TCP proxy whose connections can be cut and refused: what a network does to a database."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class Proxy:
    """Listens on ``port``, forwards to ``127.0.0.1:target``."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._refusing = False
        self._closed = False
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """End all connections now, in the middle of whatever they carry."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def refuse(self, refusing: bool) -> None:
        """End new connections at once, or no longer."""
        self._refusing = refusing

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._thread.join(10)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._target), timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        with self._lock:
            self._open |= {client, server}
        try:
            _pump(client, server)
        except OSError:
            pass
        finally:
            with self._lock:
                self._open -= {client, server}
            client.close()
            server.close()


def _pump(client: socket.socket, server: socket.socket) -> None:
    with selectors.DefaultSelector() as waiting:
        waiting.register(client, selectors.EVENT_READ, server)
        waiting.register(server, selectors.EVENT_READ, client)
        while True:
            for key, _ in waiting.select():
                assert isinstance(key.fileobj, socket.socket)
                data = key.fileobj.recv(1 << 16)
                if not data:
                    return
                key.data.sendall(data)
