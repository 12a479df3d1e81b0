"""Files of the local tiers: whole or absent, and the user's own."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import tempfile
from pathlib import Path
from urllib.parse import quote


class KcacheWarning(UserWarning):
    """The cache does less than it could: no disk tier, or a local compile instead of the service."""


def file_name(address: str) -> str:
    """An address as the name of a file, readable where it is short."""
    name = quote(address, safe="")
    return name if len(name) <= 200 else hashlib.sha256(address.encode()).hexdigest()


def own_directory(path: Path) -> str:
    """Makes ``path`` (0700) where it is missing; why it must not be trusted, or nothing.

    What lies in it is loaded as native code, so nobody else may write or read there.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        return f"{path} cannot be used: {error.strerror or error}"
    if not stat.S_ISDIR(status.st_mode):
        return f"{path} is not a directory"
    if status.st_uid != os.geteuid():
        return f"{path} belongs to another user"
    if status.st_mode & 0o077:
        return f"{path} is open to other users; run: chmod 700 {path}"
    return ""


def read_regular(path: Path) -> bytes:
    """The content of a regular file. Raises ``OSError``, also for a FIFO or a device, and never waits."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read()


def write_whole(path: Path, data: bytes | memoryview, *, replace: bool = True) -> bool:
    """Writes ``data`` so that other processes see all of it or nothing; synced to disk before it appears.

    With ``replace=False`` an existing file stays, and the result tells whether this call made it.
    Raises ``OSError``.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            temporary.replace(path)
            return True
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        return True
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
