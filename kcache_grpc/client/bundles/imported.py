"""Kernels of imported bundles in the cache directory: durable, verified on every read.

Layout below the cache directory, in addition to that of ``client/cache/disk.py``::

    imported/mappings/<program>.<numerics>/<sha256 of the binding>            BundledMapping
    imported/kernels/<digest of spec, target, options>/<sha256 of the manifest>   BundledKernel
    signers/<identity>.json                                                   public keys that may have signed
    them blobs/                                                                    their bytes, shared with
    the disk tier

A file appears whole or not at all and is never replaced; the bytes of a kernel are written before the kernel.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from kcache_grpc.bundle import Bundle, EntryKind, KernelEntry, MappingEntry, open_bundle
from kcache_grpc.bundle.verify import read_binding, read_manifest
from kcache_grpc.client.bundles.index import (
    BundledKernel,
    Contents,
    OfferedKernel,
    OfferedMapping,
    matches,
    read_contents,
)
from kcache_grpc.client.bundles.reports import ImportReport, Tally
from kcache_grpc.client.cache.disk import DiskTier
from kcache_grpc.client.cache.totals import Counters
from kcache_grpc.client.trust.pins import TrustedSigners
from kcache_grpc.client.trust.server_state import Provenance
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.errors import ArgumentError, KcacheError, PermissionDenied, ResourceExhausted
from kcache_grpc.local_files import read_regular, write_whole
from kcache_grpc.model.identity import ingredients_digest
from kcache_grpc.model.manifest import ArtifactRef, Binding
from kcache_grpc.model.signing import (
    BINDING_DOMAIN,
    MANIFEST_DOMAIN,
    Signed,
    Verifier,
    key_id_of,
    server_id,
)

T = TypeVar("T")

#: Files that are synced to disk side by side: a sync waits, and the file system commits several at once.
_WRITERS = 16


class ImportedKernels:
    """Thread-safe; several processes may share the directory. ``find`` never raises ``OSError``."""

    def __init__(
        self, directory: Path, signers: TrustedSigners, disk: DiskTier, limit: int, counters: Counters
    ) -> None:
        """``directory``: of the kernels. ``limit``: bytes that the disk tier keeps."""
        self._directory = directory
        self._disk = disk
        self._limit = limit
        self._counters = counters
        self._signers = signers

    def add(self, path: str | os.PathLike[str], trusted: frozenset[str], target: str | None) -> ImportReport:
        """See ``Client.import_bundle``. All is checked before the first byte is written."""
        tally = Tally()
        with open_bundle(path) as bundle:
            bundle.require_trusted(trusted)
            for entry in bundle.entries:
                for _ in bundle.chunks(entry):
                    pass
            contents = read_contents(bundle, trusted, target, tally)
            self._require_useful(bundle, contents, target)
            tally.opened(bundle.source, bundle.signer)
            try:
                return self._write(bundle, contents, tally)
            except OSError as error:
                raise _write_failure(error, self._directory.parent) from error

    def _require_useful(self, bundle: Bundle, contents: Contents, target: str | None) -> None:
        """Raises where nothing could be imported as it was asked for, or the disk tier cannot hold it."""
        if target is not None and not contents.kernels:
            known = ", ".join(bundle.metadata.targets) or "none"
            raise ArgumentError(
                f"{bundle.source} has no kernel for {target} that can be used; it has kernels for {known}",
                finding="target",
            )
        size = sum(ref.size for ref in contents.needed)
        if size > self._limit:
            raise ResourceExhausted(
                f"{bundle.source} needs {size} bytes in the cache directory, which keeps {self._limit}; "
                "preload it "
                "instead",
                limit="disk_bytes",
            )

    def _write(self, bundle: Bundle, contents: Contents, tally: Tally) -> ImportReport:
        """Bytes first, then what refers to them, then the signers. Raises ``OSError``.

        An import that fails leaves no signer that is trusted from then on.
        """
        used = {offered.signer for offered in (*contents.mappings, *contents.kernels)}
        signers = [key for key in bundle.public_keys.values() if server_id(key) in used]
        self._drop_damaged(contents, signers)
        with ThreadPoolExecutor(_WRITERS, "kcache-import") as pool:
            sizes = [
                size for size in pool.map(functools.partial(self._copy, bundle), contents.needed) if size
            ]
            new_kernels = list(pool.map(self._add_kernel, contents.kernels))
            new_mappings = list(pool.map(self._add_mapping, contents.mappings))
        for key in signers:
            self._signers.add(key, bundle.source)
        for kernel, new in zip(contents.kernels, new_kernels, strict=True):
            tally.added("kernel", kernel.entry.name, bundle.source, new=new)
        for mapping, new in zip(contents.mappings, new_mappings, strict=True):
            tally.added("mapping", mapping.entry.name, bundle.source, new=new)
        return tally.imported(len(sizes), sum(sizes))

    def _copy(self, bundle: Bundle, ref: ArtifactRef) -> int:
        """Copies an artifact or a constant into the disk tier; bytes that are new."""
        entry = bundle.find(EntryKind.ARTIFACT, ref.sha256.hex())
        assert entry is not None
        return ref.size if self._disk.add_blob(ref.sha256, bundle.read(entry)) else 0

    def _drop_damaged(self, contents: Contents, signers: list[bytes]) -> None:
        """Drops the damaged ones of the files that ``contents`` would be in: they are not present."""
        keys = self._signers.keys() | {key_id_of(key): key for key in signers}
        reader = _Reader(keys, self._counters)
        for mapping in contents.mappings:
            reader.mapping(self._mapping_file(mapping))
        for kernel in contents.kernels:
            reader.kernel(self._kernel_file(kernel))

    def _add_kernel(self, kernel: OfferedKernel) -> bool:
        path = self._kernel_file(kernel)
        return not path.exists() and write_whole(path, kernel.entry.content(), replace=False)

    def _add_mapping(self, mapping: OfferedMapping) -> bool:
        path = self._mapping_file(mapping)
        return not path.exists() and write_whole(path, mapping.entry.content(), replace=False)

    def find(self, request: KernelRequest, disowned: Callable[[Provenance], bool]) -> BundledKernel | None:
        """The most specific kernel for ``request`` whose bytes are whole; ``None`` where there is none."""
        if not self._mapping_directory(request.program.digest, request.options.numerics).is_dir():
            return None
        reader = _Reader(self._signers.keys(), self._counters)
        numerics, target, options = request.options.numerics, str(request.target), str(request.options)

        def mappings(digest: bytes) -> Iterator[OfferedMapping]:
            return reader.mappings(self._mapping_directory(digest, numerics))

        def kernels(mapping: OfferedMapping) -> Iterator[OfferedKernel]:
            return reader.kernels(self._kernel_directory(mapping.binding.spec_digest, target, options))

        def binding_of(digest: bytes) -> Binding | None:
            return next((each.binding for each in mappings(digest)), None)

        for match in matches(request, mappings(request.program.digest), kernels, binding_of):
            if disowned(match.provenance):
                self._counters.add("import_disowned")
                continue
            kernel = match.with_bytes(self.read, "disk")
            if kernel is not None:
                return kernel
        return None

    def read(self, ref: ArtifactRef) -> bytes | None:
        """Verified bytes of an artifact or a constant; ``None`` where they were not imported, or evicted."""
        return self._disk.blob(ref.sha256, ref.size)

    def _mapping_directory(self, program_digest: bytes, numerics: str) -> Path:
        return self._directory / "mappings" / f"{program_digest.hex()}.{numerics}"

    def _mapping_file(self, mapping: OfferedMapping) -> Path:
        binding = mapping.binding
        directory = self._mapping_directory(binding.program_digest, binding.numerics)
        return directory / hashlib.sha256(mapping.entry.binding.payload).hexdigest()

    def _kernel_directory(self, spec_digest: bytes, target: str, options: str) -> Path:
        pairs = (("spec", spec_digest.hex()), ("target", target), ("options", options))
        return self._directory / "kernels" / ingredients_digest("kcache.imported.v1", pairs).hex()

    def _kernel_file(self, kernel: OfferedKernel) -> Path:
        manifest = kernel.manifest
        directory = self._kernel_directory(manifest.spec_digest, str(manifest.target), str(manifest.options))
        return directory / hashlib.sha256(kernel.entry.manifest.payload).hexdigest()


class _Reader:
    """Reads entries under the keys that are trusted now. A file that is damaged is dropped and counted."""

    def __init__(self, keys: dict[bytes, bytes], counters: Counters) -> None:
        self._keys, self._counters = keys, counters

    def mappings(self, directory: Path) -> Iterator[OfferedMapping]:
        """Those of a program, whose signatures hold."""
        return _verified(directory, self.mapping)

    def kernels(self, directory: Path) -> Iterator[OfferedKernel]:
        """Those of a spec, target and options, whose signatures hold."""
        return _verified(directory, self.kernel)

    def mapping(self, path: Path) -> OfferedMapping | None:
        """That of a file; ``None`` for a missing or damaged one, and without trust in its signer."""
        return self._read(path, self._mapping)

    def kernel(self, path: Path) -> OfferedKernel | None:
        """See ``mapping``."""
        return self._read(path, self._kernel)

    def _mapping(self, data: bytes) -> OfferedMapping:
        entry = MappingEntry.from_bytes(data)
        key, payload = self._payload(BINDING_DOMAIN, entry.binding)
        return OfferedMapping(entry, read_binding(entry, payload), server_id(key))

    def _kernel(self, data: bytes) -> OfferedKernel:
        entry = KernelEntry.from_bytes(data)
        key, payload = self._payload(MANIFEST_DOMAIN, entry.manifest)
        return OfferedKernel(entry, read_manifest(entry, payload), server_id(key))

    def _read(self, path: Path, verify: Callable[[bytes], T]) -> T | None:
        try:
            return verify(read_regular(path))
        except PermissionDenied:
            return None
        except (OSError, KcacheError) as error:
            if _may_be_whole(error):
                return None
            self._counters.add("disk_corrupt_entries")
            with contextlib.suppress(OSError):
                path.unlink()
            return None

    def _payload(self, domain: bytes, signed: Signed) -> tuple[bytes, bytes]:
        """The key, and what it signed. Raises ``PermissionDenied`` for a key that is not trusted any more."""
        key = self._keys.get(signed.key_id)
        if key is None:
            raise PermissionDenied(f"the signer {signed.key_id.hex()} is not trusted")
        return key, Verifier(key).verify(domain, signed)


def _verified(directory: Path, read: Callable[[Path], T | None]) -> Iterator[T]:
    """What the files of a directory hold."""
    try:
        paths = sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    except OSError:
        return
    for path in paths:
        value = read(path)
        if value is not None:
            yield value


def _may_be_whole(error: OSError | KcacheError) -> bool:
    """Whether a file that could not be read is no damaged one: the system failed, as with too many open
    files, or a later version wrote it.
    """
    if isinstance(error, KcacheError):
        return "skew" in error.metadata
    # What is not a regular file is never read.
    return error.errno not in (errno.EINVAL, errno.ELOOP, errno.EISDIR, errno.ENXIO)


def _write_failure(error: OSError, directory: Path) -> KcacheError:
    """What is imported so far is whole: the import can be repeated."""
    text = f"the bundle is not imported as a whole: {directory} cannot be written: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ResourceExhausted(f"{text}; make room and import it again", limit="disk")
    return PermissionDenied(f"{text}; import it again when it can")
