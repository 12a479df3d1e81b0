"""The file operations of caches, one method for each, so that tests can inject a fault into every one."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path

from kcache_grpc.errors import CacheError

#: Errors of opening a symbolic link, and a socket or a device.
_NOT_A_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.ENODEV})


class NotAFileError(OSError):
    """Something that is no regular file has the name of one."""


class Files:
    """Operations on files. All raise ``OSError`` of the system where not stated otherwise."""

    def make_directory(self, path: Path) -> None:
        """Creates ``path`` and its missing parents with mode 0700.

        Raises:
            CacheError: ``path`` cannot be created, is not a directory, belongs to another user, or other
                users may write to it.
        """
        try:
            for directory in (*reversed(path.parents), path):
                if not directory.exists():
                    directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise CacheError(f"{path} cannot be used as a directory: {error.strerror or error}") from error
        self.check_directory(path)

    def check_directory(self, path: Path) -> None:
        """Raises ``CacheError`` if another user may have written to ``path``; a missing one is valid."""
        try:
            status = path.stat()
        except FileNotFoundError:
            return
        except OSError as error:
            raise CacheError(f"{path} cannot be used as a directory: {error.strerror or error}") from error
        if not stat.S_ISDIR(status.st_mode):
            raise CacheError(f"{path} is not a directory")
        if status.st_uid != os.geteuid():
            raise CacheError(f"{path} belongs to another user; use a directory of your own")
        if status.st_mode & 0o022:
            raise CacheError(f"other users may write to {path}; run: chmod 700 {path}")

    def read(self, path: Path, size: int = -1) -> bytes | None:
        """The first ``size`` bytes of a regular file, or all; ``None`` if there is no file. Never waits.

        Raises:
            NotAFileError: there is a directory, a symbolic link, a FIFO, a socket or a device.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _NOT_A_FILE:
                raise _not_a_file(path) from error
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _not_a_file(path)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(size)

    def write_temporary(self, directory: Path, data: bytes) -> Path:
        """Writes ``data`` to a new file in ``directory`` and to the device; removes it if that fails."""
        descriptor, name = self.create(directory)
        path = Path(name)
        try:
            try:
                self.write(descriptor, data)
                self.sync(descriptor)
            finally:
                os.close(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                self.remove(path)
            raise
        return path

    def create(self, directory: Path) -> tuple[int, str]:
        """Creates a file with a new name and mode 0600; its descriptor and path."""
        return tempfile.mkstemp(prefix=".tmp-", dir=directory)

    def write(self, descriptor: int, data: bytes) -> None:
        """Writes all of ``data``."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def sync(self, descriptor: int) -> None:
        """Returns when the content of the file is on the device."""
        os.fsync(descriptor)

    def link(self, source: Path, target: Path) -> bool:
        """Gives ``source`` the second name ``target``; ``False`` if ``target`` exists."""
        try:
            os.link(source, target)
        except FileExistsError:
            return False
        return True

    def rename(self, source: Path, target: Path) -> None:
        """Renames ``source`` to ``target``, and replaces it."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Removes a file; a missing one is no error."""
        path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self, path: Path, *, shared: bool = False) -> Generator[None, None, None]:
        """Holds the lock of a file, which is created if it is missing; waits while another holder has it.

        The lock is ``flock(2)`` on a descriptor of this call: it excludes threads and processes, and the
        system releases it when the process ends, however it ends. The file remains and has no content.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            try:
                yield
            finally:
                # A process that another thread has forked meanwhile has a copy of the descriptor, so that
                # closing this one alone would leave the lock to it.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)


def _not_a_file(path: Path) -> NotAFileError:
    return NotAFileError(errno.EINVAL, "not a regular file", str(path))
