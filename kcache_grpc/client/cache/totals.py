"""Counters of a client, and hits and saved seconds of all processes of a cache directory.

The counters of a client end with it. Kernels by origin, the compile time that hits saved and for whom, and
bypasses by reason are added to a file of the cache directory when a client is closed or its process ends, and
in between at most once a minute, so that ``kcache stats`` shows the hits that no server sees.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kcache_grpc.local_files import read_regular, write_whole
from kcache_grpc.model.bypass import BypassReason, counter_of

FILE = "totals.json"
_ORIGINS = ("memory", "disk", "remote", "preloaded", "compiled")
#: Counters of a client that are added up; they end with the origin of a kernel.
NAMES = tuple(f"{origin}_kernels" for origin in _ORIGINS)
#: Saved microseconds of compiling by origin. Of compiled ones: those that other requests compiled.
SAVED_NAMES = tuple(f"{origin}_saved_us" for origin in _ORIGINS)
_BYPASSES = {reason.value: counter_of(reason) for reason in BypassReason}
_COUNTED = (*NAMES, *SAVED_NAMES, *_BYPASSES.values())
#: Counters of kernels that were hits.
_HITS = NAMES[:-1]
#: Seconds between two writes of a process that goes on.
_INTERVAL = 60.0
#: Callers in the file; what others saved is added to the caller without a name.
_MOST_CALLERS = 256
Caller = tuple[str, str]


class Counters:
    """Thread-safe counts, cheap enough for every call."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._counts[name] += amount

    def add_kernel(self, origin: str, seconds_saved: float) -> None:
        """Count a kernel by its origin, and the compile time that it saved."""
        with self._lock:
            self._counts[f"{origin}_kernels"] += 1
            if seconds_saved:
                self._counts[f"{origin}_saved_us"] += round(seconds_saved * 1e6)

    def bypass(self, reason: BypassReason, amount: int = 1) -> None:
        """Count programs that bypassed the cache."""
        self.add(counter_of(reason), amount)

    def snapshot(self) -> dict[str, int]:
        """The counts so far, by name."""
        with self._lock:
            return dict(sorted(self._counts.items()))

    def after_fork(self) -> None:
        """A fork may have copied the lock while another thread held it."""
        self._lock = threading.Lock()


@dataclass(frozen=True)
class Recorded:
    """The content of the file. ``since`` is an ISO time; empty where nothing was written.

    ``counts`` has every counter by name, ``callers`` hits and saved microseconds by actor and job.
    """

    since: str = ""
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    callers: Mapping[Caller, tuple[int, int]] = field(default_factory=dict[Caller, tuple[int, int]])

    @property
    def kernels(self) -> dict[str, int | str]:
        """``since``, and kernels by origin; empty where nothing was written."""
        return {"since": self.since, **{name: self.counts[name] for name in NAMES}} if self.since else {}

    @property
    def seconds_saved(self) -> dict[str, float]:
        """Seconds of compiling that were saved, by the origin of the kernels, without those of none."""
        saved = zip(_ORIGINS, SAVED_NAMES, strict=True)
        return {origin: self.counts[name] / 1e6 for origin, name in saved if self.counts.get(name)}

    @property
    def bypasses(self) -> dict[str, int]:
        """Programs that bypassed the cache, by reason, without reasons of none."""
        return {reason: self.counts[name] for reason, name in _BYPASSES.items() if self.counts.get(name)}


class Totals:
    """The file of one cache directory, for one actor and job. Thread-safe; no method raises ``OSError``."""

    def __init__(self, directory: Path | None, actor: str = "", job: str = "") -> None:
        self._path = None if directory is None else directory / FILE
        self._caller = (actor, job)
        self._lock = threading.Lock()
        self._written: dict[str, int] = {}
        self._next = time.monotonic() + _INTERVAL

    def offer(self, counts: Mapping[str, int]) -> None:
        """Add what a client has counted since the last write, if that was a minute ago."""
        if time.monotonic() >= self._next:
            self.add(counts)

    def add(self, counts: Mapping[str, int]) -> None:
        """Add what a client has counted since the last write; ``counts`` are all of its counters."""
        with self._lock:
            self._next = time.monotonic() + _INTERVAL
            new = {name: counts.get(name, 0) - self._written.get(name, 0) for name in _COUNTED}
            if self._path is None or not any(new.values()):
                return
            with contextlib.suppress(OSError), _locked(self._path.with_suffix(".lock")):
                write_whole(self._path, _encoded(_added(_read(self._path), new, self._caller)))
                self._written = {name: counts.get(name, 0) for name in _COUNTED}

    def read(self) -> Recorded:
        """What was written by now."""
        return Recorded() if self._path is None else _read(self._path)

    def after_fork(self, counts: Mapping[str, int]) -> None:
        """In a child: the parent adds ``counts``, and another thread may have held the lock."""
        self._lock = threading.Lock()
        self._written = {name: counts.get(name, 0) for name in _COUNTED}


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _added(before: Recorded, new: Mapping[str, int], caller: Caller) -> Recorded:
    since = before.since or datetime.now(timezone.utc).isoformat(timespec="seconds")
    counts = {name: before.counts.get(name, 0) + new[name] for name in _COUNTED}
    callers = dict(before.callers)
    hits, saved = sum(new[name] for name in _HITS), sum(new[name] for name in SAVED_NAMES)
    if hits or saved:
        if caller not in callers and len(callers) >= _MOST_CALLERS:
            caller = ("", "")
        old = callers.get(caller, (0, 0))
        callers[caller] = (old[0] + hits, old[1] + saved)
    return Recorded(since, counts, callers)


def _encoded(recorded: Recorded) -> bytes:
    callers = [[*caller, *sums] for caller, sums in recorded.callers.items()]
    return json.dumps({"since": recorded.since, **recorded.counts, "callers": callers}).encode()


def _read(path: Path) -> Recorded:
    """Empty for a file that is missing or damaged: counting starts again. Earlier files have fewer names."""
    try:
        totals: dict[str, Any] = json.loads(read_regular(path))
        counts = {name: int(totals.get(name, 0)) for name in _COUNTED}
        callers = {
            (str(actor), str(job)): (int(hits), int(saved))
            for actor, job, hits, saved in totals.get("callers", ())
        }
        return Recorded(str(totals["since"]), counts, callers)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Recorded()
