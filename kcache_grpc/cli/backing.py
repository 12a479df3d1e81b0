"""``kcache backup`` and ``kcache restore``: copies of a store in a file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kcache_grpc.cli import options as o
from kcache_grpc.cli import output, stores


def backup(
    file: Annotated[Path, typer.Argument(help="Where the copy goes: a new file.")],
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Copy a store on SQLite while its servers write, and check the copy. For Postgres: pg_dump."""
    config = stores.settings(db)
    from kcache_grpc.storage.backup import back_up

    copy = back_up(config.db, file)
    described = {"file": str(file), **asdict(copy), "signing_key": str(config.signing_key)}
    text = (
        f"{file} has {copy.size:,} bytes and {sum(copy.last_keys.values()):,} keys; "
        f"keep the signing key with it: {config.signing_key}"
    )
    output.show(described, json, lambda: text)


def restore(
    file: Annotated[Path, typer.Argument(help="A copy that kcache backup made.")],
    raise_epochs: Annotated[
        bool,
        typer.Option("--raise-epochs", help="Disown all kernels: nobody goes on with what the copy lacks."),
    ] = False,
    json: o.Json = False,
    db: stores.Db = None,
    debug: o.Debug = False,
) -> None:
    """Put a copy, once it is checked, where the store was. Keys given since the backup are given again."""
    config = stores.settings(db)
    from kcache_grpc.storage.backup import restore as put_back

    copy = put_back(file, config.db)
    if raise_epochs:
        with stores.administered(db) as (store, admin):
            for each in store.list_namespaces():
                admin.raise_epoch(each, f"restored from {file.name}")
    described = {"db": config.db, **asdict(copy), "epochs_raised": raise_epochs}
    output.show(described, json, lambda: f"{config.db} holds {sum(copy.last_keys.values()):,} keys again")
