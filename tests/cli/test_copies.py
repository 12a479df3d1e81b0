"""Backups: every digest and every signature is checked, and what is damaged is named and not restored."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kcache_grpc.model.program import ProgramFormat, program_digest
from kcache_grpc.model.signing import Signer
from kcache_grpc.storage import open_store
from tests.cli.conftest import Made, Run, fill
from tests.server.harness.running import config_in
from tests.storage.inside import raw, tamper

pytestmark = pytest.mark.issue(number=19, point=6)


@pytest.fixture
def copy(run: Run, sqlite: Made, tmp_path: Path) -> Path:
    file = tmp_path / "copy.sqlite"
    with open_store(sqlite.url) as store:
        (space,) = store.list_namespaces()
        body = b"a program"
        store.put_program(space, program_digest(ProgramFormat.STABLEHLO, body), "stablehlo", body)
    assert run("backup", file, "--db", sqlite.url, "--key-file", sqlite.key, "--json").json()["faults"] == []
    return file


def flip(path: Path, table: str, column: str, place: int = 20) -> None:
    """Another bit in one byte of the first row that has that byte, behind the triggers' backs."""
    with raw(path) as connection:
        number, content = connection.execute(
            f"SELECT rowid, CAST({column} AS BLOB) FROM {table} WHERE length({column}) > {place} LIMIT 1"
        ).fetchone()
        (kind,) = connection.execute(f"SELECT typeof({column}) FROM {table} LIMIT 1").fetchone()
    changed = bytearray(content)
    changed[place] ^= 1
    tamper(path, f"UPDATE {table} SET {column} = CAST(x'{changed.hex()}' AS {kind}) WHERE rowid = {number}")


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("table", "column", "subject", "taken_out"),
    [
        ("specs", "text", "spec", False),
        ("artifact_chunks", "content", "artifact", True),
        pytest.param("artifact_chunks", "digest", "artifact", True, marks=pytest.mark.long),
        pytest.param("artifacts", "digest", "artifact", True, marks=pytest.mark.long),
        ("kernels", "manifest", "kernel", True),
        pytest.param("kernels", "signature", "kernel", True, marks=pytest.mark.long),
        pytest.param("kernels", "toolchain", "kernel", True, marks=pytest.mark.long),
        ("graph_mappings", "binding", "mapping", True),
        pytest.param("graph_mappings", "signature", "mapping", True, marks=pytest.mark.long),
        pytest.param("programs", "program_digest", "program", True, marks=pytest.mark.long),
        ("audit_events", "peer", "audit", False),
        pytest.param("audit_seals", "signature", "audit", False, marks=pytest.mark.long),
    ],
)
def test_one_byte_of_a_copy_is_named_and_not_restored(
    run: Run, sqlite: Made, copy: Path, tmp_path: Path, table: str, column: str, subject: str, taken_out: bool
) -> None:
    flip(copy, table, column, 3 if column == "peer" else 20)
    (tmp_path / "new").mkdir()
    url = f"sqlite:///{tmp_path}/new/kcache.sqlite"
    command = ["restore", copy, "--db", url, "--key-file", sqlite.key, "--json"]
    rejected = run(*command)
    assert rejected.code == 11
    faults = json.loads(rejected.out)["faults"]
    assert subject in {fault["subject"] for fault in faults}
    assert not Path(f"{tmp_path}/new/kcache.sqlite").exists()
    rest = run(*command, "--damaged", "leave-out")
    assert rest.code == 1
    assert subject in {fault["subject"] for fault in json.loads(rest.out)["faults"]}
    again = run("backup", tmp_path / "again.sqlite", "--db", url, "--key-file", sqlite.key, "--json")
    assert (json.loads(again.out)["faults"] == []) == taken_out


def test_what_is_damaged_is_loaded_when_that_is_asked_for(
    run: Run, sqlite: Made, copy: Path, tmp_path: Path
) -> None:
    flip(copy, "kernels", "manifest")
    url = f"sqlite:///{tmp_path}/kcache.sqlite"
    done = run("restore", copy, "--db", url, "--key-file", sqlite.key, "--damaged", "load")
    assert done.code == 1
    assert "kernel" in done.out
    assert Made(url, sqlite.key).counts() == (2, 2)


