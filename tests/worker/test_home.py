"""Folders of workers go, also after their parents were killed."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from pathlib import Path

import pytest

from kcache_grpc.worker.home import Home, remove_left_homes


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_home_is_private_and_goes() -> None:
    home = Home()
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    (home.path / "object.o").write_bytes(b"x")
    home.close()
    assert not home.path.exists()


def test_only_settled_folders_that_nobody_holds_are_removed(temporary: Path) -> None:
    held, young = Home(), temporary / "kcache-worker-young"
    left, other = temporary / "kcache-worker-left", temporary / "other"
    later = time.time() + 1000
    for folder in (young, left, other):
        folder.mkdir()
    (left / "object.o").write_bytes(b"x")
    os.utime(young, (later, later))
    (temporary / "kcache-worker-file").write_text("no folder")
    (temporary / "kcache-worker-link").symlink_to(other)
    remove_left_homes()
    assert left.exists()
    remove_left_homes(later)
    assert not left.exists()
    assert {path.name for path in temporary.iterdir()} == {
        held.path.name, "kcache-worker-young", "other", "kcache-worker-file", "kcache-worker-link"
    }  # fmt: skip
    held.close()
