"""The folder of a worker's temporary files, which is removed however the worker and its parent end.

The parent holds a lock on the folder; a folder that nobody has locked any more belongs to a parent that was
killed, and the next service removes it.
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
#: Younger folders may be about to be locked.
_SETTLED_SECONDS = 600.0


class Home:
    """One folder, mode 0700, until ``close``."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Removes it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_left_homes(now: float | None = None) -> None:
    """Removes this user's folders whose parents were killed. Another user's, and failures, are left alone."""
    settled = (time.time() if now is None else now) - _SETTLED_SECONDS
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if status.st_uid == os.geteuid() and status.st_mtime < settled:
                _remove_unless_locked(folder)


def _remove_unless_locked(folder: Path) -> None:
    """Raises ``OSError`` for a locked one, and for what is no folder."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
