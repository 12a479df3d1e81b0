"""Compiled libraries that the workers of a server share and that outlive it: files of a private directory.

What is read is linked into kernels: only a directory and files of the user's own, closed to others, count,
and only content whose digest is right. Anything else is as if it were not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: Bytes of all files together; the ones that were not used for longest go first. A library has some 200 KB.
MOST_BYTES = 64 << 20
#: The environment variable that tells a worker its directory.
VARIABLE = "WORKER_LIBRARIES"
_DIGEST_BYTES = 32
_TEMPORARY = ".tmp-"


@dataclass(frozen=True)
class LibraryDirectory:
    """A ``kcache_compiler.LibraryCache`` in ``path``, which is made (0700) where it is missing.

    Processes may share it: a file is there whole or not at all. No method raises.
    """

    path: Path
    most_bytes: int = MOST_BYTES

    def load(self, name: str) -> bytes | None:
        """What was saved, if that is what the file still has. A file that differs is removed."""
        file = self.path / name
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as opened:
                if not self._private() or not _own(os.fstat(descriptor), stat.S_ISREG):
                    return None
                stored = opened.read()
                digest, content = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
                if digest != _digest(name, content):
                    file.unlink()
                    return None
                os.utime(descriptor)
        except OSError:
            return None
        return content

    def save(self, name: str, content: bytes) -> None:
        """Keep ``content``, unless that is impossible."""
        with contextlib.suppress(OSError):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._private() and len(content) <= self.most_bytes:
                self._write(name, _digest(name, content) + content)
                self._make_room()

    def _write(self, name: str, data: bytes) -> None:
        descriptor, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=self.path)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(data)
            Path(temporary).replace(self.path / name)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise

    def _make_room(self) -> None:
        """Remove files until the rest fits: unfinished ones of processes that were killed age like others."""
        with os.scandir(self.path) as entries:
            files = [(each.stat(follow_symlinks=False), each.path) for each in entries]
        total = sum(status.st_size for status, _ in files)
        for status, path in sorted(files, key=lambda file: file[0].st_mtime_ns):
            if total <= self.most_bytes:
                break
            Path(path).unlink(missing_ok=True)
            total -= status.st_size

    def _private(self) -> bool:
        return _own(self.path.lstat(), stat.S_ISDIR)


def shared_libraries() -> LibraryDirectory | None:
    """The directory that this worker was given, if any."""
    path = os.environ.get(VARIABLE)
    return LibraryDirectory(Path(path)) if path else None


def _own(status: os.stat_result, of_kind: Callable[[int], bool]) -> bool:
    return of_kind(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _digest(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + content).digest()
