"""Commands for operators on a real store: what they print, change, and exit with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kcache_grpc.model.signing import Signer
from kcache_grpc.storage import open_store
from tests.cli.conftest import Run
from tests.storage.drafts import graph, kernel, program, spec
from tests.storage.inside import raw, tamper


@pytest.fixture(scope="module")
def filled_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three kernels that look old."""
    url = f"sqlite:///{tmp_path_factory.mktemp('made')}/kcache.sqlite"
    with open_store(url, migrate=True) as store:
        ns = store.get_or_create_namespace("default")
        for number in range(3):
            store.put_graph(ns, graph(number))
            store.publish_kernel(ns, kernel(number))
    with raw(path_of(url)) as connection:
        connection.execute("UPDATE usage SET last_used_at = 1000")
    return path_of(url)


@pytest.fixture
def url(filled_store: Path, tmp_path: Path) -> str:
    """A copy of that."""
    (tmp_path / "store").mkdir()
    shutil.copy(filled_store, tmp_path / "store" / "kcache.sqlite")
    return f"sqlite:///{tmp_path}/store/kcache.sqlite"


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def digest(number: int) -> str:
    return kernel(number).kernel.kernel_digest.hex()


def test_gc_counts_first_and_removes_then(run: Run, url: str) -> None:
    requirements = ["--older-than", "30d", "--db", url, "--json"]
    dry = run("gc", *requirements).json()
    real = run("gc", "--apply", *requirements).json()
    assert dry["dry_run"]
    assert not real["dry_run"]
    assert dry["namespaces"] == real["namespaces"]
    assert real["namespaces"][0]["rows"]["idle_kernels"] == 3
    assert run("gc", "--dry-run", *requirements).json()["namespaces"][0]["rows"]["idle_kernels"] == 0
    assert "removed" in run("gc", "--apply", "--db", url).out
    with open_store(url) as store:
        assert store.count_specs(store.list_namespaces()[0]) == 3


def test_pins_keep_and_what_cannot_be_met_is_a_warning(run: Run, url: str) -> None:
    assert run("pin", "kernel", digest(0), "--reason", "golden", "--db", url, "--json").json()["created"]
    done = run("gc", "--apply", "--max-bytes", "0", "--db", url, "--json")
    assert done.json()["namespaces"][0]["unmet"] == ["--max-bytes"]
    assert "is not met" in done.err
    assert run("pins", "--db", url, "--json").json()[0]["reason"] == "golden"
    assert run("unpin", "kernel", digest(0), "--db", url, "--json").json()["removed"]
    assert run("pin", "spec", spec(0).spec_digest.hex(), "--db", url).code == 0
    assert run("pin", "mapping", program(0).hex(), "--db", url).code == 0


def test_trusted_roles(run: Run, url: str) -> None:
    def trusted(*arguments: str) -> list[str]:
        return run("quota", "trusted-roles", *arguments, "--db", url, "--json").json()["trusted_roles"]

    assert trusted("default") == []
    assert trusted("default", "--role", "ci", "--role", "admin") == ["admin", "ci"]
    assert trusted("default") == ["admin", "ci"]
    assert trusted("new") == []
    assert "trusts assertions of admin, ci" in run("quota", "trusted-roles", "default", "--db", url).out
    assert run("quota", "trusted-roles", "default", "--role", "CI", "--db", url).code == 5
    assert run("quota", "trusted-roles", "default", "--role", "ci", "--none", "--db", url).code == 5
    assert trusted("default", "--none") == []
    with open_store(url) as store:
        space = store.find_namespace("default")
        assert space is not None
        assert store.find_namespace("new") is None
        events = [record.event for record in store.list_audit(space, 0, 100)]
    assert [event.outcome for event in events if event.kind == "admin"] == ["trusted_roles"] * 2


def test_quotas(run: Run, url: str) -> None:
    quota = run("quota", "set", "default", "kernels", "2", "--db", url, "--json").json()
    assert (quota["used"], quota["most"], quota["policy"]) == (3, 2, "evict")
    assert run("gc", "--apply", "--db", url, "--json").json()["namespaces"][0]["rows"]["idle_kernels"] == 1
    assert run("quota", "list", "--db", url, "--json").json()[0]["used"] == 2
    assert run("quota", "set", "default", "specs", "1M", "--db", url, "--json").json()["policy"] == "refuse"
    assert run("quota", "remove", "default", "kernels", "--db", url).code == 0
    assert len(run("quota", "list", "--db", url, "--json").json()) == 1


