"""TCP ports for servers that must know theirs before they listen, or come back to it."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import socket
from collections.abc import Iterator

#: Below what the system hands out to port 0 and to outgoing connections, which nobody could hold free.
_PORTS = range(15_000, 32_000)
#: Processes that run tests side by side have ports of their own.
_SHARES = 16


def free_port() -> int:
    """A port that nobody listens on, and that this process was not given before: it may be bound later."""
    while True:
        port = next(_own())
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port


@functools.cache
def _own() -> Iterator[int]:
    """The ports of this process, in any order."""
    share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SHARES
    ports = list(_PORTS[share::_SHARES])
    random.SystemRandom().shuffle(ports)
    return itertools.cycle(ports)
