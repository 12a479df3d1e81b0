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
from tests.cli.conftest import Made, Run, fill
from tests.postgres import PostgresServer
from tests.server.harness.running import config_in, running
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
def made(request: pytest.FixtureRequest) -> Made:
    return request.getfixturevalue(request.param)


@pytest.fixture
def other_key(tmp_path: Path) -> Path:
    """A signing key of somebody else."""
    path = tmp_path / "other.key"
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("given_by", "options"), [("option", []), ("environment", ["--apply"]), ("option", ["--apply", "--yes"])]
)
def test_verify_refuses_a_key_that_is_not_the_signer(
    run: Run,
    made: Made,
    other_key: Path,
    options: list[str],
    given_by: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = ["verify", "--db", made.url, "--all", "--no-compile", *options]
    if given_by == "environment":
        monkeypatch.setenv("KCACHE_KEY_FILE", str(other_key))
    else:
        command += ["--key-file", str(other_key)]
    done = run(*command)
    assert done.code == 12
    assert str(other_key) in done.err.replace("\n", "")
    assert made.counts() == (2, 2)


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
