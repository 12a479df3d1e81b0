"""Selects the contents of a bundle: specs with kernels and mappings, in bounded pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kcache_grpc.errors import ArgumentError, NotFound
from kcache_grpc.model.options import NUMERICS
from kcache_grpc.model.staleness import staleness
from kcache_grpc.storage.audit.filter import Filter, parse_filter
from kcache_grpc.storage.contract.store import Store
from kcache_grpc.storage.records import MappingRecord, Namespace, StoredKernel

#: Kernels, mappings or events that one question to the store asks for.
PAGE = 100
#: Keys and digests that a selection may name.
MOST_NAMED = 10_000
#: Mappings of one spec that a bundle takes.
MOST_MAPPINGS = 100_000


@dataclass(frozen=True)
class Selection:
    """See ``BundleSelection`` in protos/kcache/v1/bundles.proto. ``filter``: of audit events; empty: none are
    asked. ``text``: the selection in words, for the metadata of the bundle.

    Raises ``ArgumentError``.
    """

    everything: bool = False
    keys: tuple[int, ...] = ()
    kernels: tuple[bytes, ...] = ()
    programs: tuple[bytes, ...] = ()
    filter: str = ""
    targets: frozenset[str] = field(default=frozenset())
    #: The values of ``BlobCache`` too.
    blobs: bool = False

    def __post_init__(self) -> None:
        named = (self.keys, self.kernels, self.programs, self.filter)
        if self.everything and any(named):
            raise ArgumentError("a selection of all names nothing else but targets", field="selection")
        if not (self.everything or self.blobs or any(named)):
            raise ArgumentError(
                "the selection is empty: name keys, kernels, programs, a job, times, a filter, blobs, or all",
                field="selection",
            )
        for name, values in (("keys", self.keys), ("kernels", self.kernels), ("programs", self.programs)):
            if len(values) > MOST_NAMED:
                raise ArgumentError(
                    f"{len(values)} {name} in one selection, above {MOST_NAMED}", field="selection"
                )
        for digest in (*self.kernels, *self.programs):
            if len(digest) != 32:
                raise ArgumentError(
                    f"a digest of the selection has {len(digest)} bytes instead of 32", field="selection"
                )
        parse_filter(self.filter)

    @property
    def text(self) -> str:
        """For the metadata of a bundle, such as ``job = "train-7"``."""
        parts = ["all"] if self.everything else []
        if self.keys:
            parts.append(f"keys {', '.join(map(str, self.keys))}")
        parts += [f"{len(self.kernels)} kernels"] if self.kernels else []
        parts += [f"{len(self.programs)} programs"] if self.programs else []
        parts += [self.filter] if self.filter else []
        parts += [f"targets {', '.join(sorted(self.targets))}"] if self.targets else []
        parts += ["blobs"] if self.blobs else []
        return "; ".join(parts)[:65536]


@dataclass(frozen=True)
class Group:
    """Kernels and mappings of some specs; either may be empty."""

    kernels: tuple[StoredKernel, ...] = ()
    mappings: tuple[MappingRecord, ...] = ()


class Selected:
    """The parts of one selection in one namespace. Blocking."""

    def __init__(self, store: Store, namespace: Namespace, selection: Selection) -> None:
        self._store = store
        self._namespace = namespace
        self._selection = selection
        self._disowned = {each.toolchain for each in store.list_disowned(namespace)}
        #: Kernels that are selected and whose bytes are lost.
        self.lost = 0

    def groups(self) -> Iterator[Group]:
        """Kernels before mappings, page by page. Raises ``NotFound`` for a key that is not stored."""
        return self._all() if self._selection.everything else self._named()

    def _all(self) -> Iterator[Group]:
        after = 0
        while page := self._store.page_kernels(self._namespace, after, PAGE):
            after = page[-1].id
            digests = [kernel.kernel.kernel_digest for kernel in page]
            kernels = self._store.find_kernels(self._namespace, digests)
            self.lost += len(page) - len(kernels)
            yield Group(self._wanted(kernels[digest] for digest in digests if digest in kernels))
        name: tuple[bytes, str] | None = None
        while mappings := self._store.page_mappings(self._namespace, name, PAGE):
            name = (mappings[-1].program_digest, mappings[-1].numerics)
            yield Group(mappings=mappings)

    def _named(self) -> Iterator[Group]:
        kernels, programs = set(self._selection.kernels), set(self._selection.programs)
        for digests, into in zip(self._of_events(), (kernels, programs), strict=True):
            into |= digests
        keys = set(self._keys())
        mappings = self._mappings_of(programs)
        by_key = self._kernels_of(kernels)
        for key in sorted(keys | mappings.keys() | by_key.keys()):
            is_selected = key in keys
            loaded = self._of_key(key) if is_selected or key not in by_key else by_key[key]
            bound = self._all_mappings(key) if is_selected or key not in mappings else mappings[key]
            for start in range(0, max(len(loaded), 1), PAGE):
                yield Group(self._wanted(loaded[start : start + PAGE]))
            yield Group(mappings=tuple(bound))

    def _keys(self) -> Iterator[int]:
        count = self._store.count_specs(self._namespace)
        for key in self._selection.keys:
            if not 1 <= key <= count:
                raise NotFound(f"namespace {self._namespace.name} has no key {key}", key=str(key))
            yield self._store.resolve_key(self._namespace, key)

    def _of_events(self) -> tuple[set[bytes], set[bytes]]:
        """Kernels and programs that events of the audit log name."""
        kernels, programs = set[bytes](), set[bytes]()
        if not self._selection.filter:
            return kernels, programs
        condition: Filter = parse_filter(self._selection.filter)
        cursor: int | None = 0
        while cursor is not None:
            page = self._store.find_events(self._namespace, condition, cursor=cursor, limit=1000)
            for record in page.records:
                if record.event.kernel_digest is not None:
                    kernels.add(record.event.kernel_digest)
                if record.event.program_digest is not None:
                    programs.add(record.event.program_digest)
            cursor = page.cursor
        return kernels, programs

    def _mappings_of(self, programs: set[bytes]) -> dict[int, list[MappingRecord]]:
        by_key: defaultdict[int, list[MappingRecord]] = defaultdict(list)
        for numerics in NUMERICS:
            for page in _pages(sorted(programs)):
                mappings = self._store.find_mappings(self._namespace, page, numerics)
                for digest in page:
                    if digest in mappings:
                        by_key[mappings[digest].key].append(mappings[digest])
        return by_key

    def _kernels_of(self, digests: set[bytes]) -> dict[int, list[StoredKernel]]:
        """The kernels by key. Those that are gone, or were never stored, are left out."""
        by_key: defaultdict[int, list[StoredKernel]] = defaultdict(list)
        for page in _pages(sorted(digests)):
            for kernel in self._store.find_kernels(self._namespace, page).values():
                by_key[kernel.kernel.key].append(kernel)
        for kernels in by_key.values():
            kernels.sort(key=lambda kernel: kernel.id)
        return by_key

    def _of_key(self, key: int) -> list[StoredKernel]:
        kernels: list[StoredKernel] = []
        before: int | None = None
        while page := self._store.list_kernels(self._namespace, key, PAGE, before):
            kernels += page
            before = page[-1].id
        return kernels[::-1]

    def _all_mappings(self, key: int) -> tuple[MappingRecord, ...]:
        return self._store.list_mappings(self._namespace, key, MOST_MAPPINGS)

    def _wanted(self, kernels: Iterable[StoredKernel]) -> tuple[StoredKernel, ...]:
        targets = self._selection.targets
        return tuple(
            kernel
            for kernel in kernels
            if (not targets or kernel.kernel.target in targets) and not self._is_stale(kernel)
        )

    def _is_stale(self, kernel: StoredKernel) -> bool:
        epoch, toolchain = kernel.epoch, kernel.kernel.toolchain
        reason = staleness(epoch, toolchain, namespace_epoch=self._namespace.epoch, disowned=self._disowned)
        return reason is not None


def _pages(digests: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(digests), PAGE):
        yield digests[start : start + PAGE]
