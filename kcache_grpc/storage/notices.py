"""What a store tells of its own accord: that something changed which others wait for or remember."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class LeaseChanged:
    """A lease was given back or taken over, or its compile reached another stage."""

    namespace_id: int
    kernel_digest: bytes


@dataclass(frozen=True)
class KernelPublished:
    """A spec has another kernel."""

    namespace_id: int
    key: int


@dataclass(frozen=True)
class NamespaceChanged:
    """A namespace has another epoch, other disowned toolchains, or lost rows to collection or quarantine."""

    namespace_id: int


@dataclass(frozen=True)
class Missed:
    """Anything may have changed: it was not listened for a while."""


Notice = LeaseChanged | KernelPublished | NamespaceChanged | Missed
Tell = Callable[[Notice], None]


class Watch(Protocol):
    """Ends the telling."""

    def close(self) -> None:
        """Returns once nothing is told any more. Idempotent."""
        ...


class NoticeStore(ABC):
    """Notices of what any process did to the store."""

    @abstractmethod
    def watch(self, tell: Tell) -> Watch | None:
        """Calls ``tell`` in a thread of its own, after the commit; ``None`` from a store that tells nothing.

        ``Missed`` comes first, and again whenever notices may have been lost. A notice may come late, twice
        or never: who depends on it looks for itself from time to time.
        """
