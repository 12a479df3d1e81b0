"""Bundles that are opened and searched in place: kernels without a service, nothing written."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from kcache_grpc.bundle import SUFFIX, Bundle, EntryKind, open_bundle
from kcache_grpc.client.bundles.index import BundledKernel, Contents, KernelIndex, Match, read_contents
from kcache_grpc.client.bundles.reports import PreloadReport, Tally
from kcache_grpc.client.cache.totals import Counters
from kcache_grpc.client.trust.server_state import Provenance
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.errors import ArgumentError, KcacheError, NotFound
from kcache_grpc.local_files import KcacheWarning
from kcache_grpc.model.manifest import ArtifactRef

#: The signers that are trusted now. May read files.
Trusted = Callable[[], frozenset[str]]


class Preloads:
    """The bundles of one client. Thread-safe.

    Those of the setting are opened at the first search. What is wrong with them is one warning, and counted.
    """

    def __init__(self, paths: Iterable[str], trusted: Trusted, counters: Counters) -> None:
        self._waiting = tuple(paths)
        self._trusted = trusted
        self._counters = counters
        self._lock = threading.RLock()
        self._index = KernelIndex()
        self._bundles: dict[bytes, Bundle] = {}
        self._warned = False

    def load(self, path: str | os.PathLike[str], trust: frozenset[str], target: str | None) -> PreloadReport:
        """See ``Client.preload``."""
        tally = Tally()
        files, single = _bundle_files(Path(path))
        trusted = self._trusted() | trust
        for file in files:
            if single:
                self._open(file, trusted, target, tally)
            else:
                self._open_or_report(file, trusted, target, tally)
        return tally.preloaded()

    def find(self, request: KernelRequest, disowned: Callable[[Provenance], bool]) -> BundledKernel | None:
        """The most specific kernel for ``request`` whose bytes are whole; ``None`` where there is none."""
        if self._waiting:
            self._load_waiting()
        for match in self._index.find(request):
            if disowned(match.provenance):
                self._counters.add("preload_disowned")
                continue
            kernel = self._whole(match)
            if kernel is not None:
                return kernel
        return None

    def _whole(self, match: Match) -> BundledKernel | None:
        """The kernel with its bytes; ``None`` where the bundle changed since it was opened."""
        try:
            return match.with_bytes(self._read, "preloaded")
        except KcacheError as error:
            self._warn(f"a preloaded kernel is not used: {error.message}", "preload_corrupt_entries")
            return None

    def _load_waiting(self) -> None:
        """Opens the bundles of the setting, once; another thread that comes meanwhile waits."""
        with self._lock:
            for path in self._waiting:
                self._load_setting(path)
            self._waiting = ()

    def _load_setting(self, path: str) -> None:
        """Never raises: a bundle that is missing or bad is a warning."""
        try:
            report = self.load(path, frozenset(), None)
        except KcacheError as error:
            self._warn(f"KCACHE_PRELOAD: {path} is not used: {error.message}", "preload_failures")
            return
        if report.rejected:
            first, more = report.rejected[0], len(report.rejected) - 1
            text = f"KCACHE_PRELOAD: {first.kind} {first.name} of {first.bundle} is not used: {first.reason}"
            self._warn(f"{text}, and {more} more" if more else text, "preload_failures")

    def _open_or_report(self, path: Path, trusted: frozenset[str], target: str | None, tally: Tally) -> None:
        """One bundle of a directory: the others count without it."""
        try:
            self._open(path, trusted, target, tally)
        except KcacheError as error:
            tally.reject("bundle", str(path), str(path), error.message)

    def _open(self, path: Path, trusted: frozenset[str], target: str | None, tally: Tally) -> None:
        """Opens one bundle and indexes what it offers; it stays open unless nothing of it is used."""
        bundle = open_bundle(path)
        try:
            bundle.require_trusted(trusted)
            contents = read_contents(bundle, trusted, target, tally)
            tally.opened(str(path), bundle.signer)
            if not self._add(bundle, contents, tally):
                bundle.close()
        except BaseException:
            bundle.close()
            raise

    def _add(self, bundle: Bundle, contents: Contents, tally: Tally) -> bool:
        """Whether one of the kernels is new: then their bytes are read from this bundle."""
        used = False
        with self._lock:
            for mapping in contents.mappings:
                new = self._index.add_mapping(mapping)
                used |= new
                tally.added("mapping", mapping.entry.name, bundle.source, new=new)
            for kernel in contents.kernels:
                new = self._index.add_kernel(kernel)
                used |= new
                tally.added("kernel", kernel.entry.name, bundle.source, new=new)
            if used:
                self._bundles[bundle.digest] = bundle
        return used

    def _read(self, ref: ArtifactRef) -> bytes | None:
        """An artifact or a constant from one of the open bundles, verified; ``None`` where none has it.

        Raises ``KcacheError`` where every bundle that had it has changed.
        """
        with self._lock:
            bundles = tuple(self._bundles.values())
        failure: KcacheError | None = None
        for bundle in bundles:
            entry = bundle.find(EntryKind.ARTIFACT, ref.sha256.hex())
            if entry is not None and entry.sha256 == ref.sha256 and entry.size == ref.size:
                try:
                    return bundle.read(entry)
                except KcacheError as error:
                    failure = failure or error
        if failure is not None:
            raise failure
        return None

    def _warn(self, text: str, counter: str) -> None:
        """Counts, and warns of the first."""
        self._counters.add(counter)
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            warnings.warn(text, KcacheWarning, stacklevel=2)

    def close(self) -> None:
        """Closes the bundles. Kernels that callers hold stay usable."""
        with self._lock:
            bundles, self._bundles = tuple(self._bundles.values()), {}
            self._index = KernelIndex()
        for bundle in bundles:
            bundle.close()

    def after_fork(self) -> None:
        """In a child: another thread of the parent may have held the lock."""
        self._lock = threading.RLock()
        self._index.after_fork()


def _bundle_files(path: Path) -> tuple[list[Path], bool]:
    """The bundles that a path names, and whether it is one itself. Raises ``NotFound`` or
    ``ArgumentError``.
    """
    if not os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises for a name that is too long)
        return [path], True
    try:
        return sorted(each for each in path.iterdir() if each.suffix == SUFFIX), False
    except FileNotFoundError as error:
        raise NotFound(f"there is no directory {path}", path=str(path)) from error
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error.strerror}", path=str(path)) from error
