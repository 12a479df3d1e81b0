"""What a Postgres database has: tables of kcache or others, their revision, their triggers; and its roles.

The role of the servers cannot delete but by the function.
"""

# ruff: noqa: S608 (the statements are put together from our own names)

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from kcache_grpc.storage.errors import CorruptStore, ForeignDatabase, InvalidValue, UnsupportedStore
from kcache_grpc.storage.schema import IMMUTABLE, METADATA, triggers
from kcache_migrations.collector import ASSUMES, JOIN, SIGNATURE, release_statement

#: Tables that no migration of a server's process writes.
_READ_ONLY = "alembic_version"
#: Tables and views, and functions, that a role owns; identity sequences follow their tables.
_OWNED = """
SELECT format('ALTER TABLE %%I OWNER TO CURRENT_USER', c.relname) FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'v')
    AND c.relowner = (SELECT oid FROM pg_roles WHERE rolname = %(role)s)
UNION ALL SELECT format('ALTER FUNCTION %%s OWNER TO CURRENT_USER', p.oid::regprocedure) FROM pg_proc p
WHERE p.pronamespace = current_schema()::regnamespace
    AND p.proowner = (SELECT oid FROM pg_roles WHERE rolname = %(role)s)
"""
#: Whether a role may become a superuser.
_SUPER = (
    "EXISTS (SELECT 1 FROM pg_roles g WHERE g.rolsuper AND g.oid <> r.oid "
    "AND pg_has_role(r.oid, g.oid, 'MEMBER'))"
)
_ROLE = f"""
SELECT rolsuper OR {_SUPER}, rolcreaterole, rolname = current_user, quote_ident(rolname),
    quote_ident(current_schema()) FROM pg_roles r WHERE rolname = %(role)s
"""
_POWERS = f"""
SELECT rolname, rolsuper OR {_SUPER}, {ASSUMES % "current_user"}, rolcreaterole,
    EXISTS (SELECT 1 FROM pg_class c WHERE c.oid = 'kernels'::regclass AND c.relowner = r.oid)
FROM pg_roles r WHERE rolname = current_user
"""
#: ENABLE ALWAYS, generated identity and MERGE apart, what we use is older; older servers are not tested.
_OLDEST_SERVER = 13
_TABLES = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
#: ``tgenabled`` A: fires always, on replicas and under session_replication_role too.
_TRIGGERS = """
SELECT t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = current_schema()::regnamespace AND NOT t.tgisinternal AND t.tgenabled = 'A'
"""


def grant_to_servers(connection: Connection, role: str) -> None:
    """Let ``role`` serve the store, and no more: it owns nothing of it, and deletes only by the function.

    The connection is that of an administrator, in a transaction. Raises ``InvalidValue`` for a role that is
    not there, or may do more than that: a superuser, one that may create roles, the user who migrates.
    """
    row = connection.exec_driver_sql(_ROLE, {"role": role}).first()
    if row is None:
        raise InvalidValue(f"there is no role {role}; make it: CREATE ROLE {role} LOGIN PASSWORD '...'")
    superuser, creates_roles, myself, quoted, schema = row
    if myself:
        raise InvalidValue(f"the servers' role {role} is the user who migrates: connect as an administrator")
    if superuser or creates_roles:
        power = "is a superuser, or may become one" if superuser else "may create roles"
        raise InvalidValue(f"{role} {power}: nothing keeps it from deleting rows; use a separate role")
    for (statement,) in connection.exec_driver_sql(_OWNED, {"role": role}).all():
        connection.exec_driver_sql(statement.replace("%", "%%"))
    for statement in _grants(schema, quoted):
        connection.exec_driver_sql(statement.replace("%", "%%"))
    if connection.exec_driver_sql(f"SELECT {ASSUMES % '%(role)s'}", {"role": role}).scalar_one():
        raise InvalidValue(
            f"{role} can become the role kcache_collector by another role that it is a member of: "
            "take that membership away"
        )


def _grants(schema: str, role: str) -> Iterator[str]:
    yield f"GRANT USAGE ON SCHEMA {schema} TO {role}"
    # Locks of rows need the right to update them; the triggers reject the update itself.
    yield f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {schema} TO {role}"
    yield f"REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {_READ_ONLY} FROM {role}"
    protected = sorted(set(IMMUTABLE) & set(METADATA.tables))
    yield f"REVOKE DELETE, TRUNCATE, TRIGGER, REFERENCES ON {', '.join(protected)} FROM {role}"
    yield f"GRANT DELETE ON {', '.join(sorted(set(METADATA.tables) - set(IMMUTABLE)))} TO {role}"
    yield f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
    yield JOIN
    yield f"GRANT EXECUTE ON FUNCTION {SIGNATURE} TO {role}"
    yield release_statement()


def deletes_freely(connection: Connection) -> str | None:
    """Why the present user could delete rows without an audit event; ``None`` where it could not."""
    name, superuser, assumes, creates_roles, owns = connection.exec_driver_sql(_POWERS).one()
    reasons = {
        "is a superuser, or may become one": superuser,
        "can become the role kcache_collector": assumes,
        "may create roles": creates_roles,
        "owns the tables": owns,
    }
    return next((f"the user {name} {reason}" for reason, holds in reasons.items() if holds), None)


def reject_unfit(connection: Connection) -> None:
    """Raises ``UnsupportedStore`` for a server or database whose texts or statements are not what we need."""
    major = int(connection.exec_driver_sql("SHOW server_version_num").scalar_one()) // 10_000
    if major < _OLDEST_SERVER:
        raise UnsupportedStore(f"this is PostgreSQL {major}: kcache needs {_OLDEST_SERVER} or later")
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise UnsupportedStore(
            f"the database keeps text as {encoding}: make one with UTF8 (createdb -E UTF8 -T template0 NAME)"
        )
    if connection.exec_driver_sql("SELECT current_schema()").scalar_one() is None:
        raise UnsupportedStore("no schema of the search_path exists: make one, or set search_path in the URL")


def revision_of(connection: Connection, url: str) -> str:
    """The schema revision, empty for a database without tables.

    Raises ``ForeignDatabase`` for tables of another application.
    """
    tables = set(connection.exec_driver_sql(_TABLES).scalars())
    if not tables:
        return ""
    if not {"store_meta", "alembic_version", "key_counters"} <= tables:
        some = ", ".join(sorted(tables)[:3])
        raise ForeignDatabase(f"{url} is a database of another application: it has tables ({some}) not ours")
    revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return "" if revision is None else str(revision)


def reject_missing_triggers(connection: Connection) -> None:
    """Raises ``CorruptStore`` when a trigger that keeps rows immutable is gone or disabled."""
    existing = {(name, table) for name, table in connection.exec_driver_sql(_TRIGGERS)}
    missing = sorted(name for name, _ in triggers("postgresql") - existing)
    if missing:
        raise CorruptStore(f"the store has lost the triggers that protect its rows: {', '.join(missing)}")
