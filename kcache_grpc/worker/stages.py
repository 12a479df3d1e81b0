"""The stages of a job, reported through memory that a worker and its parent share.

A compile begins fifty stages in a tenth of a second: a message for each would wake the parent as often. A
name in memory costs one system call, and is there even if the very next instruction ends the worker.
"""

from __future__ import annotations

import fcntl
import os


class StageLog:
    """The parent's side: what the worker wrote since the last look, in its order."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.memfd_create("kcache-stages"), "r+b", 0)
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_APPEND)
        self._seen = 0

    @property
    def descriptor(self) -> int:
        """What the worker writes to."""
        return self._file.fileno()

    def clear(self) -> None:
        """Forgets everything; no job may run. Does nothing once it is closed."""
        if self._file.closed:
            return
        self._file.truncate(0)
        self._seen = 0

    def take(self) -> list[str]:
        """The names that are new, complete ones only; none once it is closed."""
        if self._file.closed:
            return []
        size = os.fstat(self.descriptor).st_size
        text, end, _ = os.pread(self.descriptor, size - self._seen, self._seen).rpartition(b"\n")
        self._seen += len(text) + len(end)
        return text.decode(errors="replace").split("\n") if end else []

    def close(self) -> None:
        """Forgets what was not taken."""
        self._file.close()


def tell(descriptor: int, name: str) -> None:
    """The worker's side: the stage ``name``, which is one line, began."""
    os.write(descriptor, f"{name}\n".encode())
