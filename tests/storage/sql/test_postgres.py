"""What is Postgres's own: its schema, its triggers, its roles, its errors. The contracts run elsewhere."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
import threading
import time as clock
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from psycopg.errors import InsufficientPrivilege, IntegrityConstraintViolation
from sqlalchemy import Select, event, insert, make_url
from sqlalchemy.dialects import postgresql

from kcache_grpc.storage import migrate, migration, open_store
from kcache_grpc.storage.contract.blob_cache import ValueDraft
from kcache_grpc.storage.contract.lifecycle import RowKind, Step
from kcache_grpc.storage.errors import (
    CorruptStore,
    ForeignDatabase,
    SchemaMismatch,
    StorageError,
    StoreUnavailable,
    UnsupportedStore,
)
from kcache_grpc.storage.opening import shown_url
from kcache_grpc.storage.records import AuditEvent, GraphDraft, Lease, SignedBytes
from kcache_grpc.storage.schema import (
    IMMUTABLE,
    METADATA,
    PERMANENT,
    SCHEMA_REVISION,
    audit_days,
    audit_misses,
)
from kcache_grpc.storage.sql.postgres.engine import _LIGHT, postgres_engine
from kcache_grpc.storage.sql.store import SqlStore
from kcache_migrations import LOCATION
from tests.postgres import PostgresServer, database_name, running
from tests.repository.sources import ROOT
from tests.storage.drafts import Time, graph, kernel, mapping, program, sha256, spec
from tests.storage.dump import SCHEMAS, fill, load
from tests.storage.inside import raw
from tests.storage.sql.test_schema import STATEMENTS

SCHEMA = """
SELECT 'column', table_name, column_name, data_type, is_nullable, column_default
FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT 'index', tablename, indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', ''
FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid), tgenabled::text, ''
FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT 'view', viewname, '', definition, '', '' FROM pg_views WHERE schemaname = 'public'
UNION ALL SELECT 'function', proname, '', pg_get_functiondef(oid), proowner::regrole::text, ''
FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""


