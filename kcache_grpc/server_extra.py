"""How to install the server extra, without which nothing is compiled on this machine."""

from __future__ import annotations

import sys

#: SQLAlchemy 2.1 needs it. The client runs on Python 3.10 too.
OLDEST_PYTHON = (3, 11)

_COMMAND = "pip install 'kcache-grpc[server]'"


def how_to_install(python: tuple[int, int] = sys.version_info[:2]) -> str:
    """The end of a message: the command, after the version of Python that it needs if ``python`` is older."""
    if python >= OLDEST_PYTHON:
        return f"run: {_COMMAND}"
    needed, this = (".".join(map(str, version)) for version in (OLDEST_PYTHON, python))
    return f"with Python {needed} or later, which the server needs (this is {this}), run: {_COMMAND}"
