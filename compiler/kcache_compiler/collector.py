"""The collector of reference cycles, while a program is compiled."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Generator[None]:
    """Pause the collector of reference cycles, which would look through a growing graph again and again,
    for nothing. Threads may overlap: whoever pauses it lets it go on.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