@pytest.fixture
def empty(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database without tables."""
    url = postgres_server.create()
    yield url
    postgres_server.drop(url)


@pytest.fixture
def url(postgres_url: str) -> str:
    """The URL of an empty store."""
    return postgres_url


def rows(url: str, query: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def schema_of(url: str) -> set[Any]:
    schema = {row for row in rows(url, SCHEMA) if row[1] != "alembic_version"}
    return {tuple(" ".join(str(part).split()) for part in row) for row in schema}


def contents(url: str) -> dict[str, Any]:
    tables = [name for (name,) in rows(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
    return {table: sorted(map(str, rows(url, f"SELECT * FROM {table}"))) for table in sorted(tables)}


class TestSchema:
    def test_alembic_finds_no_difference_between_models_and_migrations(self, url):
        engine = postgres_engine(make_url(url))
        with engine.connect() as connection:
            context = MigrationContext.configure(
                connection, opts={"compare_type": True, "compare_server_default": True}
            )
            assert compare_metadata(context, METADATA) == []
        engine.dispose()

    @pytest.mark.sampled(9)
    @pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.sql")), ids=lambda path: path.stem)
    def test_every_schema_reaches_the_present_one_with_its_data(self, path, url, postgres_server, tmp_path):
        """The rows of the schema's SQLite dump, in the schema that its migrations make on Postgres."""
        load(path.read_text(), tmp_path / "old.sqlite")
        old = postgres_server.create()
        _make(old, path.stem)
        _copy(tmp_path / "old.sqlite", old)
        migrate(old)
        assert schema_of(old) == schema_of(url)
        with open_store(old, clock=Time().clock) as opened:
            ns = opened.find_namespace("default")
            assert ns is not None
            assert opened.count_specs(ns) == 2
            assert opened.put_spec(ns, spec(2)).key == 3
            mapped = opened.find_mapping(ns, program(7), "default")
            assert mapped is not None
            assert mapped.binding == mapping(7, key=2).binding
            assert opened.find_kernel(ns, kernel(1).kernel.kernel_digest) is not None
            assert opened.read_artifact(ns, sha256(b"weights")) == b"weights"
            assert [record.event.kind for record in opened.list_audit(ns)] == ["store", "publish"]
        postgres_server.drop(old)

    def test_a_migration_can_be_taken_back(self, url, postgres_server):
        old = postgres_server.create()
        _make(old, "0002")
        before = schema_of(url)
        _run(url, lambda config: command.downgrade(config, "0002"))
        assert schema_of(url) == schema_of(old)
        migrate(url)
        assert schema_of(url) == before
        postgres_server.drop(old)

    def test_a_migration_that_fails_leaves_the_old_schema_usable(self, empty, monkeypatch):
        _make(empty, "0002")
        before = schema_of(empty)

        def fail(*_: object) -> None:
            raise RuntimeError("killed in the middle")

        with monkeypatch.context() as patch:
            patch.setattr(migration, "_reject_early_end", fail)
            with pytest.raises(RuntimeError):
                migrate(empty)
        assert schema_of(empty) == before
        migrate(empty)
        with open_store(empty) as opened:
            assert opened.list_namespaces() == ()

    @pytest.mark.parametrize("count", [2, pytest.param(10, marks=pytest.mark.long)])
    def test_many_servers_may_start_at_once(self, empty, count):
        line = [sys.executable, "-W", "error", "-m", "tests.storage.racer", "migrate", empty]
        running = [subprocess.Popen(line, cwd=ROOT, stdin=subprocess.PIPE) for _ in range(count)]
        for process in running:
            process.communicate(b"go\n", timeout=240)
        assert [process.returncode for process in running] == [0] * count
        assert len(rows(empty, "SELECT * FROM store_meta WHERE name = 'store_id'")) == 1

    def test_chunks_are_stored_so_that_slices_can_be_read(self, url):
        query = "SELECT attstorage::text FROM pg_attribute WHERE attname = 'content'"
        assert ("e",) in rows(url, f"{query} AND attrelid = 'artifact_chunks'::regclass")

    @pytest.mark.sampled(12)
    @pytest.mark.parametrize(
        "name", sorted(name for name, value in STATEMENTS.items() if isinstance(value, Select))
    )
    def test_statements_find_their_rows_by_an_index(self, shared, name):
        if name in SCANS:
            return
        compiled = str(STATEMENTS[name].compile(dialect=postgresql.dialect(paramstyle="named")))
        sql = re.sub(r"\(__\[POSTCOMPILE_\w+\]\)", "(NULL)", compiled)
        sql = re.sub(r":\w+::", "NULL::", sql)
        sql = re.sub(r"(?<!:):[a-z_]\w*", "NULL", sql)
        with psycopg.connect(shared) as connection:
            connection.execute("SET enable_seqscan = off")
            plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {sql}".encode()))
        assert "Seq Scan" not in plan


#: Small tables, read whole.
SCANS = {"audit.audit._REGISTERED"}


@pytest.fixture(scope="module")
def shared(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_migrated()
    yield url
    postgres_server.drop(url)


def _run(url: str, work: Any) -> None:
    config = Config()
    config.set_main_option("script_location", str(LOCATION))
    engine = postgres_engine(make_url(url))
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("BEGIN")
        config.attributes["connection"] = connection
        work(config)
        connection.exec_driver_sql("COMMIT")
    engine.dispose()


def _make(url: str, revision: str) -> None:
    """The schema as it was, of a store that has an id."""
    _run(url, lambda config: command.upgrade(config, revision))
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO store_meta VALUES ('store_id', %s)", (secrets.token_hex(16),))


def _copy(source: Path, url: str) -> None:
    engine = postgres_engine(make_url(url))
    with raw(source) as reading, engine.connect() as connection:
        # Triggers sum the events that come; what the file says of them comes last, in the place of that.
        for table in sorted(METADATA.sorted_tables, key=lambda table: table in (audit_days, audit_misses)):
            if not reading.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table.name,)).fetchone():
                continue
            if table.name == "store_meta":
                continue
            if table in (audit_days, audit_misses):
                connection.execute(table.delete())
            cursor = reading.execute(f"SELECT * FROM {table.name}")
            names = [column[0] for column in cursor.description]
            for row in cursor:
                connection.execute(insert(table), dict(zip(names, row, strict=True)))
            if "id" in table.columns:
                name = f"{table.name}_id_seq"
                connection.exec_driver_sql(
                    f"SELECT setval('{name}', greatest((SELECT max(id) FROM {table.name}), 1))"
                )
    engine.dispose()


