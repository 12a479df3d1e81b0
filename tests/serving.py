"""A real server in a process of its own, for tests that need one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from tests.fresh import fresh_store
from tests.ports import free_port


class ServerProcess:
    """``kcache serve`` on a SQLite file in ``folder`` and on a free port; can be killed and started again.

    It has one worker for compiles, and prepares no libraries, unless the arguments say otherwise.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self._folder / "kcache.sqlite"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Returns once it listens. A first start takes a free port; later ones take the same again."""
        port = self.address.rpartition(":")[2] or free_port()
        if "--db" not in self._arguments:
            fresh_store(self.database)
        command = [sys.executable, "-m", "kcache_grpc", "serve", "--listen", f"127.0.0.1:{port}"]
        command += [
            "--db",
            f"sqlite:///{self.database}",
            "--socket",
            str(self._folder / "run" / "kcache.sock"),
        ]
        command += ["--state-dir", str(self._folder / "state")]
        command += [] if "--workers" in self._arguments else ["--workers", "1"]
        command += [] if "--prepare" in self._arguments else ["--prepare", "none"]
        command += self._arguments
        with (self._folder / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=_environment()
            )
        self.address = self._listening()
        return self

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def stop(self) -> int:
        """SIGTERM, and the exit status after the drain."""
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self.kill()
        return self._process.returncode

    def log(self) -> str:
        """What the server wrote so far."""
        return (self._folder / "server.log").read_text()

    def _listening(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{") and (event := json.loads(line)).get("event") == "listening":
                return next(each for each in event["addresses"] if not each.startswith(("unix:", "http:")))
        raise AssertionError(f"the server did not start:\n{self.log()[-4000:]}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("KCACHE_")}
