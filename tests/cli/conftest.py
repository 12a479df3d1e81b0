"""One server for all tests of the command line, and the command inside this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kcache_grpc.cli import main
from kcache_grpc.server import ServerConfig
from kcache_grpc.storage import open_store
from tests.cli.command import ADD
from tests.server.harness.programs import add, compile_request, inline, result_of
from tests.server.harness.running import config_in, running
from tests.serving import ServerProcess


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("cli-server"), "--workers", "1") as process:
        yield process


@pytest.fixture
def add_file(tmp_path: Path) -> Path:
    path = tmp_path / "add.mlir"
    path.write_text(ADD)
    return path


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """What it printed, once it succeeded."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    def error(self) -> Any:
        """What it complained of with --json."""
        assert self.out == ""
        return json.loads(self.err)["error"]


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``kcache`` in this process, with a cache folder of the test's own."""
    monkeypatch.setenv("KCACHE_CACHE_DIR", str(tmp_path / "cache"))

    def call(*arguments: str | Path) -> Done:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


@pytest.fixture
def served(run: Run, server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same, with the server as its service."""
    monkeypatch.setenv("KCACHE_ADDR", server.address)
    return run


#: Sizes of the programs of a filled store.
ROWS = (71, 72)


@dataclass(frozen=True)
class Made:
    """A store that a server filled and left, and the server's key file."""

    url: str
    key: Path

    def counts(self) -> tuple[int, int]:
        """Kernels and mappings of the default namespace."""
        with open_store(self.url) as store:
            space = store.find_namespace("default")
            assert space is not None
            stats = store.stats(space)
            return stats.kernels, stats.mappings

    def epoch(self) -> int:
        with open_store(self.url) as store:
            return store.list_namespaces()[0].epoch


def fill(config: ServerConfig) -> None:
    """Compile two kernels by a server with these settings."""
    with running(config) as server:
        for rows in ROWS:
            result_of(server.stub.CompileKernel(compile_request(inline(add(rows)))))


@pytest.fixture(scope="session")
def sqlite_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled")
    fill(config_in(folder))
    return folder


@pytest.fixture
def sqlite(sqlite_made: Path, tmp_path: Path) -> Made:
    folder = shutil.copytree(sqlite_made, tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock*"))
    return Made(f"sqlite:///{folder}/kcache.sqlite", folder / "state" / "signing.key")
