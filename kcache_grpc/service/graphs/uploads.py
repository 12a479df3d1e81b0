"""The spool directory of uploads: files of programs that grow, are verified, and expire.

One file an upload, ``NAMESPACE/DIGEST-FORMAT-SIZE.part`` while it grows, ``.program`` once its digest held.
A lock on the file keeps two writers apart, also those of other processes.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from kcache_grpc.errors import ArgumentError, IntegrityError, ResourceExhausted, Unavailable
from kcache_grpc.model.program import Program, ProgramFormat, program_digest_of_parts
from kcache_grpc.service.values import BeyondEnd

#: Bytes that are read at once to verify a digest.
_PART_BYTES = 1 << 20
_PART, _WHOLE = ".part", ".program"


@dataclass(frozen=True)
class Progress:
    """How much of an upload is here."""

    committed: int
    complete: bool


@dataclass(frozen=True)
class UploadPlan:
    """What a client says that it will send, from ``offset`` on."""

    format: ProgramFormat
    size: int
    digest: bytes
    offset: int


class Uploads:
    """The spool. Holds at most ``capacity`` bytes, each file for ``ttl`` seconds after its last change."""

    def __init__(
        self,
        directory: Path,
        max_program: int,
        capacity: int,
        ttl: float = 3600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._max_program = max_program
        self._capacity = capacity
        self._ttl = ttl
        self._clock = clock
        self._opening = threading.Lock()

    def progress(self, namespace: str, digest: bytes) -> Progress:
        """How much is here of a program; nothing is no error."""
        for path in self._files(namespace, digest):
            with suppress(FileNotFoundError):  # renamed or swept meanwhile
                return Progress(path.stat().st_size, path.suffix == _WHOLE)
        return Progress(0, False)

    def find(self, namespace: str, digest: bytes) -> Program | None:
        """A program that was uploaded whole. Hashes it: not for the event loop."""
        for path in self._files(namespace, digest):
            if path.suffix == _WHOLE:
                program = Program(ProgramFormat(path.stem.split("-")[1]), path.read_bytes())
                return program if program.digest == digest else None
        return None

    async def receive(self, namespace: str, plan: UploadPlan, parts: AsyncIterator[bytes]) -> Progress:
        """Writes the parts; what was written stays when they break off.

        Raises ``ResourceExhausted``, ``ArgumentError`` for an offset beyond what is here, ``IntegrityError``
        for a wrong digest, ``Unavailable`` while another call writes the same program.
        """
        progress = await asyncio.to_thread(self.progress, namespace, plan.digest)
        if progress.complete:
            return progress
        upload = await asyncio.to_thread(self._open_alone, namespace, plan)
        try:
            async for part in parts:
                await asyncio.to_thread(upload.write, part)
            return await asyncio.to_thread(upload.finish)
        finally:
            upload.close()

    def sweep(self) -> None:
        """Removes what has not changed for ``ttl`` seconds."""
        for file in self._directory.glob("*/*"):
            with suppress(FileNotFoundError):
                if self._clock() - file.stat().st_mtime > self._ttl:
                    file.unlink()

    def _open_alone(self, namespace: str, plan: UploadPlan) -> Upload:
        with self._opening:  # what is free is counted and taken by one at a time
            return self._open(namespace, plan)

    def _open(self, namespace: str, plan: UploadPlan) -> Upload:
        if plan.size > self._max_program:
            raise too_large(plan.size, self._max_program)
        self.sweep()
        directory = self._directory / namespace
        path = directory / f"{plan.digest.hex()}-{plan.format.value}-{plan.size}{_PART}"
        # What an upload announced is its own, or several at once would overfill the spool.
        used = sum(_announced(file) for file in self._directory.glob("*/*") if file != path)
        if used + plan.size > self._capacity:
            raise ResourceExhausted(
                f"the upload spool holds {used} of {self._capacity} bytes; try later", limit="spool_bytes"
            )
        directory.mkdir(mode=0o700, exist_ok=True)
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0)
        try:
            _lock(file, path)
            return Upload(plan, path, file)
        except BaseException:
            file.close()
            raise

    def _files(self, namespace: str, digest: bytes) -> list[Path]:
        paths = list((self._directory / namespace).glob(f"{digest.hex()}-*"))
        return sorted(paths, key=lambda path: path.suffix != _WHOLE)


class Upload:
    """An upload that is being written."""

    def __init__(self, plan: UploadPlan, path: Path, file: FileIO) -> None:
        received = file.seek(0, os.SEEK_END)
        if plan.offset > received:
            raise BeyondEnd(
                f"write_offset {plan.offset} is beyond the {received} bytes that are here",
                field="write_offset",
            )
        file.seek(plan.offset)
        file.truncate()
        self._plan = plan
        self._path = path
        self._file = file
        self.size = plan.offset

    def write(self, part: bytes) -> None:
        """Appends. Raises ``ArgumentError`` beyond the announced size."""
        if self.size + len(part) > self._plan.size:
            raise ArgumentError(
                f"more bytes than the {self._plan.size} that were announced", field="size_bytes"
            )
        left = memoryview(part)
        while left:  # unbuffered: who asks for progress sees it
            left = left[self._file.write(left) :]
        self.size += len(part)

    def finish(self) -> Progress:
        """What is here now; a whole program is verified. Raises ``IntegrityError``, and forgets the bytes."""
        if self.size < self._plan.size:
            return Progress(self.size, False)
        self._file.seek(0)
        # Part by part: many uploads at once would need the memory of all their programs.
        parts = iter(lambda: self._file.read(_PART_BYTES), b"")
        actual = program_digest_of_parts(self._plan.format, self.size, parts)
        if actual != self._plan.digest:
            self._path.unlink(missing_ok=True)
            raise IntegrityError(
                f"the program's digest is {actual.hex()}, {self._plan.digest.hex()} was announced"
            )
        self._path.rename(self._path.with_suffix(_WHOLE))
        return Progress(self.size, True)

    def close(self) -> None:
        """Keeps what was written and lets others go on."""
        self._file.close()


def _announced(file: Path) -> int:
    """Bytes that a file of the spool has or will have."""
    size = file.stem.rpartition("-")[2]
    return int(size) if size.isdigit() else 0


def too_large(size: int, limit: int) -> ResourceExhausted:
    """A program is larger than this service takes."""
    return ResourceExhausted(
        f"the program has {size} bytes, above the limit of {limit}",
        limit="max_program_bytes",
        actual=str(size),
        maximum=str(limit),
    )


def _lock(file: FileIO, path: Path) -> None:
    """Locks the file, and makes sure that it still is the one under its name."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
            return
    except (BlockingIOError, FileNotFoundError):
        pass
    raise Unavailable("another call is uploading this program; ask for its progress and resume")
