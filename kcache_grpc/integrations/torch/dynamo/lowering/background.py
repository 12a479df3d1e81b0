"""Work that goes on in its own thread while PyTorch does the rest of a compile."""

from __future__ import annotations

import contextvars
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class Background(Generic[T]):
    """A function that runs in a daemon thread: what it returned, or the error that it raised.

    The thread never keeps a process from its end. The child of a fork has no such thread: there ``result``
    calls the function again, unless it had returned before the fork.
    """

    def __init__(self, work: Callable[[], T], begun: threading.Event) -> None:
        """``begun``: set by the work where others need not wait for it, and by this class where it ends."""
        self._work: Callable[[], T] | None = work
        self._begun = begun
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._is_orphan = False
        self._value: T | None = None
        self._error: BaseException | None = None
        _LIVE.add(self)
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=lambda: context.run(self._run, BaseException), name="kcache-torch-compile", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the process has no room for another thread
            self._run(Exception)

    def has_begun(self) -> bool:
        """Wait until others need not wait, or the work ends; whether it goes on."""
        self._begun.wait()
        return not self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether ``result`` does not wait."""
        return self._ended.is_set()

    def result(self) -> T:
        """Wait for what the function returns. Raises what it raises. Safe from many threads."""
        with self._lock:
            if self._is_orphan:
                self._run(Exception)
                self._is_orphan = False
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def _run(self, caught: type[BaseException]) -> None:
        assert self._work is not None
        try:
            self._value = self._work()
        except caught as error:
            self._error = error
        self._ended.set()
        self._work = None  # not before: a fork between the two lines may have to call it again
        self._begun.set()

    def after_fork(self) -> None:
        """In a child: the thread is not there, and may have held the locks."""
        ended = self._ended.is_set()
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._is_orphan = not ended
        if ended:
            self._ended.set()


_LIVE: weakref.WeakSet[Background[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for background in list(_LIVE):
        background.after_fork()


os.register_at_fork(after_in_child=_after_fork)
