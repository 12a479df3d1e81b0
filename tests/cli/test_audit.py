"""``kcache audit``: over a server, and on a store without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kcache_grpc.model.signing import Signer
from kcache_grpc.storage import open_store
from tests.cli.conftest import Run
from tests.service.audit.audit_log import append, meddling, sealer
from tests.serving import ServerProcess


@pytest.fixture
def asked(server: ServerProcess) -> list[str]:
    return ["--addr", server.address, "--namespace", "cli-audit"]


def test_events_are_listed_and_exported(
    run: Run, asked: list[str], add_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KCACHE_JOB", "nightly")
    monkeypatch.setenv("KCACHE_ACTOR", "ada")
    assert run("compile", add_file, *asked).code == 0
    events = run("audit", "list", "job = nightly AND kind = publish", "--json", *asked).json()
    assert [(event["actor"], event["outcome"]) for event in events] == [("ada", "ok")]
    assert "nightly" in run("audit", "list", *asked).out
    lines = [json.loads(line) for line in run("audit", "export", "job=nightly", *asked).out.splitlines()]
    assert [line["id"] for line in lines] == sorted(line["id"] for line in lines)
    assert {"store", "publish"} <= {line["kind"] for line in lines}
    rest = run("audit", "export", "job=nightly", "--after", str(lines[0]["id"]), *asked).out.splitlines()
    assert [json.loads(line) for line in rest] == lines[1:]
    wrong = run("audit", "list", "job >", "--json", *asked)
    assert wrong.code == 5
    assert wrong.error()["metadata"]["field"] == "filter"
    # The server seals each minute: there is one head by now, or none.
    assert len(run("audit", "heads", "--json", *asked).json()["heads"]) <= 1


@pytest.fixture
def store(tmp_path: Path) -> list[str]:
    """Options that name a store of 20 sealed events and 5 of a writer that died."""
    key = tmp_path / "key"
    signer = Signer.from_file(key)
    for count in (20, 5):
        with open_store(f"sqlite:///{tmp_path}/s.sqlite", migrate=True) as opened:
            opened.claim_signer(signer.key_id)
            making = sealer(opened, signer)
            append(opened, count)
            if count == 20:
                making.seal_own()
    return ["--db", f"sqlite:///{tmp_path}/s.sqlite", "--key-file", str(key)]


def test_a_log_is_sealed_proven_and_pruned(run: Run, store: list[str], tmp_path: Path) -> None:
    db = store[:2]
    report = run("audit", "verify", "--json", *db).json()
    assert (report["sound"], report["events"], report["unsealed"]) == (True, 20, 5)
    assert run("audit", "verify", "--strict", *db).code == 1
    assert run("audit", "seal", "--json", *store).json() == {"sealed": 5}
    heads = tmp_path / "heads.json"
    heads.write_text(run("audit", "heads", "--json", *db).out)
    report = run("audit", "verify", "--strict", "--heads", heads, "--json", *db).json()
    assert (report["sound"], report["keys"], report["events"]) == (True, "given", 26)
    dry = run("audit", "prune", "--before", "1970-01-01", "--dry-run", "--json", *store).json()
    assert dry["events"] == 0
    assert run("audit", "prune", "--before", "0s", "--json", *store).json()["events"] == 26
    report = run("audit", "verify", "--strict", "--heads", heads, "--json", *db).json()
    assert (report["sound"], report["pruned_events"], report["unsealed"]) == (True, 26, 0)


def test_what_was_changed_is_named(run: Run, store: list[str], tmp_path: Path) -> None:
    db = store[:2]
    heads = tmp_path / "heads.json"
    heads.write_text(run("audit", "heads", "--json", *db).out)
    with meddling(tmp_path / "s.sqlite") as connection:
        connection.execute("UPDATE audit_events SET actor = 'mallory' WHERE id = 7")
    done = run("audit", "verify", *db)
    assert done.code == 1
    assert "the event was changed" in done.out
    done = run("audit", "verify", "--json", *db)
    (finding,) = json.loads(done.out)["findings"]
    assert (finding["sequence"], finding["event_id"]) == (1, 7)
    rejected = run("audit", "prune", "--before", "0s", "--json", *store)
    assert rejected.code == 11
    with meddling(tmp_path / "s.sqlite") as connection:
        connection.execute("DELETE FROM audit_seals")
        connection.execute("DELETE FROM audit_events")
    done = run("audit", "verify", "--json", *db)
    assert done.code == 1
    assert json.loads(done.out)["findings"] == []
    assert "audit_days has" in json.loads(done.out)["wrong_summaries"][0]
    done = run("audit", "rebuild", "--json", *db)
    assert (done.code, json.loads(done.out)["still_wrong"]) == (0, [])
    assert "audit_days has" in json.loads(done.out)["wrong_summaries"][0]
    assert run("audit", "verify", *db).code == 0
    assert "say what the events say" in run("audit", "rebuild", *db).out
    assert run("audit", "verify", "--heads", heads, *db).code == 1


def test_wrong_usage_says_what_to_do(run: Run, store: list[str], tmp_path: Path) -> None:
    db, other = store[:2], tmp_path / "other.json"
    assert run("audit", "verify", "--heads", tmp_path / "none", "--json", *db).code == 9
    other.write_text("[]")
    assert run("audit", "verify", "--heads", other, "--json", *db).code == 5
    other.write_text('{"store_id": "x", "heads": [], "public_keys": []}')
    assert "is of store x" in run("audit", "verify", "--heads", other, "--json", *db).err
    assert run("audit", "verify", "--public-key", "xyz", "--json", *db).code == 5
    assert run("audit", "verify", "--public-key", "0" * 64, "--json", *db).code == 1
    assert run("audit", "prune", "--before", "soon", "--json", *store).code == 5
    missing = [*db, "--key-file", str(tmp_path / "absent")]
    assert run("audit", "seal", "--json", *missing).code == 9
    Signer.from_file(tmp_path / "another")
    assert run("audit", "seal", "--json", *db, "--key-file", tmp_path / "another").code == 12
