"""``kcache verify``: is what is stored what was stored, and what the compiler makes today?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import exit_codes, output
from kcache_grpc.cli import options as o
from kcache_grpc.cli.operate import stores
from kcache_grpc.errors import ArgumentError, PermissionDenied

if TYPE_CHECKING:
    from kcache_grpc.server import ServerConfig
    from kcache_grpc.service.lifecycle.verify import Compile, Counts, Fault
    from kcache_grpc.storage import Store

Found = list[tuple[str, "Fault | Counts"]]


def verify(
    sample: Annotated[int, typer.Option(min=1, help="Kernels, and mappings, of each namespace.")] = 20,
    everything: Annotated[bool, typer.Option("--all", help="All kernels and mappings.")] = False,
    compile: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Compile kernels of this toolchain again.")
    ] = True,
    namespace: stores.Namespaces = None,
    dry_run: stores.Apply = True,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="With --apply: also where more than 1 % of what was checked is wrong."),
    ] = False,
    json: o.Json = False,
    db: stores.Db = None,
    state_dir: stores.StateDir = None,
    key_file: stores.KeyFile = None,
    debug: o.Debug = False,
) -> None:
    """Hash bytes, check signatures, compile again and compare. Exits with 1 if anything is wrong.

    Changes nothing without --apply. With it, once a namespace is checked, bytes that fail their digest and
    kernels and mappings that are wrong otherwise go into quarantine (kcache quarantine list). They are made
    anew when they are asked for. It needs the signing key of the store's servers: another key is rejected.
    """
    if yes and dry_run:
        raise ArgumentError("--yes is for --apply: a dry run changes nothing")
    config = stores.settings(db, state_dir, key_file)
    key = _public_key(config)
    if key is None and not dry_run:
        raise ArgumentError(f"--apply needs the signing key of the store's servers: {_no_key(config)}")

    def check(toolchains: frozenset[bytes], recompile: Compile | None) -> Found:
        with stores.administered(db) as (store, admin):
            _reject_other_key(store, key, config)
            return [
                (each.name, event)
                for each in stores.chosen(store, namespace)
                for event in admin.verify(
                    each,
                    key,
                    None if everything else sample,
                    toolchains,
                    recompile,
                    repair=not dry_run,
                    confirmed=yes,
                )
            ]

    import asyncio

    findings = asyncio.run(_with_compiler(config, check)) if compile else check(frozenset(), None)
    described = _described(findings, dry_run)
    output.show(described, json, lambda: _page(described))
    if key is None:
        output.warn(f"signatures were not checked: {_no_key(config)}")
    if withheld := [each["namespace"] for each in described["checked"] if each["withheld"]]:
        output.warn(
            f"nothing was changed in {', '.join(withheld)}: more than 1 % of what was checked is wrong "
            "there; look for a cause outside the store first, then repeat the command with --yes"
        )
    if described["faults"]:
        stores.say_how_to_apply(dry_run)
        raise typer.Exit(exit_codes.ERROR)


def _public_key(config: ServerConfig) -> bytes | None:
    """Of the key that is there: this command makes none."""
    from kcache_grpc.model.signing import Signer

    path = stores.signing_key(config)
    return None if path is None else Signer.from_file(path).public_key


def _no_key(config: ServerConfig) -> str:
    """Why there is no key, and what to do."""
    why = "no key file is named" if config.default_key else f"there is no key in {config.signing_key}"
    return f"{why}; name it with --key-file"


def _reject_other_key(store: Store, key: bytes | None, config: ServerConfig) -> None:
    """Raises ``PermissionDenied``, as ``kcache serve`` does."""
    from kcache_grpc.model.signing import key_id_of

    signer = store.find_signer()
    if key is not None and signer is not None and signer != key_id_of(key):
        raise PermissionDenied(
            f"the store was signed by key {signer.hex()}, not by {key_id_of(key).hex()} in "
            f"{config.signing_key}: name the key file of the store's servers with --key-file; nothing was "
            "checked or changed",
            stored=signer.hex(),
        )


async def _with_compiler(
    config: ServerConfig, check: Callable[[frozenset[bytes], Compile | None], Found]
) -> Found:
    import asyncio

    from kcache_grpc.service.admin.running_service import recompiling
    from kcache_grpc.worker import WorkerPool

    pool = WorkerPool(1, settings=config.worker)
    await pool.start()
    try:
        recompile = recompiling(pool, asyncio.get_running_loop(), config.limits.compile_seconds)
        return await asyncio.to_thread(check, pool.toolchains.digests, recompile)
    finally:
        await pool.close()


def _described(findings: Found, dry_run: bool) -> dict[str, Any]:
    """Return the JSON value of findings: counts by namespace, and faults."""
    from kcache_grpc.service.lifecycle.verify import Counts, Fault

    counts = [
        {
            "namespace": name,
            "kernels": each.kernels,
            "compiled": each.compiled,
            "mappings": each.mappings,
            "blobs": each.blobs,
            "faults": each.faults,
            "repaired": each.repaired,
            "withheld": each.withheld,
        }
        for name, each in findings
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
        for name, each in findings
        if isinstance(each, Fault)
    ]
    return {"healthy": not faults, "dry_run": dry_run, "checked": counts, "faults": faults}


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
