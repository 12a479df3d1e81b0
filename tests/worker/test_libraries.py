"""What workers share is there whole, as it was saved, in a folder of the user's own, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kcache_compiler import LibraryCache
from kcache_grpc.worker.libraries import LibraryDirectory


@pytest.fixture
def folder(tmp_path: Path) -> LibraryDirectory:
    return LibraryDirectory(tmp_path / "state" / "libraries")


def test_another_process_reads_what_one_saved(folder: LibraryDirectory) -> None:
    kept: LibraryCache = folder
    assert kept.load("a") is None
    kept.save("a", b"code")
    program = "import sys, pathlib; from kcache_grpc.worker.libraries import LibraryDirectory;"
    program += "sys.stdout.buffer.write(LibraryDirectory(pathlib.Path(sys.argv[1])).load('a'))"
    told = subprocess.run([sys.executable, "-c", program, folder.path], check=True, capture_output=True)
    assert told.stdout == b"code"
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.path.iterdir()] == ["a"]


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "longer", "of another name"])
def test_a_file_that_differs_is_not_read_and_goes(folder: LibraryDirectory, damage: str) -> None:
    folder.save("a", b"code" * 100)
    file = folder.path / "a"
    data = file.read_bytes()
    flipped = bytes([data[-1] ^ 1])
    folder.save("b", b"other")
    damaged = {
        "cut": data[:-1],
        "bit": data[:-1] + flipped,
        "empty": b"",
        "longer": data + b"x",
        "of another name": (folder.path / "b").read_bytes(),
    }
    file.write_bytes(damaged[damage])
    assert folder.load("a") is None
    assert not file.exists()
    folder.save("a", b"again")
    assert folder.load("a") == b"again"


@pytest.mark.parametrize("opened", ["folder", "file"])
def test_what_others_may_write_is_not_read(folder: LibraryDirectory, opened: str) -> None:
    folder.save("a", b"code")
    (folder.path if opened == "folder" else folder.path / "a").chmod(0o770)
    assert folder.load("a") is None
    folder.save("b", b"code")
    assert (folder.path / "b").exists() == (opened == "file")


@pytest.mark.parametrize("linked", ["folder", "file"])
def test_links_are_not_followed(folder: LibraryDirectory, tmp_path: Path, linked: str) -> None:
    folder.save("a", b"code")
    if linked == "folder":
        (tmp_path / "link").symlink_to(folder.path)
        folder = LibraryDirectory(tmp_path / "link")
    else:
        (folder.path / "a").rename(tmp_path / "elsewhere")
        (folder.path / "a").symlink_to(tmp_path / "elsewhere")
    assert folder.load("a") is None


def test_the_folder_is_bounded_and_keeps_what_was_used_last(tmp_path: Path) -> None:
    folder = LibraryDirectory(tmp_path / "libraries", most_bytes=400)
    for age, name in enumerate("abc"):
        folder.save(name, b"x" * 60)
        os.utime(folder.path / name, (age, age))
    assert folder.load("a") == b"x" * 60
    for name in "de":
        folder.save(name, b"x" * 60)
    assert {path.name for path in folder.path.iterdir()} == {"a", "c", "d", "e"}
    folder.save("huge", b"x" * 401)
    assert folder.load("huge") is None
    assert folder.load("a") is not None


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = LibraryDirectory(tmp_path / "file" / "libraries")
    folder.save("a", b"code")
    assert folder.load("a") is None


def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(folder: LibraryDirectory) -> None:
    folder.save("a", b"code")
    os.mkfifo(folder.path / "b", 0o600)
    assert folder.load("b") is None
    assert folder.load("a") == b"code"
