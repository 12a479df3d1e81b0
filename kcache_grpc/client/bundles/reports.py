"""Reports of bundle imports: what was new, already present, or rejected and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class BundleItem:
    """An entry of a bundle, or a whole one, and what became of it."""

    #: "kernel", "mapping", or "bundle" for a file that was rejected as a whole.
    kind: str
    #: Of the entry: its digest in hex; of a bundle its path.
    name: str
    #: Path of the bundle.
    bundle: str
    #: Why it was rejected; empty for what was not.
    reason: str = ""


@dataclass(frozen=True)
class PreloadReport:
    """What ``Client.preload`` did. Nothing is written, and no kernel that was there is replaced."""

    #: Paths of the bundles that are open now.
    bundles: tuple[str, ...]
    #: Identities that signed them: 64 hex digits each.
    signers: tuple[str, ...]
    new: tuple[BundleItem, ...]
    present: tuple[BundleItem, ...]
    rejected: tuple[BundleItem, ...]
    #: Entries that clients do not use, by kind: specs, schedules, blobs.
    unused: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class ImportReport(PreloadReport):
    """What ``Client.import_bundle`` did. ``new`` is on disk, durably."""

    #: Artifacts and constants that were written, and their bytes.
    new_artifacts: int = 0
    new_artifact_bytes: int = 0


@dataclass(frozen=True)
class UploadReport(PreloadReport):
    """What ``Client.upload_bundle`` did at the service. ``digest``: of the bundle, in hex."""

    digest: str = ""


@dataclass(frozen=True)
class ExportReport:
    """The bundle that ``Client.export_bundle`` wrote."""

    path: str
    #: Of the bundle, in hex.
    digest: str
    #: Identity of the service, which signed it.
    signer: str
    #: Bytes of the file.
    size: int
    #: Entries by kind, such as ``{"kernel": 3, "artifact": 12}``.
    entries: Mapping[str, int]
    #: Kernels and mappings that were selected, and that the service could not read.
    skipped: int = 0


class Tally:
    """Collects what becomes of entries; not thread-safe."""

    def __init__(self) -> None:
        self.bundles: list[str] = []
        self.signers: list[str] = []
        self._new: list[BundleItem] = []
        self._present: list[BundleItem] = []
        self._rejected: list[BundleItem] = []
        self._unused: Counter[str] = Counter()

    def opened(self, bundle: str, signer: str) -> None:
        """A bundle is in use."""
        self.bundles.append(bundle)
        if signer not in self.signers:
            self.signers.append(signer)

    def added(self, kind: str, name: str, bundle: str, *, new: bool) -> None:
        """An entry is in use, from now on or as before."""
        (self._new if new else self._present).append(BundleItem(kind, name, bundle))

    def reject(self, kind: str, name: str, bundle: str, reason: str) -> None:
        """An entry or a bundle is not used."""
        self._rejected.append(BundleItem(kind, name, bundle, reason))

    def unused(self, kind: str) -> None:
        """Clients do not use entries of this kind."""
        self._unused[kind] += 1

    def preloaded(self) -> PreloadReport:
        """The report of a preload."""
        return PreloadReport(
            tuple(self.bundles),
            tuple(self.signers),
            tuple(self._new),
            tuple(self._present),
            tuple(self._rejected),
            dict(self._unused),
        )

    def imported(self, artifacts: int, size: int) -> ImportReport:
        """The report of an import."""
        report = self.preloaded()
        return ImportReport(
            report.bundles,
            report.signers,
            report.new,
            report.present,
            report.rejected,
            report.unused,
            artifacts,
            size,
        )
