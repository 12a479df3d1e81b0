"""What a store tells of its own accord: that something changed which others wait for or remember.

And claims, which tell others to wait.
"""

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
class ClaimEnded:
    """Who claimed something gave it back."""

    name: bytes


@dataclass(frozen=True)
class Missed:
    """Anything may have changed: it was not listened for a while."""


Notice = LeaseChanged | KernelPublished | NamespaceChanged | ClaimEnded | Missed
Tell = Callable[[Notice], None]


class Watch(Protocol):
    """Ends the telling."""

    def close(self) -> None:
        """Returns once nothing is told any more. Idempotent."""
        ...


class Claim(Protocol):
    """One process is about to do something that others may be about to do, too."""

    def release(self) -> None:
        """Gives it back, which ``ClaimEnded`` tells. Idempotent; does nothing where it was lost."""
        ...


class Unclaimed:
    """The claim of a store that asks nobody."""

    def release(self) -> None:
        """Nothing was taken."""


class NoticeStore(ABC):
    """Notices of what any process did to the store."""

    def claim(self, name: bytes) -> Claim | None:
        """A claim on what is named (32 bytes); ``None`` while another one has it.

        It ends when it is given back, and with the process or its connection. A hint, which saves work that
        is done once anyhow: a frozen process keeps it, two may have it when a connection was lost, and a
        store may give it to everybody, as this one does.
        """
        del name
        return Unclaimed()

    @abstractmethod
    def watch(self, tell: Tell) -> Watch | None:
        """Calls ``tell`` in a thread of its own, after the commit; ``None`` from a store that tells nothing.

        ``Missed`` comes first, and again whenever notices may have been lost. A notice may come late, twice
        or never: who depends on it looks for itself from time to time.
        """