def test_one_byte_of_the_file_is_found(run: Run, sqlite: Made, copy: Path, tmp_path: Path) -> None:
    """As a disk changes it: without a thought for triggers, and with the pages whole."""
    with closing(sqlite3.connect(copy)) as connection:
        (text,) = connection.execute("SELECT CAST(text AS BLOB) FROM specs").fetchone()
        (manifest,) = connection.execute("SELECT manifest FROM kernels WHERE id = 2").fetchone()
    content = copy.read_bytes()
    for part, subject in ((text[:60], b"spec"), (manifest[:60], b"kernel")):
        damaged = tmp_path / f"{subject.decode()}.sqlite"
        place = content.index(part) + 30
        damaged.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        target = tmp_path / "restored.sqlite"
        done = run("restore", damaged, "--db", f"sqlite:///{target}", "--key-file", sqlite.key)
        assert done.code == 11
        assert subject.decode() in done.err
        assert not target.exists()


def test_a_backup_of_a_damaged_store_says_so(run: Run, sqlite: Made, tmp_path: Path) -> None:
    flip(Path(sqlite.url.removeprefix("sqlite:///")), "kernels", "manifest")
    done = run("backup", tmp_path / "copy.sqlite", "--db", sqlite.url, "--key-file", sqlite.key, "--json")
    assert done.code == 1
    (fault,) = json.loads(done.out)["faults"]
    assert fault["subject"] == "kernel"
    assert "kcache verify --all --apply" in done.err


def test_a_whole_copy_is_restored(run: Run, sqlite: Made, copy: Path, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    again = f"sqlite:///{tmp_path}/again/kcache.sqlite"
    done = run("restore", copy, "--db", again, "--raise-epochs", "--json").json()
    assert (done["epochs_raised"], done["faults"], done["last_keys"]) == (True, [], {"default": 1})
    assert run("epoch", "list", "--db", again, "--json").json()[0]["epoch"] == 2
    assert run("restore", copy, "--db", again).code == 5
    assert run("restore", copy, "--db", again, "--damaged", "sometimes").code == 5
    assert [path.name for path in (tmp_path / "again").iterdir()] == ["kcache.sqlite"]


def test_rows_that_a_key_of_before_signed_are_no_damage(run: Run, sqlite: Made, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    sqlite.key.unlink()
    fill(config_in(folder, db=sqlite.url, disown=True))
    with open_store(sqlite.url) as store:
        assert store.list_namespaces()[0].epoch == 2
    done = run("backup", tmp_path / "two.sqlite", "--db", sqlite.url, "--key-file", sqlite.key, "--json")
    assert done.json()["faults"] == []


@pytest.mark.issue(number=19, point=28)
def test_a_backup_names_the_key_file_in_use(run: Run, sqlite: Made, tmp_path: Path) -> None:
    in_use = tmp_path / "elsewhere" / "signing.key"
    in_use.parent.mkdir()
    shutil.move(sqlite.key, in_use)
    named = run("backup", tmp_path / "1.sqlite", "--db", sqlite.url, "--key-file", in_use, "--json").json()
    assert named["signing_key"] == str(in_use)
    # Neither a file that is not there nor a key of another store is named as the one to keep.
    default = tmp_path / "copy" / "kcache-state" / "signing.key"
    for number in (2, 3):
        if number == 3:
            default.parent.mkdir()
            default.write_bytes(os.urandom(32))
            default.chmod(0o600)
        done = run("backup", tmp_path / f"{number}.sqlite", "--db", sqlite.url)
        assert done.code == 0
        assert f"keep the signing key with it: {default}" not in done.out
        assert Signer.from_file(in_use).key_id.hex() in done.out


@pytest.mark.issue(number=19, point=28)
@pytest.mark.parametrize("command", [["serve", "--listen", "127.0.0.1:0"], ["migrate"], ["restore", "COPY"]])
def test_a_path_that_is_mistyped_makes_no_folders(
    run: Run, copy: Path, tmp_path: Path, command: list[str]
) -> None:
    missing = tmp_path / "missing" / "folders"
    words = [str(copy) if word == "COPY" else word for word in command]
    done = run(*words, "--db", f"sqlite:///{missing}/kcache.sqlite")
    assert done.code == 5
    assert f"mkdir -p -m 700 {missing}" in " ".join(done.err.split())
    assert not missing.parent.exists()


@pytest.mark.issue(number=19, point=28)
def test_the_state_directory_is_made(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCACHE_STATE_DIR", str(tmp_path / "state"))
    assert run("migrate").code == 0
    assert (tmp_path / "state" / "kcache.sqlite").exists()
