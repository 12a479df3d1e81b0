"""A real S3-compatible server for tests: moto's, as a process, with a line in front that can fail."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
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
        with urllib.request.urlopen(request, timeout=20) as answer:
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
            process.wait(20)
