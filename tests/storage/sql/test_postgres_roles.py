"""Deletion on Postgres: the servers' role deletes by the function that writes the event, or not at all."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import psycopg
import pytest
from alembic import command
from psycopg.errors import InsufficientPrivilege

from kcache_grpc.storage import migrate, open_store
from kcache_grpc.storage.contract.lifecycle import RowKind, Step
from kcache_grpc.storage.errors import InvalidValue, StorageError
from kcache_grpc.storage.examination import examine
from tests.postgres import PostgresServer
from tests.storage.drafts import graph, kernel, sha256
from tests.storage.sql.test_postgres import _run

pytestmark = pytest.mark.issue(number=19, point=7)

#: RowKind the server's role could do before: become the role that deletes.
ATTACK = "SET LOCAL ROLE kcache_collector; DELETE FROM kernel_ingredients; DELETE FROM kernel_artifacts"


@pytest.fixture
def role(postgres_server: PostgresServer) -> Iterator[str]:
    """A role that may log in, and owns nothing outside of ``database``."""
    name = f"server_{secrets.token_hex(4)}"
    postgres_server.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    postgres_server.execute(f"DROP ROLE {name}")


@pytest.fixture
def database(postgres_server: PostgresServer, role: str) -> Iterator[str]:
    """An empty database of that role."""
    name = f"of_{role}"
    postgres_server.execute(f"CREATE DATABASE {name} OWNER {role}")
    yield name
    postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def kinds(url: str) -> list[str]:
    with open_store(url) as store:
        (ns,) = store.list_namespaces()
        return [record.event.kind for record in store.list_audit(ns)]


def publish(url: str) -> None:
    with open_store(url) as store:
        ns = store.get_or_create_namespace("default")
        for number in range(2):
            store.put_graph(ns, graph(number, [b"weights"]))
            store.publish_kernel(ns, kernel(number))


def collect(url: str) -> int:
    """Idle kernels, in a step of a collection."""
    with open_store(url) as store:
        (ns,) = store.list_namespaces()
        return store.collect(ns, Step(RowKind.IDLE_KERNELS, before=2**62)).rows


def assert_guarded(url: str) -> None:
    """No statement of this user deletes rows, but the function, which writes its event."""
    publish(url)
    statements = (
        ATTACK,
        "SET ROLE kcache_collector",
        "SET SESSION AUTHORIZATION kcache_collector",
        "GRANT kcache_collector TO CURRENT_USER",
        "DELETE FROM kernels",
        "DELETE FROM audit_events",
        "TRUNCATE kernels CASCADE",
        "ALTER TABLE kernels DISABLE TRIGGER ALL",
        "DROP TRIGGER kernels_refuse_delete ON kernels",
        "SET session_replication_role = replica",
        "CREATE OR REPLACE FUNCTION kcache_refuse() RETURNS trigger LANGUAGE plpgsql "
        "AS 'BEGIN RETURN OLD; END'",
        "ALTER FUNCTION kcache_collect(text, text, bigint[], bigint, bigint, text, bigint, text) "
        "SECURITY INVOKER",
        "UPDATE alembic_version SET version_num = '0001'",
    )
    for statement in statements:
        with psycopg.connect(url) as connection, pytest.raises(InsufficientPrivilege):
            connection.execute(statement.encode())
    assert "collect" not in kinds(url)
    assert collect(url) == 2
    assert kinds(url).count("collect") >= 1
    publish(url)


def test_the_role_of_the_servers_deletes_by_the_function_alone(
    postgres_server: PostgresServer, role: str, database: str
) -> None:
    migrate(postgres_server.url(database), server_role=role)
    url = postgres_server.url(database, role)
    assert_guarded(url)
    (finding,) = [each for each in examine(url) if each.name == "roles"]
    assert finding.state == "ok"
    # Once more changes nothing: the migration runs before every new version of the servers.
    migrate(postgres_server.url(database), server_role=role)
    assert collect(url) == 2


def test_the_membership_of_an_older_store_ends(
    postgres_server: PostgresServer, role: str, database: str
) -> None:
    url = postgres_server.url(database, role)
    _at_revision_0004(postgres_server, role, url)
    with psycopg.connect(url) as connection:
        # It succeeds, and leaves no event.
        connection.execute("INSERT INTO namespaces (name, epoch, created_at) VALUES ('n', 1, 0)")
        connection.execute(ATTACK.encode())
        connection.rollback()
    with pytest.raises(StorageError, match=f"kcache migrate --db .*/{database} --server-role {role}"):
        migrate(url)
    migrate(postgres_server.url(database), server_role=role)
    assert_guarded(url)
    with open_store(url) as store:
        ns = store.get_or_create_namespace("default")
        assert store.read_artifact(ns, sha256(b"weights")) == b"weights"


def test_an_administrator_ends_it_also_without_naming_the_role(
    postgres_server: PostgresServer, role: str, database: str
) -> None:
    url = postgres_server.url(database, role)
    _at_revision_0004(postgres_server, role, url)
    migrate(postgres_server.url(database))
    with psycopg.connect(url) as connection, pytest.raises(InsufficientPrivilege):
        connection.execute(ATTACK.encode())
    publish(url)
    assert collect(url) == 2
    # The role owns the tables still, and with them the triggers: a doctor says so.
    (finding,) = [each for each in examine(url) if each.name == "roles"]
    assert (finding.state, "owns the tables" in finding.detail) == ("warning", True)
    assert "--server-role" in finding.advice


def test_a_role_that_makes_roles_leaves_the_one_that_it_made(
    postgres_server: PostgresServer, role: str, database: str
) -> None:
    """As its maker has it: it may grant the role, and is not a member."""
    postgres_server.execute(_MAKE_COLLECTOR)
    postgres_server.execute(
        f"GRANT kcache_collector TO {role} WITH ADMIN OPTION, INHERIT FALSE, SET FALSE; "
        f"ALTER ROLE {role} CREATEROLE"
    )
    url = postgres_server.url(database, role)
    migrate(url)
    publish(url)
    with psycopg.connect(url) as connection, pytest.raises(InsufficientPrivilege):
        connection.execute(ATTACK.encode())
    assert collect(url) == 2
    (finding,) = [each for each in examine(url) if each.name == "roles"]
    assert "may create roles" in finding.detail


def test_a_role_that_may_do_more_does_not_serve(
    postgres_server: PostgresServer, role: str, database: str
) -> None:
    admin = postgres_server.url(database)
    for name, message in (
        ("nobody_there", "no role"),
        ("kcache", "user who migrates"),
        (role, "superuser"),
        (role, "may create roles"),
        (role, "may become one"),
    ):
        if message == "superuser":
            postgres_server.execute(f"ALTER ROLE {role} SUPERUSER")
        elif message == "may create roles":
            postgres_server.execute(f"ALTER ROLE {role} NOSUPERUSER CREATEROLE")
        elif message == "may become one":
            postgres_server.execute(
                f"ALTER ROLE {role} NOCREATEROLE; CREATE ROLE group_{role} SUPERUSER; "
                f"GRANT group_{role} TO {role}"
            )
        with pytest.raises(InvalidValue, match=message):
            migrate(admin, server_role=name)
    postgres_server.execute(f"DROP ROLE group_{role}")
    with pytest.raises(InvalidValue, match="Postgres"):
        migrate("sqlite:////nowhere/store.sqlite", server_role=role)


_MAKE_COLLECTOR = (
    "DO $$ BEGIN CREATE ROLE kcache_collector NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
)


def _at_revision_0004(server: PostgresServer, role: str, url: str) -> None:
    """A store whose server is a member of the role that deletes, as deployment.md had it."""
    server.execute(_MAKE_COLLECTOR)
    server.execute(f"GRANT kcache_collector TO {role}")
    _run(url, lambda config: command.upgrade(config, "0004"))
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO store_meta VALUES ('store_id', %s)", (secrets.token_hex(16),))
