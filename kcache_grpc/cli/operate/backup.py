"""``kcache backup`` and ``kcache restore``: copies of a store in a file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcache_grpc.cli import exit_codes, output
from kcache_grpc.cli import options as o
from kcache_grpc.cli.operate import stores
from kcache_grpc.errors import ArgumentError, IntegrityError

if TYPE_CHECKING:
    from kcache_grpc.server import ServerConfig
    from kcache_grpc.service.lifecycle.copy_check import Examined

_DAMAGED = ("refuse", "leave-out", "load")
#: Faults that an error names; all of them are in what is printed before it.
_MOST_NAMED = 5


def backup(
    file: Annotated[Path, typer.Argument(help="Where the copy goes: a new file.")],
    json: o.Json = False,
    db: stores.Db = None,
    state_dir: stores.StateDir = None,
    key_file: stores.KeyFile = None,
    debug: o.Debug = False,
) -> None:
    """Copy a store on SQLite while its servers write, and check the copy. For Postgres: pg_dump.

    Every digest and signature is checked. What is damaged in the store is damaged in the copy: it is named,
    and the exit status is 1.
    """
    config = stores.settings(db, state_dir, key_file)
    from kcache_grpc.storage.backup import back_up

    examined: list[Examined] = []
    public_key, key_id = _signing_key(config)
    copy = back_up(
        config.db, file, lambda path: examined.append(_examine(path, config, public_key, leave_out=False))
    )
    key_file_in_use, advice = _kept_key(config, key_id)
    faults = _described(examined[0])
    described = {"file": str(file), **asdict(copy), "signing_key": key_file_in_use, "faults": faults}
    spec_keys = output.count(sum(copy.last_keys.values()), "key")
    text = f"{file} has {output.count(copy.size, 'byte')} and {spec_keys}"
    output.show(described, json, lambda: "\n".join([f"{text}; {advice}", *map(_line, faults)]))
    if not examined[0].signatures:
        output.warn("signatures were not checked: name the signing key with --key-file")
    if faults:
        output.warn(
            f"the store is damaged, and so is {file}: run kcache verify --all --apply, and make another copy "
            "(kcache restore --damaged leave-out restores this one without what is damaged)"
        )
        raise typer.Exit(exit_codes.ERROR)


def restore(
    file: Annotated[Path, typer.Argument(help="A copy that kcache backup made.")],
    raise_epochs: Annotated[
        bool,
        typer.Option("--raise-epochs", help="Disown all kernels: nobody goes on with what the copy lacks."),
    ] = False,
    damaged: Annotated[
        str,
        typer.Option(
            help="What to do with a copy that is damaged: refuse it, leave-out the damaged kernels, mappings "
            "and bytes, or load all of it.",
            autocompletion=lambda: list(_DAMAGED),
        ),
    ] = "refuse",
    dry_run: stores.DryRun = False,
    json: o.Json = False,
    db: stores.Db = None,
    state_dir: stores.StateDir = None,
    key_file: stores.KeyFile = None,
    debug: o.Debug = False,
) -> None:
    """Put a copy, once it is checked, where the store was. Keys given since the backup are given again.

    Every digest and signature is checked. A copy with anything damaged is rejected unless --damaged says
    otherwise; what is damaged is named, and the exit status is not 0.
    """
    if damaged not in _DAMAGED:
        raise ArgumentError(f"--damaged is {damaged!r}; use one of {', '.join(_DAMAGED)}")
    config = stores.settings(db, state_dir, key_file)
    from kcache_grpc.storage.backup import restore as put_back
    from kcache_grpc.storage.opening import require_directory

    require_directory(config.db, config.state_dir)
    public_key, _ = _signing_key(config)
    examined: list[Examined] = []

    def examine(path: Path) -> None:
        examination = _examine(path, config, public_key, leave_out=damaged == "leave-out")
        examined.append(examination)
        if not examination.signatures and damaged != "load":
            raise ArgumentError(
                "the signatures of the copy cannot be checked without the signing key; "
                "name it with --key-file"
            )
        if examination.faults and damaged == "refuse":
            output.show(
                {"restored": False, "faults": _described(examination)}, json, lambda: _page(examination)
            )
            raise _rejected(file, examination)

    copy = put_back(file, config.db, examine, dry_run=dry_run)
    if raise_epochs and not dry_run:
        with stores.administered(db) as (store, admin):
            for each in store.list_namespaces():
                admin.raise_epoch(each, f"restored from {file.name}")
    faults = _described(examined[0])
    described = {
        "restored": not dry_run,
        "dry_run": dry_run,
        "db": config.db,
        **asdict(copy),
        "epochs_raised": raise_epochs and not dry_run,
        "faults": faults,
    }
    spec_keys = output.count(sum(copy.last_keys.values()), "key")
    text = f"{config.db} would hold {spec_keys}" if dry_run else f"{config.db} holds {spec_keys} again"
    output.show(described, json, lambda: "\n".join([text, *map(_line, faults)]))
    if faults:
        output.warn(f"{file} is damaged: {output.count(len(faults), 'fault')}")
        raise typer.Exit(exit_codes.ERROR)


def _signing_key(config: ServerConfig) -> tuple[bytes | None, bytes | None]:
    """The public key in the key file that there is, and its id."""
    from kcache_grpc.model.signing import Signer

    path = stores.signing_key(config)
    if path is None:
        return None, None
    signer = Signer.from_file(path)
    return signer.public_key, signer.key_id


def _examine(path: Path, config: ServerConfig, public_key: bytes | None, *, leave_out: bool) -> Examined:
    from kcache_grpc.service.lifecycle.copy_check import examine_copy

    return examine_copy(path, config.objects, public_key, leave_out=leave_out)


def _kept_key(config: ServerConfig, key_id: bytes | None) -> tuple[str | None, str]:
    """The key file that signs what the store holds, if it is known here, and what to do with it."""
    from kcache_grpc.storage import open_store

    with open_store(config.db, objects=config.objects) as store:
        signer = store.find_signer()
    if signer is None:
        return None, "no server has signed anything in it yet"
    if signer == key_id:
        return str(config.signing_key), f"keep the signing key with it: {config.signing_key}"
    return None, (
        f"keep with it the key file that its servers use (kcache serve --key-file), of key {signer.hex()}: "
        f"{config.signing_key} is not that; --key-file names it"
    )


def _rejected(file: Path, examined: Examined) -> IntegrityError:
    named = [f"{fault.subject} {fault.digest.hex()[:16]} ({fault.problem})" for _, fault in examined.faults]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return IntegrityError(
        f"{file} is damaged: {'; '.join(named[:_MOST_NAMED])}{more}; nothing was restored. "
        "Use another copy, or --damaged leave-out to restore the rest of it"
    )


def _described(examined: Examined) -> list[dict[str, Any]]:
    return [
        {
            "namespace": name,
            "subject": fault.subject,
            "digest": fault.digest.hex(),
            "problem": fault.problem,
            "action": fault.action,
        }
        for name, fault in examined.faults
    ]


def _page(examined: Examined) -> str:
    return "\n".join(map(_line, _described(examined)))


def _line(fault: dict[str, Any]) -> str:
    of = f" of {fault['namespace']}" if fault["namespace"] else ""
    return f"{fault['subject']} {fault['digest'][:16]}{of}: {fault['problem']}; {fault['action']}"
