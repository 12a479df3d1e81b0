"""The tier on disk: kernels of earlier processes, bounded, and used only after verification.

Layout below the cache directory, which must be the user's own (0700)::

    pins/<address>.json                    the server's identity, pinned at first contact
    servers/<address>+<namespace>.json     what it last said of itself
    kernels/<2 hex>/<62 hex>               one answer of the server: signed binding, signed manifest
    blobs/<2 hex>/<62 hex>                 artifacts and constants by their SHA-256

A file appears whole (temp, fsync, rename) or not at all, so processes share the directory without locks.
Signatures and digests are checked on every read: a bad file is dropped and counted, never fatal.
Files that were not used for longest go first when the bound is passed; a kernel without its blob is a miss.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.client.cache.totals import Counters
from kcache_grpc.client.trust.server_state import ServerState
from kcache_grpc.client.trust.verification import KernelRequest, KernelVerifier, check_bytes
from kcache_grpc.errors import IntegrityError
from kcache_grpc.local_files import KcacheWarning, read_regular, write_whole
from kcache_grpc.model.identity import ingredients_digest
from kcache_grpc.model.manifest import Binding, Manifest
from kcache_grpc.model.target import code_kind

T = TypeVar("T")

#: Eviction stops at this share of the bound, so that it does not run at every write.
_LOW_WATER = 0.9
#: Share of the bound that one process writes before it measures the directory again: others write there too.
_MEASURE_EVERY = 1 / 16
#: Seconds after which a temporary file has no writer any more.
_ABANDONED_AFTER = 3600.0


@dataclass(frozen=True)
class StoredKernel:
    """A verified kernel: binding, manifest, and the bytes by SHA-256 that it needs to run."""

    reply: pb.KernelResult
    binding: Binding
    manifest: Manifest
    blobs: dict[bytes, bytes]


def entry_name(state: ServerState, namespace: str, request: KernelRequest, *, lower: bool = False) -> str:
    """Name of a kernel's file: all that decides which answer it is.

    ``lower``: of a kernel for a lower target that serves the request for a while.
    """
    return ingredients_digest(
        "kcache.disk.v1",
        (
            *((("match", "lower"),) if lower else ()),
            ("server", state.server_id),
            ("namespace", namespace),
            ("epoch", str(state.epoch)),
            ("toolchain", state.toolchain_of(request.target).hex()),
            ("program", request.program.digest.hex()),
            ("target", str(request.target)),
            ("options", str(request.options)),
            ("shapes", str(request.shapes)),
        ),
    ).hex()


class DiskTier:
    """Thread-safe; several processes may share one directory. No method raises ``OSError``."""

    def __init__(self, directory: Path, limit: int, counters: Counters) -> None:
        self._kernels = directory / "kernels"
        self._blobs = directory / "blobs"
        self._limit = limit
        self._counters = counters
        #: Bytes written since the directory was last measured, on top of what was found then.
        self._written = 0
        self._measured: int | None = None
        self._writable = True

    @property
    def writable(self) -> bool:
        """Whether kernels are kept: no write has failed."""
        return self._writable

    def load(
        self, name: str, verifier: KernelVerifier, request: KernelRequest, max_age: float | None = None
    ) -> StoredKernel | None:
        """A kernel for ``request`` with all its blobs, verified; ``None`` for a miss.

        ``max_age``: seconds since it was saved after which it is a miss; such a kernel does not become
        younger by use. ``None``: of any age.
        """
        path = _path_of(self._kernels, name)
        if max_age is not None and not _is_younger(path, max_age):
            return None
        data = self._read(path)
        if data is None:
            return None
        try:
            reply = pb.KernelResult.FromString(data)
            binding, manifest = verifier.kernel(reply, request)
        except (DecodeError, IntegrityError):
            self._drop(path)
            return None
        blobs: dict[bytes, bytes] = {}
        for sha256, size in needed_blobs(binding, manifest):
            blob = self.blob(sha256, size)
            if blob is None:
                return None
            blobs[sha256] = blob
        if max_age is None:
            _touch(path)
        return StoredKernel(reply, binding, manifest, blobs)

    def save(self, name: str, kernel: StoredKernel) -> None:
        """Keeps a verified kernel: its blobs first, so that a whole entry has whole blobs."""
        for sha256, blob in kernel.blobs.items():
            self.save_blob(sha256, blob)
        reply = pb.KernelResult(
            status=pb.KERNEL_STATUS_FOUND, binding=kernel.reply.binding, manifest=kernel.reply.manifest
        )
        self._write(_path_of(self._kernels, name), reply.SerializeToString(deterministic=True))

    def blob(self, sha256: bytes, size: int) -> bytes | None:
        """Verified bytes; ``None`` for a miss."""
        path = _path_of(self._blobs, sha256.hex())
        data = self._read(path)
        if data is None:
            return None
        try:
            check_bytes(data, sha256, size, "a cached file")
        except IntegrityError:
            self._drop(path)
            return None
        _touch(path)
        return data

    def save_blob(self, sha256: bytes, data: bytes) -> None:
        """Keeps bytes whose digest the caller has checked."""
        path = _path_of(self._blobs, sha256.hex())
        if len(data) <= self._limit and not path.exists():
            self._write(path, data)

    def add_blob(self, sha256: bytes, data: bytes) -> bool:
        """Keeps bytes whose digest the caller has checked; whether they are new. Raises ``OSError``."""
        if self.blob(sha256, len(data)) is not None:
            return False
        write_whole(_path_of(self._blobs, sha256.hex()), data)
        self._account(len(data))
        return True

    def _write(self, path: Path, data: bytes) -> None:
        if not self._writable:
            return
        try:
            write_whole(path, data)
        except OSError as error:
            self._writable = False
            self._counters.add("disk_write_failures")
            warnings.warn(f"kcache keeps nothing more on disk: {error}", KcacheWarning, stacklevel=2)
            return
        self._account(len(data))

    def _account(self, size: int) -> None:
        """Counts bytes that were written, and shrinks the directory where they pass the bound."""
        self._written += size
        measured = self._measured
        if (
            measured is None
            or self._written > self._limit * _MEASURE_EVERY
            or measured + self._written > self._limit
        ):
            self._measured, self._written = self._shrink(), 0

    def _shrink(self) -> int:
        """Forgets files until the rest is within the bound; bytes that are left."""
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        if total <= self._limit:
            return total
        for _, size, path in files:
            with contextlib.suppress(OSError):
                path.unlink()
                self._counters.add("disk_evictions")
            total -= size
            if total <= self._limit * _LOW_WATER:
                break
        return total

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """Time of last use, bytes and path of every file; temporary ones that were left behind go."""
        now = time.time()
        for directory in (self._kernels, self._blobs):
            for path in directory.glob("*/*"):
                with contextlib.suppress(OSError):
                    status = path.stat()
                    if not path.name.startswith(".tmp-"):
                        yield status.st_mtime, status.st_size, path
                    elif now - status.st_mtime > _ABANDONED_AFTER:
                        path.unlink()

    def _read(self, path: Path) -> bytes | None:
        """The content of a file; what is no regular file, such as a FIFO, is dropped."""
        try:
            return read_regular(path)
        except OSError as error:
            if error.errno == errno.EINVAL:
                self._drop(path)
            return None

    def _drop(self, path: Path) -> None:
        self._counters.add("disk_corrupt_entries")
        with contextlib.suppress(OSError):
            path.unlink()


def needed_blobs(binding: Binding, manifest: Manifest) -> list[tuple[bytes, int]]:
    """SHA-256 and size of what a kernel needs to run: its code, then the constants in order."""
    code = manifest.code
    if code is None:
        kind = {"ptx": "PTX"}.get(code_kind(manifest.target), "shared object")
        raise IntegrityError(f"the manifest names no {kind}")
    return [(code.sha256, code.size), *((constant.sha256, constant.size) for constant in binding.constants)]


def _path_of(directory: Path, name: str) -> Path:
    return directory / name[:2] / name[2:]


def _is_younger(path: Path, seconds: float) -> bool:
    """Whether a file was written less than ``seconds`` ago; a time in the future counts as old."""
    try:
        age = time.time() - path.stat().st_mtime
    except OSError:
        return False
    return 0 <= age < seconds


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(path)
