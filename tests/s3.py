"""A real S3-compatible server for tests: moto's, as a process, with a line in front that can fail."""

from __future__ import annotations

import enum
import http.client
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

#: What moto's server is started with: it prints its port, and ends with the one who reads it.
_SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


def environment(endpoint: str) -> dict[str, str]:
    """What the object store library reads, for a server that takes any credentials."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }


class S3Server:
    """A running server; ``bucket`` makes a new one in it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"
        self._names = count()

    @cached_property
    def shared_bucket(self) -> str:
        """One for tests that have a prefix each."""
        return self.bucket()

    def bucket(self) -> str:
        name = f"bucket-{next(self._names)}"
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert answer.status == 200
        return name


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """A server with its own data, on a free port."""
    with (folder / "moto.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield S3Server(int(process.stdout.readline()))
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait(120)


class Fault(enum.Enum):
    """What the line does to requests for objects."""

    NONE = enum.auto()
    #: Closes the connection without an answer.
    REFUSE = enum.auto()
    #: Answers 503.
    BUSY = enum.auto()
    #: Breaks off in the middle of what it sends.
    CUT = enum.auto()
    #: Sends half, and says that this is all.
    SHORT = enum.auto()
    #: Changes a byte of what it sends.
    FLIP = enum.auto()
    #: Passes on half of what is put, and answers that all is well.
    KEEP = enum.auto()
    #: Lets requests wait for ``release``.
    HOLD = enum.auto()
    #: All requests, those for the marker too.
    HOLD_ALL = enum.auto()


@dataclass(frozen=True)
class Passed:
    """A request that went over the line, and the bytes of its answer."""

    method: str
    path: str
    range: str
    answered: int


class FaultyLine:
    """An HTTP server in front of an S3 server. It fails as it is told, for objects of bytes alone."""

    def __init__(self, server: S3Server) -> None:
        self.upstream = server
        self.fault = Fault.NONE
        self.left: int | None = None
        self.passed: list[Passed] = []
        self.held = threading.Semaphore(0)
        self.release = threading.Event()
        line = self

        class Handler(_Handler):
            def setup(self) -> None:
                self.line = line
                super().setup()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def fail(self, fault: Fault, times: int | None = None) -> None:
        """From now on, or the next ``times`` requests."""
        if fault in (Fault.HOLD, Fault.HOLD_ALL):
            self.release.clear()
        self.fault, self.left = fault, times

    def heal(self) -> None:
        self.fail(Fault.NONE)
        self.release.set()

    def next_fault(self, path: str) -> Fault:
        if self.fault is Fault.HOLD_ALL:
            return Fault.HOLD
        if "/objects" not in path or self.fault is Fault.NONE:
            return Fault.NONE
        if self.left is not None:
            if self.left == 0:
                return Fault.NONE
            self.left -= 1
        return self.fault

    def close(self) -> None:
        self.heal()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    line: FaultyLine

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        fault = self.line.next_fault(self.path)
        if fault is Fault.HOLD:
            self.line.held.release()
            self.line.release.wait(240)
        if fault is Fault.REFUSE:
            self.close_connection = True
            return
        if fault is Fault.BUSY:
            self._send(503, {}, b"")
            return
        status, headers, content = self._forward(body[: len(body) // 2] if fault is Fault.KEEP else body)
        said = len(content)
        if self.command == "GET" and status in (200, 206):
            if fault is Fault.SHORT:
                content = content[: said // 2]
                said = len(content)
            elif fault is Fault.FLIP:
                content = bytes([content[0] ^ 1]) + content[1:]
            elif fault is Fault.CUT:
                content = content[: said // 2]
                self.close_connection = True
        self.line.passed.append(Passed(self.command, self.path, self.headers.get("Range", ""), len(content)))
        self._send(status, headers, content, said)

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        upstream = http.client.HTTPConnection("127.0.0.1", self.line.upstream.port, timeout=240)
        try:
            headers = {
                name: value for name, value in self.headers.items() if name.lower() != "content-length"
            }
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            upstream.close()

    def _send(self, status: int, headers: dict[str, str], content: bytes, said: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(content) if said is None else said))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _handle  # noqa: N815
