"""Whether the server extra is installed, which some commands need."""

from __future__ import annotations

from importlib.util import find_spec

from kcache_grpc.errors import NotFound
from kcache_grpc.server_extra import how_to_install

#: What the server extra brings.
_EXTRA = ("kcache_compiler", "torch_mlir", "llvmlite", "sqlalchemy", "alembic", "grpc_health")


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
