"""TCP ports for servers that must know theirs before they listen, or come back to it."""

from __future__ import annotations

import contextlib
import random
import socket

#: Below what the system hands out to port 0 and to outgoing connections, which nobody could hold free.
_PORTS = range(15_000, 32_000)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
