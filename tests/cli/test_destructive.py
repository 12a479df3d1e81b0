"""Commands that remove things: the key that they ask for, dry runs, implausible shares of faults."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.manifest import Binding
from kcache_grpc.model.signing import BINDING_DOMAIN, Signer
from kcache_grpc.server import ServerConfig
from kcache_grpc.storage import open_store
from kcache_grpc.storage.schema import SCHEMA_REVISION
from tests.cli.conftest import Made, Run, fill
from tests.postgres import PostgresServer
from tests.server.harness.running import config_in, running
from tests.storage.dump import SCHEMAS, load
from tests.storage.inside import raw, tamper

pytestmark = pytest.mark.issue(number=19, point=1)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[Made]:
    url = postgres_server.create_migrated()
    folder = tmp_path_factory.mktemp("postgres")
    config = config_in(folder, db=url)
    fill(config)
    yield Made(url, config.signing_key)
    postgres_server.drop(url)


@pytest.fixture(params=["sqlite", "postgres"])
def filled(request: pytest.FixtureRequest) -> Made:
    return request.getfixturevalue(request.param)


@pytest.fixture
def other_key(tmp_path: Path) -> Path:
    """A signing key of somebody else."""
    path = tmp_path / "other.key"
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    return path


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("given_by", "options"), [("option", []), ("environment", ["--apply"]), ("option", ["--apply", "--yes"])]
)
def test_verify_rejects_a_key_that_is_not_the_signer(
    run: Run,
    filled: Made,
    other_key: Path,
    options: list[str],
    given_by: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = ["verify", "--db", filled.url, "--all", "--no-compile", *options]
    if given_by == "environment":
        monkeypatch.setenv("KCACHE_KEY_FILE", str(other_key))
    else:
        command += ["--key-file", str(other_key)]
    done = run(*command)
    assert done.code == 12
    assert str(other_key) in done.err.replace("\n", "")
    assert filled.counts() == (2, 2)


def test_the_default_key_of_the_user_is_not_that_of_a_database_server(
    run: Run, postgres: Made, other_key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    default = tmp_path / "home" / "kcache" / "signing.key"
    command = ["verify", "--db", postgres.url, "--all", "--no-compile", "--json"]
    for there in (False, True):
        if there:
            default.parent.mkdir(parents=True)
            shutil.copy(other_key, default)
        looked = run(*command)
        assert looked.code == 0
        assert json.loads(looked.out)["healthy"]
        assert "signatures were not checked" in looked.err
        applied = run(*command, "--apply")
        assert applied.code == 5
        assert "--key-file" in applied.err
        assert default.exists() == there
        assert run("audit", "prune", "--before", "1d", "--db", postgres.url).code == 9
    assert postgres.counts() == (2, 2)


def test_no_store_is_disowned_for_the_default_key(
    postgres: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    environment = {"XDG_STATE_HOME": str(tmp_path / "home")}
    config = ServerConfig.from_env(environment, db=postgres.url, disown=True, listen=("127.0.0.1:0",))
    assert config.default_key
    assert not ServerConfig.from_env(environment, db=postgres.url, key_file=postgres.key).default_key
    before = postgres.epoch()
    with pytest.raises(ArgumentError, match="--key-file"), running(config):
        pass
    assert postgres.epoch() == before
    assert not config.signing_key.exists()


def test_verify_changes_nothing_unless_it_is_applied(run: Run, sqlite: Made) -> None:
    path = Path(sqlite.url.removeprefix("sqlite:///"))
    tamper(
        path,
        "UPDATE kernels SET signature = zeroblob(64) WHERE id = 1",
        "UPDATE artifact_chunks SET content = zeroblob(size) "
        "WHERE artifact_id = (SELECT max(artifact_id) FROM kernel_artifacts WHERE kernel_id = 2)",
    )
    command = ["verify", "--db", sqlite.url, "--all", "--no-compile", "--json", "--key-file", sqlite.key]

    def rows() -> list[list[object]]:
        with closing(sqlite3.connect(path)) as connection:
            return [
                connection.execute(f"SELECT * FROM {table}").fetchall()
                for table in ("kernels", "graph_mappings", "artifact_chunks", "quarantine")
            ]

    before = rows()
    dry = run(*command)
    assert dry.code == 1
    assert [fault["action"].partition(";")[0] for fault in json.loads(dry.out)["faults"]] == ["left", "left"]
    assert "--apply" in dry.err
    # More than one in a hundred is wrong: rather the check is than so many rows.
    withheld = run(*command, "--apply")
    assert withheld.code == 1
    assert json.loads(withheld.out)["checked"][0]["withheld"]
    assert "--yes" in withheld.err
    assert rows() == before
    applied = run(*command, "--apply", "--yes")
    assert applied.code == 1
    assert json.loads(applied.out)["checked"][0]["repaired"] == 2
    assert sqlite.counts() == (1, 2)
    assert len(rows()[3]) == 1
    assert run(*command, "--yes").code == 5


def test_one_fault_in_a_hundred_is_repaired_without_confirmation(run: Run, sqlite: Made) -> None:
    path = Path(sqlite.url.removeprefix("sqlite:///"))
    signer = Signer.from_file(sqlite.key)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        row = connection.execute(
            "SELECT namespace_id, epoch, numerics, key, created_at, binding FROM graph_mappings WHERE id = 1"
        ).fetchone()
        for number in range(100):
            digest = hashlib.sha256(b"program %d" % number).digest()
            binding = replace(Binding.from_bytes(row[5]), program_digest=digest).to_bytes()
            signature = signer.sign(BINDING_DOMAIN, binding).signature
            connection.execute(
                "INSERT INTO graph_mappings (namespace_id, epoch, numerics, key, created_at, binding, "
                "program_digest, signature) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*row[:5], binding, digest, signature),
            )
    command = ["verify", "--db", sqlite.url, "--all", "--no-compile", "--json", "--key-file", sqlite.key]
    assert run(*command).json()["checked"][0]["mappings"] == 102
    # 104 rows: one may be wrong, two are too many.
    for wrong, repaired in ((2, 0), (1, 1)):
        tamper(path, f"UPDATE graph_mappings SET signature = zeroblob(64) WHERE id IN (7, {wrong + 6})")
        checked = json.loads(run(*command, "--apply").out)["checked"][0]
        assert (checked["faults"], checked["repaired"], checked["withheld"]) == (
            wrong,
            repaired,
            not repaired,
        )
        if not repaired:
            with closing(sqlite3.connect(path)) as connection:
                (payload,) = connection.execute("SELECT binding FROM graph_mappings WHERE id = 8").fetchone()
            signature = signer.sign(BINDING_DOMAIN, payload).signature.hex()
            tamper(path, f"UPDATE graph_mappings SET signature = x'{signature}' WHERE id = 8")
    assert sqlite.counts() == (2, 101)


def test_epochs_rise_and_toolchains_are_disowned_only_when_that_is_applied(run: Run, sqlite: Made) -> None:
    dry = run("epoch", "raise", "default", "--db", sqlite.url, "--json")
    assert (dry.json()["dry_run"], dry.json()["kernels"], sqlite.epoch()) == (True, 2, 1)
    assert "--apply" in dry.err
    disown = ["disown", "--toolchain", "ab" * 32, "--db", sqlite.url, "--json"]
    assert run(*disown).json()["changed"] == ["default"]
    assert run("disown", "--db", sqlite.url, "--json").json() == []
    assert run(*disown, "--apply").json()["changed"] == ["default"]
    assert run(*disown).json()["changed"] == []
    assert run("epoch", "raise", "default", "--apply", "--db", sqlite.url, "--json").json()["epoch"] == 2
    assert run("gc", "--db", sqlite.url, "--json").json()["namespaces"][0]["rows"]["epoch_kernels"] == 2
    applied = run("gc", "--apply", "--db", sqlite.url, "--json").json()["namespaces"][0]
    assert applied["rows"]["epoch_kernels"] == 2


def test_what_verify_took_out_comes_back(run: Run, sqlite: Made) -> None:
    """Nothing is lost by a check that was wrong, here about a signature, also after a collection."""
    path = Path(sqlite.url.removeprefix("sqlite:///"))
    with raw(path) as connection:
        (signature,) = connection.execute("SELECT signature FROM kernels WHERE id = 1").fetchone()
    tamper(path, "UPDATE kernels SET signature = zeroblob(64) WHERE id = 1")
    verify = ["verify", "--db", sqlite.url, "--all", "--no-compile", "--json", "--key-file", sqlite.key]
    assert run(*verify, "--apply", "--yes").code == 1
    assert sqlite.counts() == (1, 2)
    assert run("gc", "--apply", "--min-age", "0s", "--db", sqlite.url).code == 0
    (row,) = run("quarantine", "list", "--db", sqlite.url, "--json").json()
    assert (row["subject"], "signature" in row["problem"]) == ("kernel", True)
    assert run("quarantine", "restore", "--db", sqlite.url).code == 5
    back = run("quarantine", "restore", str(row["id"]), "--db", sqlite.url, "--json").json()
    assert back == {"restored": [row["id"]], "asked": 1}
    assert sqlite.counts() == (2, 2)
    tamper(path, f"UPDATE kernels SET signature = x'{signature.hex()}' WHERE id = 1")
    assert run(*verify).json()["healthy"]


def test_a_dry_run_of_migrate_prints_the_revisions_and_applies_none(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "kcache.sqlite"
    command = ["migrate", "--db", f"sqlite:///{path}"]
    new = run(*command, "--dry-run", "--json").json()
    assert (new["migrated"], new["dry_run"], new["revision"]) == (False, True, "")
    assert new["revisions"][0]["revision"] == "0001"
    assert new["revisions"][-1]["revision"] == SCHEMA_REVISION
    assert list(tmp_path.iterdir()) == []
    load((SCHEMAS / "0003.sql").read_text(), path)
    before = path.read_bytes()
    old = run(*command, "--dry-run", "--json").json()
    assert old["revision"] == "0003"
    assert old["revisions"] == new["revisions"][3:]
    text = run(*command, "--dry-run").out
    assert "is at revision 0003" in text
    assert all(each["revision"] in text and each["description"] in text for each in old["revisions"])
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert run(*command).code == 0
    done = run(*command, "--dry-run", "--json").json()
    assert (done["revision"], done["revisions"]) == (SCHEMA_REVISION, [])
    tamper(path, "UPDATE alembic_version SET version_num = '9999'")
    assert "pip install --upgrade" in run(*command, "--dry-run").err


def test_a_dry_run_of_migrate_leaves_a_postgres_database_empty(
    run: Run, postgres_server: PostgresServer
) -> None:
    url = postgres_server.create()
    try:
        command = ["migrate", "--db", url, "--dry-run", "--server-role", "kcache_nobody"]
        for _ in range(2):
            planned = run(*command, "--json").json()
            assert (planned["revision"], planned["server_role"]) == ("", "kcache_nobody")
            assert planned["revisions"][-1]["revision"] == SCHEMA_REVISION
        assert "would get what servers need" in run(*command).out
    finally:
        postgres_server.drop(url)


def test_a_dry_run_of_a_move_counts_the_rows(run: Run, sqlite: Made, tmp_path: Path) -> None:
    target = tmp_path / "moved.sqlite"
    command = ["migrate", "--from", sqlite.url, "--to", f"sqlite:///{target}", "--json"]
    planned = run(*command, "--dry-run").json()
    assert (planned["moved"], planned["dry_run"]) == (False, True)
    assert planned["rows"]["kernels"] == 2
    assert not target.exists()
    assert run(*command).json() == {"moved": True, "rows": planned["rows"]}
    assert run(*command, "--dry-run").json() == planned
    other = tmp_path / "other.sqlite"
    with open_store(f"sqlite:///{other}", migrate=True) as store:
        store.get_or_create_namespace("theirs")
    rejected = run("migrate", "--from", sqlite.url, "--to", f"sqlite:///{other}", "--dry-run")
    assert "another store" in rejected.err


def test_a_dry_run_of_restore_checks_the_copy_and_writes_nothing(
    run: Run, sqlite: Made, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.sqlite"
    assert run("backup", copy, "--db", sqlite.url, "--key-file", sqlite.key).code == 0
    (tmp_path / "new").mkdir()
    url = f"sqlite:///{tmp_path}/new/kcache.sqlite"
    command = ["restore", copy, "--db", url, "--key-file", sqlite.key, "--raise-epochs"]
    planned = run(*command, "--dry-run", "--json").json()
    assert (planned["restored"], planned["dry_run"], planned["epochs_raised"]) == (False, True, False)
    assert planned["last_keys"] == {"default": 1}
    assert "would hold 1 key" in run(*command, "--dry-run").out
    assert list((tmp_path / "new").iterdir()) == []
    done = run(*command, "--json").json()
    assert (done["restored"], done["epochs_raised"]) == (True, True)
    assert run(*command, "--dry-run").code == 5, "there is a store already"
    damaged = tmp_path / "damaged.sqlite"
    (tmp_path / "more").mkdir()
    content = copy.read_bytes()
    with raw(copy) as connection:
        (manifest,) = connection.execute("SELECT manifest FROM kernels WHERE id = 2").fetchone()
    place = content.index(manifest[:60]) + 30
    damaged.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    rejected = run(
        "restore",
        damaged,
        "--db",
        f"sqlite:///{tmp_path}/more/x.sqlite",
        "--key-file",
        sqlite.key,
        "--dry-run",
    )
    assert rejected.code == 11
    assert list((tmp_path / "more").iterdir()) == []
