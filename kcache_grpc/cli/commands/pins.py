"""``kcache pins servers`` and ``kcache pins forget``: the identities that servers had at first contact."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kcache_grpc.cli import options as o
from kcache_grpc.cli import output
from kcache_grpc.cli.operate.lifecycle import pins
from kcache_grpc.errors import ArgumentError, NotFound

if TYPE_CHECKING:
    from kcache_grpc.client.trust.pins import Pins

Address = Annotated[str, typer.Argument(help="host:port or unix:/path, as an error or pins servers has it.")]


def servers(json: o.Json = False, cache_dir: o.CacheDir = None, debug: o.Debug = False) -> None:
    """Show which identity is pinned at which address: clients reject another one there."""
    kept = _pins(cache_dir)
    rows = [
        {
            "address": pin.address,
            "server_id": pin.server_id,
            "pinned": pin.moment,
            "file": str(pin.path),
        }
        for pin in kept.all()
    ]
    output.show(rows, json, lambda: output.rows(rows) if rows else "no server is pinned")


def forget(
    address: Address, json: o.Json = False, cache_dir: o.CacheDir = None, debug: o.Debug = False
) -> None:
    """Forget the identity of a server that was set up anew: the next one that answers there is pinned.

    Do so only where you know why the identity changed: whoever has that address can send you native code.
    """
    from kcache_grpc.client.address import parse_endpoint

    kept = _pins(cache_dir)
    targets = [address]
    with contextlib.suppress(ArgumentError):  # it may be gRPC's name of an address, as errors have it
        targets.append(parse_endpoint(address).target)
    path = next((path for target in targets if (path := kept.forget(target)) is not None), None)
    if path is None:
        raise NotFound(
            f"no server is pinned at {address}; kcache pins servers lists what is", address=address
        )
    output.show(
        {"address": address, "forgotten": str(path)}, json, lambda: f"{address} is no longer pinned ({path})"
    )


def application() -> typer.Typer:
    """``kcache pins`` and its commands."""
    app = typer.Typer()
    app.callback(invoke_without_command=True)(pins)
    app.command("servers")(servers)
    app.command("forget")(forget)
    return app


def _pins(cache_dir: Path | None) -> Pins:
    from kcache_grpc.client.config import from_environment
    from kcache_grpc.client.trust.pins import Pins

    return Pins(from_environment(cache_dir=cache_dir).cache_dir / "pins")