@pytest.fixture(scope="module")
def filled(postgres_server: PostgresServer) -> Iterator[str]:
    """A store with a row in every protected table that ``fill`` reaches, and in the others by hand."""
    url = postgres_server.create_migrated()
    with open_store(url, clock=Time().clock) as store:
        fill(store)
        ns = store.get_or_create_namespace("default")
        store.add_alias(ns, 2, 1)
        store.put_program(ns, sha256("program"), "stablehlo", b"body")
        store.publish_kernel(ns, kernel(1, so=b"other"))
        store.put_values(ns, [ValueDraft.of(sha256("key"), sha256(b"other"), b"other")])
    with psycopg.connect(url) as connection:
        for statement in (
            "INSERT INTO audit_seals (writer, sequence, previous_root, root, event_ids, signature,"
            " created_at) SELECT 'w', 1, d, d, '', '', 0 FROM decode(repeat('00', 32), 'hex') d",
            "INSERT INTO audit_writers (writer, public_key, host, started_at) VALUES ('w', '', '', 0)",
            "INSERT INTO audit_checkpoints (writer, sequence, root, events, first_at, last_at, signature,"
            " created_at) SELECT 'w', 1, d, 1, 0, 0, '', 0 FROM decode(repeat('00', 32), 'hex') d",
        ):
            connection.execute(statement.encode())
    yield url
    postgres_server.drop(url)


