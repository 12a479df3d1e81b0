"""The schema: models and migrations agree, earlier ones reach the present one, statements use indexes."""

from __future__ import annotations

import pkgutil
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import CompoundSelect, Delete, Executable, Insert, Select, Update
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.functions import FunctionElement

from kcache_grpc.storage import migrate, open_store, sql
from kcache_grpc.storage.schema import APPLICATION_ID, METADATA, SCHEMA_REVISION, triggers
from kcache_grpc.storage.sql.engine.prepared import Prepared
from kcache_grpc.storage.sql.sqlite.engine import sqlite_engine
from kcache_migrations import LOCATION
from tests.storage.drafts import Time, kernel, mapping, program, sha256, spec
from tests.storage.dump import SCHEMAS, load
from tests.storage.inside import contents, database, path_of, raw, rows

MODULES = [import_module(each.name) for each in pkgutil.walk_packages(sql.__path__, f"{sql.__name__}.")]
STATEMENTS = {
    f"{module.__name__.removeprefix(f'{sql.__name__}.')}.{name}": value.select
    if isinstance(value, Prepared)
    else value
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, Executable | Prepared) and not isinstance(value, FunctionElement)
}
#: Whole tables of one row a namespace, counts that are not for hot paths, and a lock of Postgres alone.
SCANS = {
    "audit.audit._FORGET_MISSES",
    "audit.audit._REGISTERED",
    "audit.usage._ARTIFACT_STATS",
    "graphs.namespaces._COUNT",
    "graphs.namespaces._LIST",
    "graphs.namespaces._ONE_AT_A_TIME",
    "graphs.namespaces._RAISE_ALL",
    "store._ID",
    "audit.summaries._DAYS",
    "audit.summaries._MISSES",
    "audit.summaries._NO_LIMIT",
    "audit.summaries._KEEP_DAYS",
    "audit.summaries._KEEP_MISSES",
    "audit.summaries._LAST_PRUNED",
}
SEARCHES = sorted(
    name
    for name in set(STATEMENTS) - SCANS
    if not isinstance(STATEMENTS[name], Insert) and not name.startswith("postgres")
)
#: What a plan may run through from end to end: one row, the rows that a limit has cut off before, and the
#: subjects that a recursive query has found one by one.
SHORT = ("CONSTANT ROW", "SCAN looked_at", "SCAN candidates", "SCAN matching", "SCAN subjects")


def plain(sql: str) -> str:
    """Without the spaces that ALTER TABLE leaves."""
    return re.sub(r" ?([,)])", r"\1", " ".join(sql.split()))


def schema_of(path: Path, kinds: tuple[str, ...]) -> dict[str, str]:
    marks = ", ".join("?" for _ in kinds)
    query = f"SELECT name, sql FROM sqlite_master WHERE type IN ({marks}) AND sql IS NOT NULL"
    tables = dict(rows(path, query, kinds))
    return {name: plain(sql) for name, sql in tables.items() if name != "alembic_version"}


# What SQLAlchemy does not read back on SQLite is compared as text by the next test.
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
@pytest.mark.filterwarnings("ignore:autogenerate skipping metadata-specified expression-based index")
def test_alembic_finds_no_difference_between_models_and_migrations(template):
    engine = sqlite_engine(template)
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        differences = compare_metadata(context, METADATA)
    assert differences == []


def test_models_and_migrations_make_the_same_statements(template, tmp_path):
    engine = sqlite_engine(tmp_path / "models.sqlite")
    METADATA.create_all(engine)
    kinds = ("table", "index")
    assert schema_of(template, kinds) == schema_of(tmp_path / "models.sqlite", kinds)


def test_the_revision_in_the_code_is_the_head_of_one_line():
    config = Config()
    config.set_main_option("script_location", str(LOCATION))
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [SCHEMA_REVISION]
    revisions = [each.revision for each in script.walk_revisions()][::-1]
    assert revisions == [f"{number:04}" for number in range(1, len(revisions) + 1)]
    released = sorted(path.stem for path in SCHEMAS.glob("*.sql"))
    assert released == revisions


