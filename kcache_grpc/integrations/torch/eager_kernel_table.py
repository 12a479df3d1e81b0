"""The table of one operator and device on disk: a JSON object a line, appended under a lock.

    {"check":"<8 hex>","toolchain":"<16 hex>","key":"<32 hex>","entry":{...}}

``check`` is the CRC-32 of all that follows it in the line. The first three fields have fixed widths, so that
a table is loaded without parsing the entries: an entry is parsed when its key is asked for. Programs lie
next to the tables, in files that are named by their SHA-256. docs/guide/eager-kernels.md documents the
format.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kcache_grpc.local_files import own_directory, read_regular, write_whole

#: ``{"check":"`` and 8 digits; ``","toolchain":"`` and 16; ``","key":"`` and 32; ``","entry":``.
_LINE = re.compile(
    rb'\{"check":"([0-9a-f]{8})(","toolchain":"([0-9a-f]{16})","key":"([0-9a-f]{32})","entry":(\{.*\})\})'
)


class EagerKernelTable:
    """Entries by key; several entries of one key are kept in the order of the file. Not thread-safe."""

    def __init__(self, path: Path, toolchain: str) -> None:
        """``toolchain``: 16 hex digits; entries of others are skipped."""
        self._path = path
        self._toolchain = toolchain.encode()
        self._offset = 0
        self._lines: dict[bytes, list[bytes]] = {}
        #: Lines that are damaged, and entries of another toolchain, as far as the file was read.
        self.corrupt = 0
        self.skipped = 0

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def refresh(self) -> None:
        """Read what was appended since the last call; a missing file is empty. Raises ``OSError``."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        with os.fdopen(descriptor, "rb") as file:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            self._read(file)

    def find(self, key: str) -> list[dict[str, Any]]:
        """The entries of ``key``, oldest first."""
        lines = self._lines.get(key.encode(), ())
        return [json.loads(line) for line in lines]

    def add(self, key: str, entry: Mapping[str, Any]) -> bool:
        """Append an entry unless the table has an equal one; whether it did. Synced when it returns.

        Raises ``OSError``.
        """
        body = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()
        rest = b'","toolchain":"%b","key":"%b","entry":%b}' % (self._toolchain, key.encode(), body)
        line = b'{"check":"%08x%b\n' % (zlib.crc32(rest), rest)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with os.fdopen(os.open(self._path, flags, 0o600), "r+b", buffering=0) as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            self._read(file)
            if body in self._lines.get(key.encode(), ()):
                return False
            end = file.seek(0, os.SEEK_END)
            # A writer that was killed may have left a line without its end.
            file.seek(max(end - 1, 0))
            line = line if file.read(1) in (b"", b"\n") else b"\n" + line
            _write_all(file.fileno(), line)
            os.fsync(file.fileno())
            self._read(file)
        return True

    def _read(self, file: Any) -> None:
        file.seek(self._offset)
        content = file.read()
        end = content.rfind(b"\n") + 1
        self._offset += end
        match_line, crc, toolchain, lines = _LINE.fullmatch, zlib.crc32, self._toolchain, self._lines
        for line in content[:end].split(b"\n"):
            match = match_line(line)
            if match is None or crc(match[2]) != int(match[1], 16):
                self.corrupt += bool(line)
            elif match[3] != toolchain:
                self.skipped += 1
            else:
                lines.setdefault(match[4], []).append(match[5])


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


class TableDirectory:
    """The directory of eager kernels in a cache directory: tables by operator and device, and programs."""

    def __init__(self, cache_dir: Path) -> None:
        """Make the directories (0700). Raises ``PermissionError`` where another user could write there."""
        self.path = cache_dir / "eager"
        for directory in (cache_dir, self.path, self.path / "programs"):
            reason = own_directory(directory)
            if reason:
                raise PermissionError(reason)

    def table(self, op: str, device: str, toolchain: str) -> EagerKernelTable:
        """The table of an operator such as ``aten::add.Tensor``; nothing is read yet."""
        return EagerKernelTable(self.path / f"{op.replace('::', '.')}.{device}.jsonl", toolchain)

    def save_program(self, text: bytes) -> str:
        """Store a program; its SHA-256 in hex. Raises ``OSError``."""
        name = hashlib.sha256(text).hexdigest()
        write_whole(self._program(name), text, replace=False)
        return name

    def program(self, name: str) -> bytes | None:
        """A stored program; ``None`` where it is missing or its bytes do not match its name."""
        try:
            text = read_regular(self._program(name))
        except OSError:
            return None
        return text if hashlib.sha256(text).hexdigest() == name else None

    def _program(self, name: str) -> Path:
        return self.path / "programs" / f"{name}.mlir"