def test_epochs_and_toolchains(run: Run, url: str) -> None:
    assert run("epoch", "raise", "default", "--apply", "--db", url, "--json").json()["epoch"] == 2
    assert run("epoch", "list", "--db", url, "--json").json() == [{"namespace": "default", "epoch": 2}]
    toolchain = "ab" * 32
    disown = ["disown", "--toolchain", toolchain, "--db", url, "--json"]
    assert run(*disown, "--apply", "--reason", "wrong").json()["changed"] == ["default"]
    assert run("disown", "--db", url, "--json").json()[0]["reason"] == "wrong"
    assert run(*disown, "--undo").json()["changed"] == ["default"]
    assert "no toolchain" in run("disown", "--db", url).out


def test_everything_says_who_did_it(run: Run, url: str) -> None:
    run("epoch", "raise", "default", "--reason", "for the log", "--apply", "--db", url)
    with open_store(url) as store:
        ns = store.list_namespaces()[0]
        (event,) = [each.event for each in store.list_audit(ns, limit=99) if each.event.kind == "admin"]
    assert event.actor.startswith("kcache-cli/")
    assert event.peer.startswith("user:")
    assert json.loads(event.detail)["reason"] == "for the log"


def test_verify_exits_with_one_for_what_is_wrong(run: Run, url: str, tmp_path: Path) -> None:
    # These rows were never signed or described: all of them are wrong.
    command = ["verify", "--all", "--no-compile", "--db", url, "--json"]
    done = run(*command)
    assert done.code == 1
    report = json.loads(done.out)
    assert not report["healthy"]
    assert {fault["subject"] for fault in report["faults"]} == {"kernel", "mapping"}
    assert "signatures were not checked" in done.err
    key = tmp_path / "signing.key"
    with open_store(url) as store:
        store.claim_signer(Signer.from_file(key).key_id)
    assert run(*command, "--key-file", key, "--apply", "--yes").code == 1
    assert run(*command, "--key-file", key).json()["healthy"]
    assert run(*command, "--key-file", tmp_path / "none").code == 9


def test_doctor_looks_at_the_store(run: Run, url: str) -> None:
    assert run("doctor", "--db", url, "--json").json()["healthy"]
    tamper(path_of(url), "UPDATE key_counters SET last_key = 1")
    done = run("doctor", "--db", url, "--json")
    assert done.code == 1
    checks = {check["name"]: check for check in json.loads(done.out)["checks"]}
    assert checks["store: key counters"]["state"] == "failed"
    assert "UPDATE key_counters" in checks["store: key counters"]["advice"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["gc", "--older-than", "soon"], 5),
        (["gc", "--max-bytes", "many"], 5),
        (["gc", "--namespace", "none"], 9),
        (["quota", "set", "default", "gold", "1"], 5),
        (["quota", "set", "Bad Name", "kernels", "1"], 5),
        (["quota", "set", "default", "kernels", "1", "--policy", "hope"], 5),
        (["pin", "kernel", "abc"], 5),
        (["pin", "hope", "ab" * 32], 5),
        (["epoch", "raise", "none"], 9),
        (["disown", "--toolchain", "abc"], 5),
        (["disown", "--undo"], 5),
        (["restore", "/nonexistent"], 5),
        (["quota"], 2),
    ],
)
def test_wrong_arguments_have_their_codes(run: Run, url: str, arguments: list[str], code: int) -> None:
    extra = [] if arguments == ["quota"] else ["--db", url]
    assert run(*arguments, *extra).code == code


@pytest.mark.parametrize("command", [["gc"], ["verify"], ["pins"], ["epoch", "list"]])
def test_no_store_is_made(run: Run, tmp_path: Path, command: list[str]) -> None:
    done = run(*command, "--db", f"sqlite:///{tmp_path}/none.sqlite")
    assert done.code == 1
    assert "kcache migrate" in done.err
    assert not (tmp_path / "none.sqlite").exists()
