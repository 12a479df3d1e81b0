"""The object store of a database: which one it is, and what becomes of objects without rows."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, or_, select, union, update

from kcache_grpc.storage.clock import Clock
from kcache_grpc.storage.errors import InvalidValue, ObjectStoreMismatch, StoreUnavailable
from kcache_grpc.storage.objects import ObjectStat, ObjectStore
from kcache_grpc.storage.objects.client import Owner
from kcache_grpc.storage.objects.placing import PUBLISH_WITHIN, is_name
from kcache_grpc.storage.records import Swept
from kcache_grpc.storage.schema import artifact_chunks, dead_objects, store_meta
from kcache_grpc.storage.sql.engine.bulk import insert_once
from kcache_grpc.storage.sql.engine.database import Database

#: Dead objects that are looked at in one step.
_PAGE = 200
#: Least grace of a sweep, in microseconds: six times as long as a publisher may take.
LEAST_GRACE = 6 * PUBLISH_WITHIN

_ID, _URL = "objects_id", "objects_url"
_META = select(store_meta.c.value).where(store_meta.c.name == bindparam("name"))
#: Waits for those who change it, and they for us; others may read it too.
_SHARED_META = _META.with_for_update(read=True)
_LOCKED_META = _META.with_for_update()
_INSERT_META = insert_once(store_meta)
_UPDATE_META = update(store_meta).where(store_meta.c.name == bindparam("which"))
_POINTING = select(artifact_chunks.c.location).where(artifact_chunks.c.location.is_not(None)).limit(1)

_NAMED = union(
    select(artifact_chunks.c.location).where(
        artifact_chunks.c.location.in_(bindparam("names", expanding=True)),
        artifact_chunks.c.location.is_not(None),
    ),
    select(dead_objects.c.location).where(dead_objects.c.location.in_(bindparam("names", expanding=True))),
)
_ALIVE = (
    select(artifact_chunks.c.location)
    .where(
        artifact_chunks.c.location.in_(bindparam("names", expanding=True)),
        artifact_chunks.c.location.is_not(None),
    )
    .distinct()
)
_DEAD = (
    select(dead_objects.c.location, dead_objects.c.dead_at)
    .where(
        dead_objects.c.dead_at < bindparam("before"),
        or_(
            dead_objects.c.dead_at > bindparam("at"),
            (dead_objects.c.dead_at == bindparam("at")) & (dead_objects.c.location > bindparam("name")),
        ),
    )
    .order_by(dead_objects.c.dead_at, dead_objects.c.location)
    .limit(bindparam("most"))
)
_FORGET = delete(dead_objects).where(dead_objects.c.location.in_(bindparam("names", expanding=True)))


def attach(database: Database, store_id: str, objects: ObjectStore | None) -> None:
    """Tie ``objects`` to the database, or make sure that they are tied already.

    Raises ``ObjectStoreMismatch`` when rows point to another object store than the one given, or when the
    one given holds what another database points to.
    """
    if objects is None:
        if _points(database):
            raise _other(database, "none is given")
        return
    owner = objects.owner()
    if owner is None:
        if _points(database):
            raise _other(database, f"{objects.url} holds nothing of it")
        owner = objects.claim(Owner(store_id, secrets.token_hex(16)))
    if owner.store_id != store_id:
        raise ObjectStoreMismatch(
            f"{objects.url} belongs to another store ({owner.store_id}); give each store a prefix of its own"
        )
    if not database.transact(lambda connection: _bind(connection, owner, objects.url)):
        raise _other(database, f"{objects.url} is another")
    objects.bind(owner)


def _points(database: Database) -> bool:
    """Whether a row says that its bytes are in an object."""
    return bool(database.fetch(_POINTING))


def _other(database: Database, reason: str) -> ObjectStoreMismatch:
    rows = database.fetch(_META, {"name": _URL})
    url = rows[0].value if rows else "a place that is not recorded"
    return ObjectStoreMismatch(
        f"the store keeps bytes in an object store at {url}, and {reason}; start with --objects {url}, or "
        "set KCACHE_OBJECTS",
        objects=url,
    )


def _bind(connection: Connection, owner: Owner, url: str) -> bool:
    """Record the object store; false when rows point to another one."""
    for name, value in ((_ID, owner.objects_id), (_URL, url)):
        connection.execute(_INSERT_META, {"name": name, "value": value})
    recorded = connection.execute(_LOCKED_META, {"name": _ID}).scalar_one()
    if recorded != owner.objects_id:
        if connection.execute(_POINTING).first() is not None:
            return False
        connection.execute(_UPDATE_META, {"which": _ID, "value": owner.objects_id})
    if connection.execute(_META, {"name": _URL}).scalar_one() != url:
        connection.execute(_UPDATE_META, {"which": _URL, "value": url})
    return True


def require_bound(connection: Connection, objects_id: str) -> None:
    """Raises ``StoreUnavailable`` in a transaction that would point rows to an object store of the past."""
    if connection.execute(_SHARED_META, {"name": _ID}).scalar() != objects_id:
        raise StoreUnavailable("the store was given another object store meanwhile; restart this server")


def sweep(
    database: Database, clock: Clock, objects: ObjectStore, grace: float, dry_run: bool, now: int | None
) -> Swept:
    """Delete objects that no row has named for ``grace`` seconds. ``now``: by the object store's clock.

    Every name is used once, and a publisher commits within ``PUBLISH_WITHIN`` of its put or not at all: an
    object of that age without a row never gets one. The rows are asked in a transaction that waits for
    those who write.
    """
    grace_microseconds = int(grace * 1_000_000)
    if grace_microseconds < LEAST_GRACE:
        raise InvalidValue(f"the grace of objects is at least {LEAST_GRACE // 1_000_000} s, not {grace:g}")
    objects.check()
    before = (objects.now() if now is None else now) - grace_microseconds
    swept = _sweep_dead(database, objects, before, clock.wall() - grace_microseconds, dry_run)
    return swept + _sweep_orphans(database, objects, before, dry_run)


def _sweep_dead(
    database: Database, objects: ObjectStore, before: int, dead_before: int, dry_run: bool
) -> Swept:
    total = Swept()
    place: dict[str, Any] = {"at": -1, "name": ""}
    while rows := database.fetch(_DEAD, {**place, "before": dead_before, "most": _PAGE}):
        place = {"at": rows[-1].dead_at, "name": rows[-1].location}
        names = [row.location for row in rows]
        alive = _names(database, _ALIVE, names)
        stats = {name: objects.stat(name) for name in names if name not in alive and is_name(name)}
        old = [each for each in stats.values() if each is not None and each.modified < before]
        young = sum(each is not None and each.modified >= before for each in stats.values())
        total += Swept(len(old), sum(each.size for each in old), waiting=young)
        if not dry_run:
            _delete(objects, old)
            waiting = {each.name for each in stats.values() if each is not None and each.modified >= before}
            done = [name for name in names if name not in waiting]
            database.transact(lambda connection, done=done: connection.execute(_FORGET, {"names": done}))
    return total


def _sweep_orphans(database: Database, objects: ObjectStore, before: int, dry_run: bool) -> Swept:
    """What failed publishes left behind. Names that are not ours are left alone."""
    parts = objects.unfinished(before)
    total = Swept(len(parts), sum(part.size for part in parts))
    for part in () if dry_run else parts:
        objects.remove_unfinished(part)
    for page in objects.pages():
        old = [each for each in page if each.modified < before and is_name(each.name)]
        named = _names(database, _NAMED, [each.name for each in old]) if old else set[str]()
        orphans = [each for each in old if each.name not in named]
        total += Swept(len(orphans), sum(each.size for each in orphans))
        if not dry_run:
            _delete(objects, orphans)
    return total


def _names(database: Database, statement: Any, names: Sequence[str]) -> set[str]:
    """Which of these names rows have, once those who write now have finished."""
    return set(
        database.transact(lambda connection: connection.execute(statement, {"names": names}).scalars().all())
    )


def _delete(objects: ObjectStore, stats: Sequence[ObjectStat]) -> None:
    for each in stats:
        objects.delete(each.name)