def test_a_new_store_is_marked_and_guarded(template):
    assert rows(template, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert rows(template, "PRAGMA journal_mode") == [("wal",)]
    names = rows(template, "SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger'")
    assert set(names) == triggers("sqlite")


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.sql")), ids=lambda path: path.stem)
def test_every_released_schema_reaches_the_present_one_with_its_data(path, tmp_path, template):
    old = tmp_path / "store.sqlite"
    load(path.read_text(), old)
    url = f"sqlite:///{old}"
    migrate(url)
    kinds = ("table", "index", "trigger", "view")
    assert schema_of(old, kinds) == schema_of(template, kinds)
    time = Time()
    with open_store(url, clock=time.clock) as opened:
        ns = opened.find_namespace("default")
        assert ns is not None
        assert opened.count_specs(ns) == 2
        entry = opened.get_spec(ns, 1)
        assert entry is not None
        assert entry.text == spec(0).text
        mapped = opened.find_mapping(ns, program(7), "default")
        assert mapped is not None
        assert mapped.binding == mapping(7, key=2).binding
        stored = opened.find_kernel(ns, kernel(1).kernel.kernel_digest)
        assert stored is not None
        assert [ref.kind for ref in stored.artifacts] == ["so", "llvm", "asm"]
        assert opened.read_artifact(ns, sha256(b"weights")) == b"weights"
        assert [record.event.kind for record in opened.list_audit(ns)] == ["store", "publish"]
        assert opened.stats(ns).hits == 3
        other = opened.find_namespace("other")
        assert other is not None
        assert other.epoch == 2
        assert opened.put_spec(ns, spec(2)).key == 3


def test_views_are_made_for_people(tmp_path):
    load((SCHEMAS / "0001.sql").read_text(), tmp_path / "store.sqlite")
    url = f"sqlite:///{tmp_path}/store.sqlite"
    migrate(url)
    with raw(tmp_path / "store.sqlite") as connection:
        query = "SELECT namespace, key, spec_digest, created_at FROM v_specs ORDER BY key"
        assert connection.execute(query).fetchone() == (
            "default",
            1,
            spec(0).spec_digest.hex(),
            "2025-06-15T15:06:40.000000Z",
        )
        query = "SELECT namespace, key, target, toolchain FROM v_kernels"
        assert connection.execute(query).fetchall() == [
            ("default", 1, "x86-64-v3", sha256("toolchain").hex())
        ]
        query = "SELECT program_digest, key FROM v_graph_mappings ORDER BY key"
        assert connection.execute(query).fetchall() == [(program(0).hex(), 1), (program(7).hex(), 2)]
        query = "SELECT kind, actor, key, spec_digest FROM v_audit ORDER BY id"
        assert connection.execute(query).fetchall() == [("store", "job", 1, None), ("publish", "", 1, None)]


def test_ingredients_and_failures_are_shown_to_people(tmp_path):
    load((SCHEMAS / "0001.sql").read_text(), tmp_path / "store.sqlite")
    url = f"sqlite:///{tmp_path}/store.sqlite"
    migrate(url)
    with open_store(url, clock=Time().clock) as opened:
        ns = opened.get_or_create_namespace("default")
        draft = kernel(5)
        opened.publish_kernel(ns, replace(draft, ingredients=(("spec", "another"), ("guard", ""))))
    with raw(tmp_path / "store.sqlite") as connection:
        query = "SELECT namespace, epoch, key, kernel_digest, name, value, created_at FROM v_key_ingredients"
        assert connection.execute(f"{query} WHERE kernel_id = 1 ORDER BY position").fetchall() == [
            (
                "default",
                1,
                1,
                kernel(1).kernel.kernel_digest.hex(),
                name,
                value,
                "2025-06-15T15:06:40.000000Z",
            )
            for name, value in kernel(1).ingredients
        ]
        query = "SELECT kernel_digest, other_digest, name, value, other_value FROM v_key_differences"
        digests = (kernel(1).kernel.kernel_digest.hex(), kernel(5).kernel.kernel_digest.hex())
        assert connection.execute(f"{query} WHERE kernel_id = 1 ORDER BY position").fetchall() == [
            (*digests, "spec", kernel(1).ingredients[0][1], "another"),
            (*digests, "target", "x86-64-v3", None),
        ]
        query = "SELECT kernel_digest, reason, stage, count, last_at FROM v_failures"
        (failure,) = connection.execute(query).fetchall()
        assert failure[:4] == (kernel(3).kernel.kernel_digest.hex(), "COMPILE_FAILED", "lower", 1)


def test_a_migration_can_be_taken_back(tmp_path, template):
    """0002 adds indexes and views only: without it the schema is that of 0001, whose rows are all there."""
    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    for path in (old, new):
        load((SCHEMAS / "0001.sql").read_text(), path)
    migrate(f"sqlite:///{new}")
    config = Config()
    config.set_main_option("script_location", str(LOCATION))
    with sqlite_engine(new).connect() as connection, connection.begin():
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
    kinds = ("table", "index", "trigger", "view")
    assert schema_of(new, kinds) == schema_of(old, kinds)
    assert sorted(contents(new)) == sorted(contents(old))
    migrate(f"sqlite:///{new}")
    assert schema_of(new, kinds) == schema_of(template, kinds)


def test_there_are_statements_to_look_at():
    assert len(STATEMENTS) > 40


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_statements_are_portable(name):
    sql = str(STATEMENTS[name].compile(dialect=postgresql.dialect()))
    assert sql.split(maxsplit=1)[0] in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "SET")
    assert "INSERT OR " not in sql


@pytest.mark.parametrize("table", METADATA.sorted_tables, ids=lambda table: table.name)
def test_tables_are_portable(table):
    dialect = postgresql.dialect()
    assert "BIGSERIAL" in str(CreateTable(table).compile(dialect=dialect)) or "id" not in table.columns
    for index in table.indexes:
        CreateIndex(index).compile(dialect=dialect)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", SEARCHES)
def test_statements_find_their_rows_by_an_index(sqlite, name):
    statement = STATEMENTS[name]
    assert isinstance(statement, Select | CompoundSelect | Update | Delete)
    compiled = str(statement.compile(dialect=database(sqlite)._engine.dialect))
    sql = re.sub(r"__\[POSTCOMPILE_\w+\]", "?", compiled)
    with raw(path_of(sqlite)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * sql.count("?")).fetchall()
    steps = [step for *_, step in plan]
    assert steps
    assert not [step for step in steps if "SCAN" in step and not any(short in step for short in SHORT)]
