"""`make check` finds stale generated code, undocumented fields and changes that break released clients."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.repository.sources import ROOT

PYTHON = ROOT / ".venv-proto" / "bin" / "python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="`make proto` or `make check` makes .venv-proto")

PROTO = """// A file.
syntax = "proto3";

package kcache.v1;

// A message.
message Thing {
  // A field.
  string name = 1;
  // Another.
  int64 size = 2;
}

// A service.
service Things {
  // A method.
  rpc GetThing(GetThingRequest) returns (stream GetThingResponse);
}

// A request.
message GetThingRequest {}

// A response.
message GetThingResponse {}
"""


@pytest.fixture
def tree(tmp_path) -> Path:
    """A project with one proto, generated code, and release 0.1.0 of it."""
    (tmp_path / "scripts").mkdir()
    for script in ("generate_protos.py", "grpc_stubs.py"):
        shutil.copy(ROOT / "scripts" / script, tmp_path / "scripts")
    (tmp_path / "protos" / "kcache" / "v1").mkdir(parents=True)
    shutil.copy(ROOT / "protos" / "buf.yaml", tmp_path / "protos")
    edit(tmp_path, PROTO)
    assert run(tmp_path, "write").returncode == 0
    assert run(tmp_path, "release", "0.1.0").returncode == 0
    return tmp_path


def test_fresh_documented_and_compatible_code_passes(tree):
    ran = run(tree, "check")
    assert ran.returncode == 0, ran.stdout
    assert "compatible with release 0.1.0" in ran.stdout


def test_an_added_field_is_stale_until_generated_and_then_compatible(tree):
    edit(tree, PROTO.replace("int64 size = 2;", "int64 size = 2;\n  // More.\n  bool more = 3;"))
    assert "stale" in run(tree, "check").stdout
    run(tree, "write")
    assert run(tree, "check").returncode == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int64 size = 2;", "int64 size = 3;"),
        ("int64 size = 2;", "string size = 2;"),
        ("  // Another.\n  int64 size = 2;\n", ""),
        ("stream GetThingResponse", "GetThingResponse"),
    ],
    ids=["renumbered", "retyped", "removed", "no longer streamed"],
)
def test_a_change_that_breaks_released_clients_is_rejected(tree, old, new):
    edit(tree, PROTO.replace(old, new))
    run(tree, "write")
    ran = run(tree, "check")
    assert ran.returncode != 0
    assert "BREAK" in ran.stdout


def test_an_undocumented_field_is_rejected(tree):
    edit(tree, PROTO.replace("  // A field.\n", ""))
    run(tree, "write")
    assert run(tree, "check").returncode != 0


def test_generated_code_without_a_source_is_stale(tree):
    (tree / "kcache_grpc" / "_proto" / "kcache" / "v1" / "gone_pb2.py").write_text("")
    assert "gone_pb2.py" in run(tree, "check").stdout


def test_a_release_is_never_overwritten(tree):
    assert run(tree, "release", "0.1.0").returncode != 0


def edit(tree: Path, text: str) -> None:
    (tree / "protos" / "kcache" / "v1" / "thing.proto").write_text(text)


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(PYTHON), "scripts/generate_protos.py", *arguments]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, timeout=240)
