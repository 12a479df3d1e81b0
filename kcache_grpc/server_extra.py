"""The server extra, without which nothing is compiled on this machine: what it lacks, how to install it."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from kcache_grpc.errors import NotFound

#: SQLAlchemy 2.1 needs it. The client runs on Python 3.10 too.
OLDEST_PYTHON = (3, 11)

#: What the server extra brings.
_EXTRA = ("kcache_compiler", "torch_mlir", "llvmlite", "sqlalchemy", "alembic", "grpc_health")

_COMMAND = "pip install 'kcache-grpc[server]'"


def how_to_install(python: tuple[int, int] = sys.version_info[:2]) -> str:
    """The end of a message: the command, after the version of Python that it needs if ``python`` is older."""
    if python >= OLDEST_PYTHON:
        return f"run: {_COMMAND}"
    needed, this = (".".join(map(str, version)) for version in (OLDEST_PYTHON, python))
    return f"with Python {needed} or later, which the server needs (this is {this}), run: {_COMMAND}"


def require_extra(command: str) -> None:
    """Raises ``NotFound``, with the install command, if the server extra is incomplete."""
    missing = missing_extra()
    if missing:
        raise NotFound(
            f"kcache {command} needs the server extra, and {', '.join(missing)} is not installed; "
            f"{how_to_install()}"
        )


def missing_extra() -> list[str]:
    """Modules of the server extra that this installation lacks."""
    return [name for name in _EXTRA if find_spec(name) is None]
