"""Prepared values in a file that processes map, so that all of them have one copy.

A file holds the prepared buffer and then the SHA-256 of its name and of the buffer. Its name is a digest of
the kernel's code and of the bound values. It appears whole or not at all, and is verified before it is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from kcache_grpc.errors import ArgumentError
from kcache_grpc.local_files import own_directory, write_whole
from kcache_grpc.model.manifest import Binding, Manifest
from kcache_grpc.runtime.arrays import Buffer
from kcache_grpc.runtime.cpu._abi import CData, Library, ffi
from kcache_grpc.runtime.cpu.memory import AlignedBytes
from kcache_grpc.runtime.dtypes import numpy_dtype
from kcache_grpc.runtime.prepared.prepared_kernel import prepared_values

#: Bytes of the digest behind the values.
DIGEST = 32
_FORMAT = b"kcache prepared values 1"


class MappedBytes:
    """A file's first ``size`` bytes, mapped for reading from an aligned ``pointer``."""

    def __init__(self, memory: mmap.mmap, size: int) -> None:
        self._memory = memory
        self.pointer: CData = ffi.from_buffer(memory)
        self.size = size


def values_of(
    manifest: Manifest,
    binding: Binding,
    library: Library,
    buffers: Sequence[Buffer],
    constants: Sequence[CData],
    share: Path | None,
) -> MappedBytes | AlignedBytes:
    """The prepared values of the bound inputs, ascending; in a file in the directory ``share``, if any."""
    preparation = manifest.preparation
    if share is None or preparation is None:
        return prepared_values(manifest, library, buffers, constants)
    name = values_name(manifest, binding, buffers)
    make = partial(prepared_values, manifest, library, buffers, constants, DIGEST)
    return shared_values(share, name, preparation.prepared_bytes, make)


def values_name(manifest: Manifest, binding: Binding, buffers: Sequence[Buffer]) -> str:
    """The name of the file with the values that a kernel prepares of these buffers."""
    code = manifest.artifact("so")
    parts = [_FORMAT, b"" if code is None else code.sha256]
    parts += [constant.sha256 for constant in binding.constants]
    for index, buffer in zip(manifest.options.bound, buffers, strict=True):
        size = numpy_dtype(buffer.dtype).itemsize
        for dim in buffer.shape:
            size *= dim
        content = ffi.buffer(buffer.pointer, size) if size else b""
        parts += [index.to_bytes(4, "little"), hashlib.sha256(content).digest()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def shared_values(
    directory: Path, name: str, size: int, make: Callable[[], AlignedBytes]
) -> MappedBytes | AlignedBytes:
    """The ``size`` bytes of a file in ``directory``, which is made (0700) where it is missing.

    Where the file is missing, truncated, modified or not the user's own, ``make`` returns its content, with
    room for a digest behind it; the first process that writes it wins. Where it cannot be written the result
    is this process's own. Raises ``ArgumentError`` for a directory that others can read or write.
    """
    reason = own_directory(directory)
    if reason:
        raise ArgumentError(f"prepared values cannot be shared: {reason}", argument="share")
    path = directory / name
    mapped = _mapped(path, size)
    if mapped is not None:
        return mapped
    fresh = make()
    content = memoryview(ffi.buffer(fresh.pointer, size + DIGEST))
    content[size:] = _digest(name, content[:size])
    with contextlib.suppress(OSError):
        if not write_whole(path, content, replace=False) and _mapped(path, size) is None:
            write_whole(path, content)
    return _mapped(path, size) or fresh


def _mapped(path: Path, size: int) -> MappedBytes | None:
    """The file, if it is whole and the user's own."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        private = (
            stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
        )
        if not private or status.st_size != size + DIGEST:
            return None
        memory = mmap.mmap(descriptor, size + DIGEST, prot=mmap.PROT_READ)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    with memoryview(memory) as content:
        whole = bytes(content[size:]) == _digest(path.name, content[:size])
    return MappedBytes(memory, size) if whole else None


def _digest(name: str, content: memoryview) -> bytes:
    digest = hashlib.sha256(name.encode())
    digest.update(content)
    return digest.digest()
