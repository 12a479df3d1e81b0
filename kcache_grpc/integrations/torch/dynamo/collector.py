"""Pausing of Python's garbage collector while a graph is traced and compiled."""

from __future__ import annotations

import functools
import gc
import inspect
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


def is_wrapper_of(function: Any, backend: Callable[..., Any]) -> bool:
    """Whether a function with which Dynamo compiles graphs is ``backend``, or calls it."""
    while function is not None and function is not backend:
        following = getattr(function, "_torchdynamo_orig_backend", None)
        function = following if following is not None else getattr(function, "compiler_fn", None)
    return function is backend


class _Depth(threading.local):
    """How many contexts of ``collector_paused`` the thread is in."""

    value = 0


class _Pauses:
    """Whether pauses disabled the collector, and have yet to enable it: all threads of a process share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._disabled = False

    def begin(self) -> None:
        with self._lock:
            if gc.isenabled():
                self._disabled = True
                gc.disable()

    def end(self) -> None:
        """Enable the collector, even if other threads pause it: one always might.

        The ends of their pauses then leave it alone, as the program may have disabled it meanwhile.
        """
        with self._lock:
            if self._disabled:
                self._disabled = False
                gc.enable()

    def after_fork(self) -> None:
        """In a child: threads of the parent that pause the collector, or hold the lock, are not there."""
        self._lock = threading.Lock()
        self.end()


_DEPTH = _Depth()
_PAUSES = _Pauses()
os.register_at_fork(after_in_child=_PAUSES.after_fork)


@contextmanager
def collector_paused() -> Generator[None]:
    """Disable collection of reference cycles: a trace makes many objects, nearly all of which it keeps.

    The collector is enabled again, if it was before, when the first of several threads leaves its outermost
    context.
    """
    if not _DEPTH.value:
        _PAUSES.begin()
    _DEPTH.value += 1
    try:
        yield
    finally:
        _DEPTH.value -= 1
        if not _DEPTH.value:
            _PAUSES.end()


def collect_if_due() -> None:
    """Let an enabled collector do now what it would do in the next allocations.

    A pause puts off collections that are due, and its end does not collect.
    """
    if gc.isenabled():
        # Sets are allocated anew, where lists that were freed are used again and not counted.
        _ = [set[int]() for _ in range(gc.get_threshold()[0] + 1)]


def pause_collector_in_compiles(backend: Callable[..., Any]) -> None:
    """Patch Dynamo to pause the collector while it compiles a frame for ``backend``, guards included.

    Dynamo collects what a compile leaves at its end. Compiles for other backends stay as they are, and so
    does a PyTorch with another private function.
    """
    try:
        frames: Any = import_module("torch._dynamo.convert_frame")
        original = frames._compile
        position = list(inspect.signature(original).parameters).index("compiler_fn")
    except (ImportError, AttributeError, TypeError, ValueError):
        return

    @functools.wraps(original)
    def compile_frame(*args: Any, **kwargs: Any) -> Any:
        compiler = args[position] if len(args) > position else kwargs.get("compiler_fn")
        if not is_wrapper_of(compiler, backend):
            return original(*args, **kwargs)
        with collector_paused():
            return original(*args, **kwargs)

    frames._compile = compile_frame
