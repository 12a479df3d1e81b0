"""The one path that deletes on Postgres: a function whose deletes only its owner's role may run."""

# ruff: noqa: S608 (the statements are put together from our own names)
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kcache_migrations.immutability_triggers import COLLECTOR

#: Collectable tables, and the columns of ids by which rows may be deleted.
Columns = Mapping[str, Sequence[str]]

#: The message to a role that may not delete rows directly.
_REMEDY = f"""
            'kcache: % may not give the role {COLLECTOR} the function that deletes rows; '
            'as an administrator, run: kcache migrate --db postgresql://ADMINISTRATOR@HOST/% --server-role %',
            current_user, current_database(), current_user"""

_ROLE = f"""
DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '{COLLECTOR}') THEN
        CREATE ROLE {COLLECTOR} NOLOGIN;
    END IF;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN
        RAISE EXCEPTION {_REMEDY};
END $$
"""

#: Only a member of a role may give it something. ``release_statement`` ends the membership.
JOIN = f"""
DO $$
BEGIN
    IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        EXECUTE format('GRANT {COLLECTOR} TO %I', current_user);
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        IF NOT pg_has_role(current_user, '{COLLECTOR}', 'MEMBER') THEN
            RAISE EXCEPTION {_REMEDY};
        END IF;
END $$
"""


#: Chunks are also deleted by artifact, only those whose generation is in quarantine.
QUARANTINED = "quarantined"
SIGNATURE = "kcache_collect(text, text, bigint[], bigint, bigint, text, bigint, text)"


def _function(columns: Columns) -> str:
    """Return the statement that creates ``kcache_collect``.

    It deletes rows of allowed tables by id, inserts the audit event, and returns the number of rows.
    """
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
    yield JOIN
    yield f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {COLLECTOR}"
    for table in columns:
        yield f"GRANT SELECT, DELETE ON {table} TO {COLLECTOR}"
    yield f"GRANT INSERT ON audit_events TO {COLLECTOR}"
    yield f"GRANT USAGE ON SEQUENCE audit_events_id_seq TO {COLLECTOR}"
    yield _function(columns)
    yield f"ALTER FUNCTION {SIGNATURE} SET search_path = {schema}, pg_temp"
    # It runs with its owner's rights: whom that is granted may call it, other users of the database may not.
    yield f"REVOKE EXECUTE ON FUNCTION {SIGNATURE} FROM PUBLIC"
    yield f"ALTER FUNCTION {SIGNATURE} OWNER TO {COLLECTOR}"
    yield f"REVOKE CREATE ON SCHEMA {schema} FROM {COLLECTOR}"


def replacing(statements: Iterator[str]) -> Iterator[str]:
    """The same for a database that has the function: its owner, and who may call it, stay as they are."""
    for statement in statements:
        yield statement.replace(
            "CREATE FUNCTION kcache_collect", "CREATE OR REPLACE FUNCTION kcache_collect", 1
        )


def collector_removal(columns: Columns) -> Iterator[str]:
    """Statements that take the function away. The role stays: other databases of the server may use it."""
    yield f"DROP FUNCTION {SIGNATURE}"
    yield f"REVOKE USAGE ON SEQUENCE audit_events_id_seq FROM {COLLECTOR}"
    for table in columns:
        yield f"REVOKE ALL ON {table} FROM {COLLECTOR}"


#: Whether a role may become the collector: since Postgres 16 a member that may only grant the role may not.
ASSUMES = (
    f"pg_has_role(%s, '{COLLECTOR}', CASE WHEN current_setting('server_version_num')::int >= 160000 "
    "THEN 'SET' ELSE 'MEMBER' END)"
)


def release_statement() -> str:
    """The statement that lets the servers call the function, and takes the role away from its members.

    Servers are those who were members, and the owner of the tables. It fails where the user who migrates
    could still become the collector, or may not call the function: then an administrator is to migrate.
    """
    return f"""
DO $$
DECLARE
    collector oid := (SELECT oid FROM pg_roles WHERE rolname = '{COLLECTOR}');
    since_16 boolean := current_setting('server_version_num')::int >= 160000;
    server regrole;
    given record;
BEGIN
    FOR server IN
        SELECT r.oid::regrole FROM pg_roles r WHERE r.oid <> collector AND (
            r.oid IN (SELECT m.member FROM pg_auth_members m WHERE m.roleid = collector)
            OR r.oid = (SELECT c.relowner FROM pg_class c WHERE c.oid = 'kernels'::regclass))
    LOOP
        BEGIN
            EXECUTE format('GRANT EXECUTE ON FUNCTION {SIGNATURE} TO %s', server);
        EXCEPTION WHEN insufficient_privilege THEN NULL;
        END;
    END LOOP;
    -- A grant that others depend on goes after them.
    FOR round IN 1..3 LOOP
        FOR given IN
            SELECT m.member::regrole AS member, m.grantor::regrole AS grantor
            FROM pg_auth_members m WHERE m.roleid = collector ORDER BY m.grantor DESC
        LOOP
            BEGIN
                EXECUTE format('REVOKE {COLLECTOR} FROM %s', given.member)
                    || CASE WHEN since_16 THEN format(' GRANTED BY %s', given.grantor) ELSE '' END;
            EXCEPTION WHEN insufficient_privilege OR dependent_objects_still_exist OR invalid_grant_operation
                THEN NULL;
            END;
        END LOOP;
    END LOOP;
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        RETURN;
    END IF;
    IF {ASSUMES % "current_user"} THEN
        RAISE EXCEPTION 'kcache: % can become the role {COLLECTOR}, which deletes without an audit event; '
            'as an administrator, run: kcache migrate --db postgresql://ADMINISTRATOR@HOST/% --server-role %',
            current_user, current_database(), current_user;
    END IF;
    IF NOT has_function_privilege(current_user, '{SIGNATURE}', 'EXECUTE') THEN
        RAISE EXCEPTION 'kcache: % may not call the function that deletes rows; '
            'as an administrator, run: kcache migrate --db postgresql://ADMINISTRATOR@HOST/% --server-role %',
            current_user, current_database(), current_user;
    END IF;
END $$
"""
