"""The replay kit with damaged packs, files that are no results, and runs that are killed or started twice."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax")

from benchmarks.gpu.kit import report
from tests.gpu.kit.packing import packs

#: Opens the pipe that ``PIPE`` names, and then hangs.
HANGING = """
import os, time
from types import SimpleNamespace

def execute(execution):
    pipe = open(os.environ["PIPE"], "w")
    print("x", file=pipe, flush=True)
    time.sleep(3600)

def open_device():
    said = {"device": "hanging", "capability": "9.0", "cuda": "none"}
    return SimpleNamespace(description=lambda: said, execute=execute)
"""
#: Cases fail without a GPU.
FAILING = """
from types import SimpleNamespace
from kcache_grpc.errors import KcacheError

def execute(execution):
    raise KcacheError("not executed")

def open_device():
    said = {"device": "failing", "capability": "9.0", "cuda": "none"}
    return SimpleNamespace(description=lambda: said, execute=execute)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kit") / "pack"
    packs.write(folder, [packs.sources()["template/pointwise/f32/3x5"]])
    return folder


@pytest.fixture
def pack(whole: Path, tmp_path: Path) -> Path:
    (tmp_path / "failing.py").write_text(FAILING)
    (tmp_path / "hanging.py").write_text(HANGING)
    return Path(shutil.copytree(whole, tmp_path / "pack"))


def command(pack: Path, results: Path, *options: str, driver: str = "failing") -> list[str]:
    arguments = ["--json", str(results), "--driver", str(pack.parent / f"{driver}.py"), *options]
    return [sys.executable, str(pack / "run.py"), *arguments]


def run(pack: Path, results: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(pack, results, *options), capture_output=True, text=True, timeout=120)


def _cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no index": (lambda pack: (pack / "index.json").unlink(), "is no pack"),
    "half an index": (lambda pack: _cut(pack / "index.json", 200), "is damaged"),
    "another value": (lambda pack: (pack / "index.json").write_text("[1]"), "is damaged"),
    "no cases": (lambda pack: (pack / "index.json").write_text('{"format": 2}'), "is damaged"),
    "another format": (lambda pack: (pack / "index.json").write_text('{"format": 1}'), "has format 1"),
    "no bundle": (lambda pack: (pack / "kernels.kcb").unlink(), "kernels.kcb is damaged"),
    "an empty bundle": (lambda pack: _cut(pack / "kernels.kcb", 0), "kernels.kcb is damaged"),
    "half a bundle": (lambda pack: _cut(pack / "kernels.kcb", 900), "kernels.kcb is damaged"),
    "a bit": (lambda pack: _flip(pack / "kernels.kcb"), "kernels.kcb is damaged"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", DAMAGE)
def test_nothing_of_a_damaged_pack_is_executed(pack: Path, tmp_path: Path, name: str) -> None:
    damage, message = DAMAGE[name]
    damage(pack)
    done = run(pack, tmp_path / "results.jsonl")
    assert (done.returncode, message in done.stderr, "Traceback" in done.stderr) == (2, True, False), done
    assert not (tmp_path / "results.jsonl").exists()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--minutes", "nan"], "--minutes"),
        (["--minutes=-1"], "--minutes"),
        (["--part", "1/1"], "--part"),
        (["--only", "no such case"], "no case of the pack has 'no such case'"),
        (["--json", "/dev/full"], "/dev/full is no file"),
        (["--json", "/no such folder/results"], "cannot write"),
    ],
)
def test_options_that_make_no_sense_are_named(
    pack: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    done = run(pack, tmp_path / "results.jsonl", *options)
    assert (done.returncode, message in done.stderr, "Traceback" in done.stderr) == (2, True, False), done


def test_a_file_that_has_no_results_is_not_changed(pack: Path, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    for content in (b"notes", b'{"result": {}}\n', b'{"session": 5}\n5\n', bytes(range(256))):
        file.write_bytes(content)
        done = run(pack, file)
        assert (done.returncode, "is no file of results" in done.stderr) == (2, True), done
        assert file.read_bytes() == content


def test_no_time_executes_nothing(pack: Path, tmp_path: Path) -> None:
    done = run(pack, tmp_path / "results.jsonl", "--minutes", "0")
    assert (done.returncode, done.stdout.splitlines()[1:]) == (
        0,
        ["the time is over; 1 cases are left", "nothing was executed"],
    )


@contextmanager
def _hanging(pack: Path, results: Path) -> Generator[tuple[subprocess.Popen[str], Any]]:
    """A run whose first case hangs, and the pipe that its child holds."""
    pipe = pack.parent / "pipe"
    os.mkfifo(pipe)
    # A background job of a shell ignores SIGINT, and a child inherits that.
    listens = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    listens += "os.execv(sys.argv[1], sys.argv[1:])"
    line = [sys.executable, "-c", listens, *command(pack, results, "--limit", "600", driver="hanging")]
    process = subprocess.Popen(
        line, env={**os.environ, "PIPE": str(pipe)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        with pipe.open() as reader:
            assert reader.readline() == "x\n"
            yield process, reader
    finally:
        process.kill()
        process.communicate()


def _ended(reader: Any) -> bool:
    return bool(select.select([reader], [], [], 60)[0]) and reader.read() == ""


def test_a_second_run_does_not_write_to_the_same_file(pack: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    with _hanging(pack, results):
        before = results.read_bytes()
        done = run(pack, results)
        assert (done.returncode, "another run writes to" in done.stderr) == (2, True), done
        assert results.read_bytes() == before
    assert run(pack, results).returncode == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_child_ends_with_its_run(pack: Path, tmp_path: Path, number: signal.Signals, status: int) -> None:
    with _hanging(pack, tmp_path / "results.jsonl") as (process, reader):
        process.send_signal(number)
        assert process.wait(timeout=240) == status
        assert _ended(reader)


def test_what_is_no_run_on_a_gpu_is_not_reported(pack: Path, tmp_path: Path) -> None:
    page, file = tmp_path / "page.md", tmp_path / "results.jsonl"
    assert run(pack, file).returncode == 1
    contents = [file.read_bytes(), bytes(range(256)), b"5\n[1]\nnull\n", (pack / "index.json").read_bytes()]
    contents += [json.dumps({"session": session}).encode() for session in (5, {}, {"executor": ""})]
    for content in contents:
        file.write_bytes(content)
        assert report.main([str(file), "--page", str(page)]) == 2, content
    assert report.main([str(tmp_path / "missing"), "--page", str(page)]) == 2
    assert not page.exists()
