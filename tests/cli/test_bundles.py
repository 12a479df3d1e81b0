"""``kcache bundle``: list, verify, export and import, with kernels of real servers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import kcache_grpc as kcache
from kcache_grpc.bundle import SpecEntry
from kcache_grpc.model.signing import Signer, server_id
from tests.bundle.making import metadata_of, stored_entries, written
from tests.cli.command import ADD
from tests.cli.conftest import Run
from tests.serving import ServerProcess

pytestmark = pytest.mark.issue(number=20, point=4)


@pytest.fixture(scope="module")
def bundle(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A whole bundle, and the identity of its signer, which is the server's own."""
    folder = tmp_path_factory.mktemp("bundles")
    program = ADD.replace("4x8", "6x8")
    with kcache.Client(server.address, cache_dir=folder / "cache", strict=True) as client:
        client.compile(program)
        graph = client.normalize(program)
        spec = client.lookup(program)
    assert spec is not None
    entry = SpecEntry(graph.digest, graph.text, spec.numerics, spec.canonicalizer)
    entries = [entry, *stored_entries(folder / "cache")]
    signer = Signer.from_file(next(server.database.parent.glob("state/**/*key*")))
    path = folder / "add.kcb"
    path.write_bytes(written(entries, signer, metadata_of(entries)))
    return path, server_id(signer.public_key)


def test_a_whole_bundle_verifies_without_a_service(bundle: tuple[Path, str], run: Run) -> None:
    path, signer = bundle
    done = run("bundle", "verify", path, "--trust", signer, "--target", "host")
    assert (done.code, done.err) == (0, "")
    assert f"whole, signed by {signer}, 1 spec, 1 mapping, 1 kernel, 1 artifact" in " ".join(done.out.split())
    assert run("bundle", "verify", path, "--trust", signer, "--json").json()["findings"] == []


def test_what_is_no_regular_file_is_a_finding(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.kcb")
    (tmp_path / "link.kcb").symlink_to(tmp_path / "fifo.kcb")
    for path in (tmp_path, tmp_path / "fifo.kcb", tmp_path / "link.kcb", tmp_path / ("n" * 300)):
        done = run("bundle", "verify", path, "--json")
        assert done.code == 1
        assert [finding["finding"] for finding in json.loads(done.out)["findings"]] == ["path"]


def test_the_setting_names_trusted_signers(
    bundle: tuple[Path, str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, signer = bundle
    untrusted = run("bundle", "verify", path)
    assert untrusted.code == 1
    assert "untrusted" in untrusted.out
    assert signer in untrusted.out
    monkeypatch.setenv("KCACHE_TRUST", signer)
    assert run("bundle", "verify", path).code == 0


def test_another_target_and_a_wrong_identity(bundle: tuple[Path, str], run: Run) -> None:
    path, signer = bundle
    other = run("bundle", "verify", path, "--trust", signer, "--target", "aarch64")
    assert other.code == 1
    assert "the bundle has no kernel for aarch64" in other.out
    assert run("bundle", "verify", path, "--trust", "me").code == 5


def test_the_list_has_every_entry(bundle: tuple[Path, str], run: Run) -> None:
    path, signer = bundle
    listed = run("bundle", "list", path, "--json").json()
    assert listed["signer"] == signer
    assert listed["counts"] == {"spec": 1, "mapping": 1, "kernel": 1, "artifact": 1}
    assert [entry["kind"] for entry in listed["entries"]] == ["spec", "mapping", "kernel", "artifact"]
    [kernel] = [entry for entry in listed["entries"] if entry["kind"] == "kernel"]
    assert kernel["attributes"]["target"] == listed["targets"][0]
    page = run("bundle", "list", path).out
    assert all(entry["name"] in page for entry in listed["entries"])


def test_a_bundle_goes_from_one_service_to_another(
    served: Run, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.mlir"
    program.write_text(ADD.replace("4x8", "9x8"))
    assert served("compile", program, "--namespace", "moved").code == 0
    nothing = served("bundle", "export", tmp_path / "none.kcb")
    assert nothing.code != 0
    assert "--all" in nothing.err
    path = tmp_path / "moved.kcb"
    exported = served("bundle", "export", path, "--all", "--namespace", "moved", "--json").json()
    assert (exported["entries"]["kernel"], exported["skipped"]) == (1, 0)
    with ServerProcess(tmp_path / "other") as other:
        socket = f"unix:{tmp_path}/other/run/kcache.sock"
        monkeypatch.setenv("KCACHE_ADDR", socket)
        rejected = served("bundle", "import", path)
        assert rejected.code != 0
        assert exported["signer"] in rejected.err
        imported = served("bundle", "import", path, "--trust", exported["signer"], "--json").json()
        assert ({item["kind"] for item in imported["new"]}, imported["rejected"]) == (
            {"mapping", "kernel"},
            [],
        )
        assert served("compile", program, "--json").json()["origin"] == "preloaded"
        assert other.address