class TestImmutability:
    @pytest.mark.sampled(12)
    @pytest.mark.parametrize("table", sorted(IMMUTABLE))
    def test_rows_stay_as_they_were_written(self, filled, table):
        before = contents(filled)
        columns = [column.name for column in METADATA.tables[table].columns]
        assert before[table]
        statements = [f"UPDATE {table} SET {column} = {column}" for column in columns]
        statements += [f"DELETE FROM {table}", f"TRUNCATE {table} CASCADE"]
        taken = ", ".join(IMMUTABLE[table][0])
        every = ", ".join(columns)
        values = ", ".join(f"EXCLUDED.{column}" for column in columns)
        again = f"INSERT INTO {table} SELECT * FROM {table} ON CONFLICT ({taken})"
        statements.append(f"{again} DO UPDATE SET ({every}) = ROW({values})")
        for role in ("origin", "replica"):
            for statement in statements:
                with psycopg.connect(filled) as connection:
                    connection.execute(f"SET session_replication_role = {role}".encode())
                    with pytest.raises(IntegrityConstraintViolation, match="kcache: rows of"):
                        connection.execute(statement.encode())
        assert contents(filled) == before

    @pytest.mark.parametrize("table", sorted(set(IMMUTABLE)))
    def test_only_the_collector_lets_rows_go_and_only_those_of_collectable_tables(self, filled, table):
        column = METADATA.tables[table].primary_key.columns.keys()[0]
        call = f"SELECT kcache_collect('{table}', '{column}', '{{-1}}', 1, 1, 'w', 0, 'test')"
        with psycopg.connect(filled) as connection:
            if table in PERMANENT:
                with pytest.raises(psycopg.errors.RaiseException, match="are not collected"):
                    connection.execute(call.encode())
            connection.rollback()

    def test_the_collector_writes_down_what_it_removed(self, filled):
        with psycopg.connect(filled) as connection:
            call = (
                "SELECT kcache_collect('kernel_ingredients', 'kernel_id', '{1}', 1, 1, 'w', 7, 'a \"test\"')"
            )
            assert connection.execute(call).fetchall() == [(2,)]
            events = connection.execute(
                "SELECT kind, writer, at, detail::json->>'rows', detail::json->>'reason' FROM audit_events"
                " ORDER BY id DESC LIMIT 1"
            ).fetchall()
            assert events == [("collect", "w", 7, "2", 'a "test"')]
            connection.rollback()

    def test_the_collector_cannot_be_pointed_at_another_table(self, filled):
        for target in ("specs", "key_counters", "store_meta", "specs; DROP TABLE specs"):
            with (
                pytest.raises(psycopg.errors.RaiseException, match="are not collected"),
                psycopg.connect(filled) as connection,
            ):
                connection.execute("SELECT kcache_collect(%s, 'id', '{1}', 1, 1, 'w', 7, 'test')", (target,))

    def test_a_trigger_that_is_gone_or_asleep_is_noticed(self, url):
        for change in ("DISABLE TRIGGER specs_refuse_update", "ENABLE TRIGGER specs_refuse_update"):
            with psycopg.connect(url) as connection:
                connection.execute(f"ALTER TABLE specs {change}".encode())
            with pytest.raises(CorruptStore, match="specs_refuse_update"):
                open_store(url)
        with psycopg.connect(url) as connection:
            connection.execute("ALTER TABLE specs ENABLE ALWAYS TRIGGER specs_refuse_update")
        open_store(url).close()

    def test_what_others_append_meanwhile_is_not_taken_for_the_event_of_a_removal(self, url):
        with open_store(url) as store:
            ns = store.get_or_create_namespace("default")
            store.put_graph(ns, graph(0))
            store.begin_sealing(b"k" * 32, "host")
            meanwhile = threading.Event()

            def append(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
                if "kcache_collect" in statement and "graph_mappings" in str(parameters):
                    with ThreadPoolExecutor(1) as thread:
                        thread.submit(store.append_audit, ns, [AuditEvent("serve")]).result()
                    meanwhile.set()

            event.listen(store._db._engine, "after_cursor_execute", append)
            before = store.last_event_id()
            store.collect(ns, Step(RowKind.IDLE_MAPPINGS, 5, 2**62))
            assert meanwhile.is_set()
            written = store.list_event_ids(store.audit_writer, before, 100)
            assert [number for number, _ in store.unsealed(100)] == written
            assert len(written) == 3


class TestRoles:
    def test_a_stranger_in_the_database_cannot_remove_anything(self, filled, role, postgres_server):
        with psycopg.connect(postgres_server.url(database_name(filled), role)) as stranger:
            call = "SELECT kcache_collect('kernel_ingredients', 'kernel_id', '{1}', 1, 1, 'w', 7, 'test')"
            with pytest.raises(InsufficientPrivilege):
                stranger.execute(call)

    @pytest.fixture
    def role(self, postgres_server: PostgresServer) -> Iterator[str]:
        name = f"user_{secrets.token_hex(4)}"
        postgres_server.execute(f"CREATE ROLE {name} LOGIN")
        yield name
        postgres_server.execute(f"DROP OWNED BY {name}")
        postgres_server.execute(f"DROP ROLE {name}")

    def test_an_ordinary_owner_is_told_what_an_administrator_must_type(self, postgres_server, role):
        database = f"of_{role}"
        postgres_server.execute(f"CREATE DATABASE {database} OWNER {role}")
        with pytest.raises(StorageError, match=f"kcache migrate --db .*/{database} --server-role {role}"):
            migrate(postgres_server.url(database, role))
        migrate(postgres_server.url(database), server_role=role)
        url = postgres_server.url(database, role)
        with open_store(url, clock=Time().clock) as store:
            fill(store)
        with psycopg.connect(url) as connection, pytest.raises(InsufficientPrivilege):
            connection.execute("DELETE FROM kernel_ingredients")
        with psycopg.connect(url) as connection:
            call = "SELECT kcache_collect('kernel_ingredients', 'kernel_id', '{1}', 1, 1, 'w', 7, 'test')"
            assert connection.execute(call).fetchall() == [(2,)]
        postgres_server.execute(f"DROP DATABASE {database} WITH (FORCE)")


class TestOpening:
    def test_an_empty_database_is_rejected_with_the_command_and_left_alone(self, empty):
        with pytest.raises(SchemaMismatch) as rejected:
            open_store(empty)
        assert rejected.value.command.startswith("kcache migrate --db ")
        assert contents(empty) == {}

    @pytest.mark.parametrize(("revision", "word"), [("0000", "migrate"), ("9999", "pip install --upgrade")])
    def test_another_revision_is_rejected(self, url, revision, word):
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE alembic_version SET version_num = %s", (revision,))
        before = contents(url)
        with pytest.raises(SchemaMismatch, match=word):
            open_store(url)
        with pytest.raises((SchemaMismatch, StorageError)):
            migrate(url)
        assert contents(url) == before

    def test_a_database_of_another_application_is_left_alone(self, empty):
        with psycopg.connect(empty) as connection:
            connection.execute("CREATE TABLE orders (id bigint)")
            connection.execute("CREATE TABLE alembic_version (version_num text)")
            connection.execute("INSERT INTO alembic_version VALUES (%s)", (SCHEMA_REVISION,))
        before = schema_of(empty)
        for call in (open_store, migrate):
            with pytest.raises(ForeignDatabase, match="another application"):
                call(empty)
        assert schema_of(empty) == before

    def test_a_database_that_is_not_there(self, postgres_server):
        for url in (postgres_server.url("nowhere"), "postgresql://kcache@127.0.0.1:1/kcache"):
            for call in (open_store, migrate):
                with pytest.raises(StoreUnavailable):
                    call(url)

    def test_a_database_that_goes_and_comes_back(self):
        with running() as server:
            url = server.create()
            with open_store(url, migrate=True) as store:
                ns = store.get_or_create_namespace("default")
                store.put_spec(ns, spec(0))
                reads = (
                    lambda: store.find_mapping(ns, sha256(b"none"), "default"),
                    lambda: store.count_specs(ns),
                )
                for read in reads:
                    read()
                server.stop("immediate")
                for read in (*reads, *reads):
                    with pytest.raises(StoreUnavailable):
                        read()
                server.start()
                assert [read() for read in reads] == [None, 1]

    def test_a_password_is_never_shown(self):
        url = "postgresql://kcache:hunter2@127.0.0.1:1/kcache"
        with pytest.raises(StoreUnavailable) as rejected:
            open_store(url)
        assert "hunter2" not in str(rejected.value)

    def test_a_url_is_shown_without_its_passwords(self):
        shown = shown_url(
            "postgresql://kcache:hunter2@host/kcache?sslpassword=hunter3&host=/a&password=hunter4"
        )
        assert "hunter" not in shown
        assert shown_url("postgresql://kcache@host/kcache") == "postgresql://kcache@host/kcache"

    def test_a_database_with_another_encoding_is_rejected(self, postgres_server):
        name = f"ascii_{secrets.token_hex(4)}"
        postgres_server.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
        )
        with pytest.raises(UnsupportedStore, match="UTF8"):
            migrate(postgres_server.url(name))
        postgres_server.execute(f"DROP DATABASE {name}")

    def test_the_url_of_a_store_has_no_password_and_two_stores_agree_on_the_id(self, url):
        with_password = make_url(url).set(password="hunter2").render_as_string(hide_password=False)
        with open_store(with_password) as first, open_store(url) as other:
            assert "hunter2" not in first.url
            assert first.id == other.id

    def test_a_read_only_database_says_so(self, url, postgres_server):
        name = database_name(url)
        postgres_server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with open_store(url) as store, pytest.raises(StoreUnavailable, match="read-only"):
            store.get_or_create_namespace("default")


