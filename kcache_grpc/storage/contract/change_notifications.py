"""Change notifications: a store reports changes of rows that any process waits for or has cached.

Claims: a process announces work that it does, so that others wait for the result.
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
    """Anything may have changed: changes were not received for a while."""


Change = LeaseChanged | KernelPublished | NamespaceChanged | ClaimEnded | Missed
ChangeListener = Callable[[Change], None]


class Watch(Protocol):
    """A registered listener."""

    def close(self) -> None:
        """Returns once the listener is called no more. Idempotent."""
        ...


class Claim(Protocol):
    """The announcement that one process does something that others may be about to do, too."""

    def release(self) -> None:
        """Gives it back, which ``ClaimEnded`` reports. Idempotent; does nothing where it was lost."""
        ...


class Unclaimed:
    """The claim of a store that coordinates nothing."""

    def release(self) -> None:
        """Nothing was taken."""


class NotifyingStore(ABC):
    """Notifies listeners of changes by any process."""

    def claim(self, name: bytes) -> Claim | None:
        """A claim on what is named (32 bytes); ``None`` while another one has it.

        It ends when it is given back, and with the process or its connection. A hint, which saves work that
        is done once anyhow: a frozen process keeps it, two may have it when a connection was lost, and a
        store may give it to everybody, as this one does.
        """
        del name
        return Unclaimed()

    @abstractmethod
    def watch(self, listener: ChangeListener) -> Watch | None:
        """Calls ``listener`` in its own thread after commits; ``None`` from a store without notifications.

        ``Missed`` comes first, and again whenever notifications may have been lost. One may come late, twice
        or never: who depends on it polls from time to time.
        """
