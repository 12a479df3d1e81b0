"""The directory of a worker's temporary files, which is removed however the worker and its parent end.

The parent holds a lock on the directory; a directory that nobody has locked any more belongs to a parent that
was killed, and the next service removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

_PREFIX = "kcache-worker-"
#: Younger directories may be about to be locked.
_SETTLED_SECONDS = 600.0


class Home:
    """One directory, mode 0700, until ``close``."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Removes it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_left_homes(now: float | None = None) -> None:
    """Remove this user's directories whose parents were killed; ignore errors and those of other users."""
    settled = (time.time() if now is None else now) - _SETTLED_SECONDS
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = directory.lstat()
            if status.st_uid == os.geteuid() and status.st_mtime < settled:
                _remove_unless_locked(directory)


def _remove_unless_locked(directory: Path) -> None:
    """Raises ``OSError`` for a locked one, and for what is no directory."""
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(lock)
