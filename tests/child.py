"""A child process that answers lines, for what may abort or hang."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading

#: Seconds that one answer may take before the process is killed.
TIMEOUT = 240.0


class Child:
    """A Python process that writes one line for each line that it reads.

    The first request starts it. The request after its end starts another.
    """

    def __init__(self, *arguments: str) -> None:
        self._command = [sys.executable, *arguments]
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - open as long as the child
        #: Exit status of the process that ended last; negative is the number of a signal.
        self.status: int | None = None

    def ask(self, request: str) -> str:
        """The answer to ``request``, both without line breaks inside; empty if the process ended instead."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        alarm = threading.Timer(TIMEOUT, process.kill)
        alarm.start()
        try:
            process.stdin.write(request + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            alarm.cancel()
        if not line:
            self._end()
        return line

    def errors(self) -> str:
        """The last 2,000 characters that the processes wrote to standard error."""
        self._errors.seek(0)
        return self._errors.read()[-2000:]

    def close(self) -> None:
        """End the process; the object answers nothing afterwards."""
        self._end()
        self._errors.close()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self.status = self._process.returncode
            self._process = None

    def _started(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True)
