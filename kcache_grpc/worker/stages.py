"""The stages of a job, reported through memory that a worker and its parent share.

A compile begins fifty stages in a tenth of a second, and a message for each would wake the parent fifty
times. Appending a name to the memory takes one system call, and the name remains if the worker crashes.
"""

from __future__ import annotations

import fcntl
import os


class StageLog:
    """The parent's side: reads the names of stages that the worker wrote since the last read."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.memfd_create("kcache-stages"), "r+b", 0)
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_APPEND)
        self._seen = 0

    @property
    def descriptor(self) -> int:
        """The file descriptor that the worker writes to."""
        return self._file.fileno()

    def clear(self) -> None:
        """Discards all names. Must not be called while a job runs. Does nothing once the log is closed."""
        if self._file.closed:
            return
        self._file.truncate(0)
        self._seen = 0

    def read_new(self) -> list[str]:
        """The complete names since the last read, in order; none once the log is closed."""
        if self._file.closed:
            return []
        size = os.fstat(self.descriptor).st_size
        text, end, _ = os.pread(self.descriptor, size - self._seen, self._seen).rpartition(b"\n")
        self._seen += len(text) + len(end)
        return text.decode(errors="replace").split("\n") if end else []

    def close(self) -> None:
        """Discards names that were not read."""
        self._file.close()


def report(descriptor: int, name: str) -> None:
    """The worker's side: appends the name of a stage that begins. ``name`` is one line."""
    os.write(descriptor, f"{name}\n".encode())
