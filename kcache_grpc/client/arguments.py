"""Arguments that later versions give a meaning."""

from __future__ import annotations

from kcache_grpc.errors import ArgumentError


def require_this_version(layouts: object, symbols: object, dynamic: object) -> None:
    """Raises ``ArgumentError`` for anything but the documented defaults."""
    if layouts is None and symbols is None and dynamic is False:
        return
    given = {"layouts": (layouts, None), "symbols": (symbols, None), "dynamic": (dynamic, False)}
    for name, (value, default) in given.items():
        if value is not default:
            raise ArgumentError(
                f"{name}={value!r} is not in this version of kcache, which takes {name}={default} only",
                argument=name,
            )
