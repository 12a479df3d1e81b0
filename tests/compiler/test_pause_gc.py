"""The collector of reference cycles is as it was before, whatever ends, and in whichever order."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Generator
from contextlib import suppress

import pytest

from kcache_compiler.pause_gc import gc_paused


@pytest.fixture(autouse=True)
def _collector() -> Generator[None]:
    """Threads take turns as often as they can."""
    running, interval = gc.isenabled(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    (gc.enable if running else gc.disable)()


@gc_paused()
def _compile(turn: int) -> None:
    if turn % 3:
        raise KeyboardInterrupt


def _compile_often() -> None:
    for turn in range(3000):
        with suppress(KeyboardInterrupt):
            _compile(turn)


@pytest.mark.parametrize("running", [True, False])
def test_programs_compiled_side_by_side_leave_the_collector_as_it_was(running: bool) -> None:
    """One that begins as another ends must not keep the pause of the other for its own time and longer."""
    (gc.enable if running else gc.disable)()
    for _ in range(5):
        threads = [threading.Thread(target=_compile_often) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert gc.isenabled() == running


def test_the_collector_is_paused_inside() -> None:
    gc.enable()
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            assert not gc.isenabled()
    assert gc.isenabled()
