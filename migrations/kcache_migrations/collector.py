"""The one path that deletes on Postgres: a function that its owner's role alone may run the deletes of."""

# ruff: noqa: S608 (the statements are put together from our own names)
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kcache_migrations.guards import COLLECTOR

#: Collectable tables, and the columns of ids by which rows may be deleted.
Columns = Mapping[str, Sequence[str]]

_ROLE = f"""
DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '{COLLECTOR}') THEN
        CREATE ROLE {COLLECTOR} NOLOGIN;
    END IF;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN
        RAISE EXCEPTION 'kcache: the role {COLLECTOR} is missing and % may not create it; '
            'as an administrator, type: CREATE ROLE {COLLECTOR} NOLOGIN; GRANT {COLLECTOR} TO %;',
            current_user, current_user;
END $$
"""

#: Only a member of a role may give it something; a role that has just been made has its maker as one.
_JOIN = f"""
DO $$
BEGIN
    IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        EXECUTE format('GRANT {COLLECTOR} TO %I', current_user);
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        IF NOT pg_has_role(current_user, '{COLLECTOR}', 'MEMBER') THEN RAISE; END IF;
END $$
"""


#: Chunks are also deleted by artifact, those alone whose generation is in quarantine.
QUARANTINED = "quarantined"
_SIGNATURE = "kcache_collect(text, text, bigint[], bigint, bigint, text, bigint, text)"


def _function(columns: Columns) -> str:
    allowed = ", ".join(f"('{table}', '{column}')" for table, by in columns.items() for column in by)
    return f"""
CREATE FUNCTION kcache_collect(target text, named_by text, ids bigint[],
        of_namespace bigint, of_epoch bigint, by_writer text, happened_at bigint, reason text)
    RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE removed bigint;
BEGIN
    IF (target, named_by) NOT IN ({allowed}) THEN
        RAISE EXCEPTION 'kcache: rows of % are not collected by %', target, named_by;
    END IF;
    IF named_by = '{QUARANTINED}' THEN
        DELETE FROM artifact_chunks c USING quarantine q
            WHERE c.artifact_id = ANY (ids) AND q.artifact_id = c.artifact_id AND q.generation = c.generation;
    ELSE
        EXECUTE format('DELETE FROM %I WHERE %I = ANY ($1)', target, named_by) USING ids;
    END IF;
    GET DIAGNOSTICS removed = ROW_COUNT;
    IF removed > 0 THEN
        INSERT INTO audit_events (namespace_id, epoch, at, writer, kind, outcome, origin, actor, peer,
            request_id, target, duration_us, byte_count, saved_us, detail)
        VALUES (of_namespace, of_epoch, happened_at, by_writer, 'collect', 'ok', '', '', '', '', '', 0, 0, 0,
            json_build_object('table', target, 'rows', removed, 'reason', reason)::text);
    END IF;
    RETURN removed;
END $$
"""


def collector_statements(schema: str, columns: Columns) -> Iterator[str]:
    """Statements that make the role and its function, in ``schema`` (quoted)."""
    yield _ROLE
    yield _JOIN
    yield f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {COLLECTOR}"
    for table in columns:
        yield f"GRANT SELECT, DELETE ON {table} TO {COLLECTOR}"
    yield f"GRANT INSERT ON audit_events TO {COLLECTOR}"
    yield f"GRANT USAGE ON SEQUENCE audit_events_id_seq TO {COLLECTOR}"
    yield _function(columns)
    yield f"ALTER FUNCTION {_SIGNATURE} SET search_path = {schema}, pg_temp"
    # It runs with its owner's rights: members of the role may call it, other users of the database may not.
    yield f"REVOKE EXECUTE ON FUNCTION {_SIGNATURE} FROM PUBLIC"
    yield f"ALTER FUNCTION {_SIGNATURE} OWNER TO {COLLECTOR}"
    yield f"REVOKE CREATE ON SCHEMA {schema} FROM {COLLECTOR}"


def collector_removal(columns: Columns) -> Iterator[str]:
    """Statements that take the function away. The role stays: other databases of the server may use it."""
    yield f"DROP FUNCTION {_SIGNATURE}"
    yield f"REVOKE USAGE ON SEQUENCE audit_events_id_seq FROM {COLLECTOR}"
    for table in columns:
        yield f"REVOKE ALL ON {table} FROM {COLLECTOR}"
