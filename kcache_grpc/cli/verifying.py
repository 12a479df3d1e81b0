"""``kcache verify``: is what is stored what was stored, and what the compiler makes today?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import exits, output, stores
from kcache_grpc.cli import options as o

if TYPE_CHECKING:
    from kcache_grpc.server import ServerConfig
    from kcache_grpc.service.verify import Compile, Counts, Fault

Found = list[tuple[str, "Fault | Counts"]]


def verify(
    sample: Annotated[int, typer.Option(min=1, help="Kernels, and mappings, of each namespace.")] = 20,
    everything: Annotated[bool, typer.Option("--all", help="All kernels and mappings.")] = False,
    compile: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Compile kernels of this toolchain again.")
    ] = True,
    namespace: stores.Namespaces = None,
    json: o.Json = False,
    db: stores.Db = None,
    state_dir: stores.StateDir = None,
    key_file: stores.KeyFile = None,
    debug: o.Debug = False,
) -> None:
    """Hash bytes, check signatures, compile again and compare. Exits with 1 if anything is wrong.

    Bytes that fail their digest are quarantined; kernels and mappings that are wrong otherwise are removed.
    Both are made anew when they are asked for.
    """
    config = stores.settings(db, state_dir, key_file)
    key = _public_key(config)

    def check(toolchains: frozenset[bytes], recompile: Compile | None) -> Found:
        return _check(db, namespace, key, None if everything else sample, toolchains, recompile)

    found = asyncio.run(_with_compiler(config, check)) if compile else check(frozenset(), None)
    described = _described(found)
    output.show(described, json, lambda: _page(described))
    if key is None:
        output.warn(f"signatures were not checked: there is no key in {config.signing_key}")
    if described["faults"]:
        raise typer.Exit(exits.ERROR)


def _public_key(config: ServerConfig) -> bytes | None:
    """Of the key that is there: this command makes none."""
    from kcache_grpc.model.signing import Signer

    path: Path = config.signing_key
    return Signer.from_file(path).public_key if path.exists() else None


def _check(
    db: str | None,
    namespace: str | None,
    key: bytes | None,
    sample: int | None,
    toolchains: frozenset[bytes],
    recompile: Compile | None,
) -> Found:
    with stores.administered(db) as (store, admin):
        return [
            (each.name, event)
            for each in stores.chosen(store, namespace)
            for event in admin.verify(each, key, sample, toolchains, recompile)
        ]


async def _with_compiler(
    config: ServerConfig, check: Callable[[frozenset[bytes], Compile | None], Found]
) -> Found:
    from kcache_grpc.service.admin import recompiling
    from kcache_grpc.worker import WorkerPool

    pool = WorkerPool(1, settings=config.worker)
    await pool.start()
    try:
        recompile = recompiling(pool, asyncio.get_running_loop(), config.limits.compile_seconds)
        return await asyncio.to_thread(check, pool.toolchains.digests, recompile)
    finally:
        await pool.close()


def _described(found: Found) -> dict[str, Any]:
    from kcache_grpc.service.verify import Counts, Fault

    counts = [
        {
            "namespace": name,
            "kernels": each.kernels,
            "compiled": each.compiled,
            "mappings": each.mappings,
            "blobs": each.blobs,
            "faults": each.faults,
        }
        for name, each in found
        if isinstance(each, Counts)
    ]
    faults = [
        {
            "namespace": name,
            "subject": each.subject,
            "digest": each.digest.hex(),
            "problem": each.problem,
            "action": each.action,
        }
        for name, each in found
        if isinstance(each, Fault)
    ]
    return {"healthy": not faults, "checked": counts, "faults": faults}


def _page(described: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.markup import escape

    lines = [
        escape(f"{each['subject']} {each['digest'][:16]} of {each['namespace']}: {each['problem']}; ")
        + f"[bold]{escape(each['action'])}[/]"
        for each in described["faults"]
    ]
    checked: Any = output.rows(described["checked"]) if described["checked"] else "there is nothing to check"
    return Group(checked, *lines)
