"""``kcache cache``, ``kcache pins``, and what ``kcache doctor`` says of the embedded store."""

from __future__ import annotations

import fcntl
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kcache_grpc import Client, IntegrityError, embedded
from kcache_grpc.model.signing import Signer
from kcache_grpc.storage import open_store
from tests.cli.command import ADD
from tests.cli.conftest import Run
from tests.client.fake import FakeService, serving


def new_store(folder: Path) -> None:
    """A store as the embedded service leaves one."""
    folder.mkdir(mode=0o700, parents=True)
    key = Signer.from_file(folder / "signing.key")
    with open_store(f"sqlite:///{embedded.store_file(folder)}", migrate=True) as store:
        store.claim_signer(key.key_id)


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    """The folder that ``run`` uses, with a file in each part."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    for name in ("kernels", "blobs", "servers", "caches", "pins"):
        (folder / name / "ab").mkdir(parents=True)
        (folder / name / "ab" / "file").write_bytes(b"12345678")
    new_store(embedded.state_dir(folder))
    return folder


def checked(run: Run, name: str) -> Any:
    return next(check for check in run("doctor", "--json").json()["checks"] if check["name"] == name)


@pytest.mark.issue(number=19, point=20)
def test_info_shows_paths_sizes_and_entries(run: Run, cache_dir: Path) -> None:
    described = run("cache", "info", "--json").json()
    parts = {part["part"]: part for part in described["parts"]}
    assert described["cache_dir"] == str(cache_dir)
    for name in ("kernels", "blobs", "servers", "caches", "pins"):
        assert (parts[name]["path"], parts[name]["entries"], parts[name]["bytes"]) == (
            str(cache_dir / name),
            1,
            8,
        )
    store = parts["embedded store"]
    assert (store["entries"], store["problem"]) == (0, "")
    assert store["bytes"] > 4096
    assert str(cache_dir / "blobs") in run("cache", "info").out


@pytest.mark.issue(number=19, point=20)
def test_clear_asks_and_keeps_pins(run: Run, cache_dir: Path) -> None:
    rejected = run("cache", "clear")
    assert rejected.code == 5
    assert "--yes" in rejected.err
    assert (cache_dir / "kernels").exists()
    assert run("cache", "clear", "--yes").code == 0
    assert [path.name for path in cache_dir.iterdir() if path.is_dir()] == ["pins"]
    assert run("cache", "clear", "--yes", "--json").json()["removed_bytes"] == 0


@pytest.mark.issue(number=19, point=20)
def test_clear_leaves_a_store_that_is_in_use(run: Run, cache_dir: Path) -> None:
    folder = embedded.state_dir(cache_dir)
    with (folder / embedded._IN_USE).open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        rejected = run("cache", "clear", "--yes")
        assert rejected.code == 10
        assert str(folder) in rejected.err
    assert embedded.store_file(folder).exists()


@pytest.mark.issue(number=19, point=20)
def test_doctor_checks_the_embedded_store(run: Run, cache_dir: Path) -> None:
    assert checked(run, "embedded store")["state"] == "ok"
    store = embedded.store_file(embedded.state_dir(cache_dir))
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("UPDATE store_meta SET value = 'other' WHERE name = 'signer'")
        connection.commit()
    other_key = checked(run, "embedded store")
    assert (other_key["state"], "not the key that signed it" in other_key["detail"]) == ("warning", True)
    store.write_bytes(b"\0" * 8192)
    damaged = checked(run, "embedded store")
    assert damaged["state"] == "warning"
    assert str(store) in damaged["detail"]
    assert "kcache cache clear" in damaged["advice"]
    embedded.state_dir(cache_dir).rename(cache_dir / "embedded.damaged-20260101T000000Z-abcd")
    assert "embedded.damaged-2026" in checked(run, "embedded store")["detail"]


@pytest.mark.issue(number=19, point=22)
def test_a_pin_is_listed_and_forgotten(run: Run, tmp_path: Path) -> None:
    service = FakeService()
    with serving(service) as server:

        def compiled(program: str = ADD) -> Any:
            with Client(server.address, cache_dir=tmp_path / "cache", strict=True, timeout=240) as client:
                return client.compile(program)

        compiled()
        [pin] = run("pins", "servers", "--json").json()
        assert pin["address"] == server.address
        service.signer = Signer.generate()
        with pytest.raises(IntegrityError, match=f"kcache pins forget {server.address}") as caught:
            compiled(ADD + "\n")
        assert pin["file"] in str(caught.value)
        assert run("pins", "forget", server.address).code == 0
        assert compiled(ADD + "\n").origin in ("remote", "compiled")
        assert run("pins", "servers", "--json").json()[0]["server_id"] != pin["server_id"]
    assert run("pins", "forget", "127.0.0.1:9").code == 9
    assert run("pins", "servers", "--json").json() != []


@pytest.mark.issue(number=19, point=22)
def test_the_pins_of_a_store_are_listed_as_before(run: Run, tmp_path: Path) -> None:
    new_store(tmp_path / "store")
    url = f"sqlite:///{embedded.store_file(tmp_path / 'store')}"
    assert run("pins", "--db", url, "--json").json() == []
    assert "identities" in run("pins", "--help").out
