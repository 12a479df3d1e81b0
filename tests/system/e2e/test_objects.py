"""A server whose artifacts are in an object store: what clients see when bytes are lost or cannot be had."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kcache_grpc as kcache
from tests.serving import ServerProcess
from tests.system.e2e.programs import scale_and_shift

X = np.arange(12, dtype=np.float32).reshape(4, 3)
#: Weights above 1 KiB are no part of the spec: the service keeps them as blobs, and sends them.
WEIGHTS = np.linspace(-1, 1, 512, dtype=np.float32)
WITH_WEIGHTS = f"""
func.func @main(%x: tensor<512xf32>) -> tensor<512xf32> {{
  %w = stablehlo.constant dense<[{", ".join(f"{w:.9e}" for w in WEIGHTS)}]> : tensor<512xf32>
  %y = stablehlo.multiply %x, %w : tensor<512xf32>
  return %y : tensor<512xf32>
}}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    arguments = ("--objects", f"file://{tmp_path}/objects", "--objects-inline-bytes", "0", "--workers", "1")
    with ServerProcess(tmp_path, *arguments) as running:
        yield running


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    return tmp_path / "objects" / "objects"


class Clients:
    """Each as new as the other: nothing in memory, nothing on disk."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._count = 0

    def compile(self, program: str, *inputs: np.ndarray) -> tuple[str, np.ndarray]:
        self._count += 1
        cache = self._folder / f"cache-{self._count}"
        with kcache.Client(self._server.address, cache_dir=cache, strict=True) as client:
            kernel = client.compile(program)
            return kernel.origin, kernel(*inputs)[0]


@pytest.fixture
def clients(server: ServerProcess, tmp_path: Path) -> Clients:
    return Clients(server, tmp_path)


def lose(objects: Path) -> int:
    files = [path for path in objects.glob("*/*") if path.is_file()]
    for path in files:
        path.unlink()
    return len(files)


@pytest.mark.parametrize(
    ("program", "inputs", "expected", "restart"),
    [
        pytest.param(WITH_WEIGHTS, (WEIGHTS,), WEIGHTS * WEIGHTS, True, id="weights"),
        pytest.param(
            WITH_WEIGHTS, (WEIGHTS,), WEIGHTS * WEIGHTS, False, id="in memory", marks=pytest.mark.long
        ),
        pytest.param(scale_and_shift(1), (X, X), 3 * X, True, id="small", marks=pytest.mark.long),
    ],
)
def test_lost_objects_are_a_miss_that_the_next_compile_repairs(
    server, clients, objects, program, inputs, expected, restart
):
    origin, first = clients.compile(program, *inputs)
    assert origin == "compiled"
    np.testing.assert_array_equal(first, expected)
    assert clients.compile(program, *inputs)[0] == "remote"
    assert lose(objects) > 0
    if restart:  # else the server has some of them in memory still
        server.stop()
        server.start()
    origin, again = clients.compile(program, *inputs)
    assert origin == "compiled" or not restart
    np.testing.assert_array_equal(again, first)
    assert clients.compile(program, *inputs)[0] == "remote"


@pytest.mark.long
def test_a_folder_that_is_away_is_an_error_and_no_loss(server, clients, objects, tmp_path):
    program = scale_and_shift(2)
    _, first = clients.compile(program, X, X)
    server.stop()
    server.start()
    objects.parent.rename(tmp_path / "away")
    objects.parent.mkdir()
    with pytest.raises(kcache.Unavailable, match="mounted"):
        clients.compile(program, X, X)
    shutil.rmtree(objects.parent)
    (tmp_path / "away").rename(objects.parent)
    origin, again = clients.compile(program, X, X)
    assert origin == "remote"
    np.testing.assert_array_equal(again, first)


def test_a_server_without_it_says_what_to_type(server, clients, tmp_path):
    clients.compile(scale_and_shift(3), X, X)
    server.stop()
    serve = [sys.executable, "-m", "kcache_grpc", "serve", "--db", f"sqlite:///{server.database}"]
    done = subprocess.run(
        [*serve, "--state-dir", str(tmp_path / "state"), "--listen", "127.0.0.1:0"],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode != 0
    assert f"--objects file://{tmp_path}/objects" in " ".join(done.stderr.split())


@pytest.mark.long
def test_the_doctor_looks_at_it_too(server, clients, tmp_path):
    clients.compile(scale_and_shift(4), X, X)
    for place, healthy in (("objects", True), ("elsewhere", False)):
        doctor = [sys.executable, "-m", "kcache_grpc", "doctor", "--json"]
        done = subprocess.run(
            [*doctor, "--db", f"sqlite:///{server.database}", "--objects", f"file://{tmp_path}/{place}"],
            check=False,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert json.loads(done.stdout)["healthy"] == healthy, done.stdout
