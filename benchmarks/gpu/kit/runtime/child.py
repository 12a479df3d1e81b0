"""The child process that executes cases: started when it is needed, killed when it does not answer."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.kit.runtime.devices import NoGpu

#: The folder that this package is imported from.
ROOT = Path(__file__).resolve().parents[4]
#: Seconds until a child has opened the device.
_START = 120.0


class NoAnswer(Exception):
    """The child did not finish a case; ``known`` is what it reported before."""

    def __init__(self, text: str, timed_out: bool, known: dict[str, Any] | None) -> None:
        super().__init__(text)
        self.timed_out = timed_out
        self.known = known


def command(pack: Path, driver: str, *more: str) -> list[str]:
    """The command line of a worker."""
    options = [str(pack), "--driver", driver, *more]
    return [sys.executable, "-m", "benchmarks.gpu.kit.runtime.worker", *options]


def environment() -> dict[str, str]:
    """The environment of a worker: this package and what it needs can be imported."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


class Child:
    """One process at a time."""

    def __init__(self, pack: Path, driver: str) -> None:
        self._pack, self._driver = pack, driver
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""

    def device(self) -> dict[str, str]:
        """What executes kernels. Raises ``NoGpu``."""
        self.stop()
        self._process = subprocess.Popen(
            command(self._pack, self._driver),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            start_new_session=True,
        )
        self._pending = b""
        try:
            said = self._message(time.monotonic() + _START, None)
        except NoAnswer as lost:
            raise NoGpu(f"the process that opens the GPU failed: {lost}") from lost
        if "no_gpu" in said:
            self.stop()
            raise NoGpu(said["no_gpu"])
        return said["ready"]

    def ask(self, name: str, target: str, seconds: float) -> dict[str, Any]:
        """The result of a case, with the kernel for ``target``.

        Raises ``NoAnswer`` if there is none in time, or the process ends.
        """
        if self._process is None:
            self.device()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        until, known = time.monotonic() + seconds, None
        request = json.dumps({"case": name, "target": target, "seconds": seconds}).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(request)
            process.stdin.flush()
        while True:
            message = self._message(until, known)
            if "result" in message:
                return message["result"]
            known = message.get("partial", known)

    def stop(self) -> None:
        """Ends the process and what it started."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _message(self, until: float, known: dict[str, Any] | None) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                left = until - time.monotonic()
                if left <= 0 or not selector.select(left):
                    self.stop()
                    raise NoAnswer("it did not end in time", True, known)
                content = os.read(process.stdout.fileno(), 1 << 16)
                if not content:
                    code = process.wait()
                    self.stop()
                    raise NoAnswer(f"its process ended with status {code}", False, known)
                self._pending += content
        line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)