def test_what_is_not_durable_leaves_a_session_that_is(url):
    lasting = "SELECT current_setting('synchronous_commit')"
    with open_store(url) as store:
        ns = store.get_or_create_namespace("default")
        lease = store.acquire_lease(ns, sha256("k"), "one", 30)
        assert isinstance(lease, Lease)
        store.report_stage(lease, "lower")
        assert isinstance(store, SqlStore)
        with store._db._connect() as connection:
            assert connection.exec_driver_sql(lasting).scalar_one() == "on"
            connection.exec_driver_sql("BEGIN")
            # As the one statement does it: until its transaction ends, and no longer.
            connection.exec_driver_sql(f"SELECT {_LIGHT}")
            assert connection.exec_driver_sql(lasting).scalar_one() == "off"
            connection.exec_driver_sql("COMMIT")
            assert connection.exec_driver_sql(lasting).scalar_one() == "on"


class TestTime:
    def test_leases_are_dated_by_the_database_whatever_the_servers_clocks_say(self, url):
        late, early = Time(), Time(wall=1, steady=1)
        with open_store(url, clock=late.clock) as first, open_store(url, clock=early.clock) as other:
            ns = first.get_or_create_namespace("default")
            taken = first.acquire_lease(ns, sha256("k"), "one", 30)
            assert isinstance(taken, Lease)
            state = other.acquire_lease(ns, sha256("k"), "other", 30)
            assert not isinstance(state, Lease)
            assert 0 < state.expires_in <= 30_000_000
            late.advance(3600)
            early.advance(3600)
            assert not isinstance(other.acquire_lease(ns, sha256("k"), "other", 30), Lease)

    def test_a_session_that_is_cut_off_is_replaced(self, url, postgres_server):
        name = database_name(url)
        with open_store(url) as store:
            ns = store.get_or_create_namespace("default")
            for number in range(3):
                postgres_server.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    f"WHERE datname = '{name}' AND pid <> pg_backend_pid()"
                )
                assert store.put_spec(ns, spec(number)).key == number + 1
                assert store.find_namespace("default") == ns

    def test_a_transaction_whose_connection_is_cut_in_the_middle_is_repeated(self, url, postgres_server):
        with open_store(url) as store:
            ns = store.get_or_create_namespace("default")
            cuts = [True, True]

            def bind(key: int) -> SignedBytes:
                if cuts:
                    cuts.pop()
                    postgres_server.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                        f"datname = '{database_name(url)}' AND state = 'idle in transaction'"
                    )
                return SignedBytes(b"binding", b"signature")

            draft = GraphDraft(spec(1), program(1), bind)
            assert store.put_graph(ns, draft, AuditEvent("store")).spec.key == 1
            assert not cuts
            assert len(store.list_audit(ns)) == 1

    def test_a_server_that_freezes_in_a_transaction_blocks_the_namespace_for_seconds_only(self, url):
        with open_store(url) as store:
            ns = store.get_or_create_namespace("default")
        engine = postgres_engine(make_url(url))
        with engine.connect() as frozen, open_store(url) as store:
            frozen.exec_driver_sql("BEGIN")
            frozen.exec_driver_sql("SELECT * FROM key_counters FOR UPDATE")
            began = clock.monotonic()
            assert store.put_spec(ns, spec(1)).key == 1
            assert clock.monotonic() - began < 30
            frozen.invalidate()
        engine.dispose()
