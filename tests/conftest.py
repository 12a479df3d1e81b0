"""Settings that all tests share."""

from __future__ import annotations

import gc
import os
import random
import sys
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from tests import postgres, s3

if TYPE_CHECKING:
    import kcache_grpc as kcache
    from tests.serving import ServerProcess

# Deterministic in CI and by default: the same cases every run, whatever time they take on a shared machine.
_NO_DEADLINE: dict[str, Any] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("kcache", derandomize=True, max_examples=60, **_NO_DEADLINE)
hypothesis.settings.register_profile("search", derandomize=False, max_examples=2000, **_NO_DEADLINE)
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "kcache")
hypothesis.settings.load_profile(_PROFILE)
if _PROFILE == "kcache":
    # Hypothesis draws constants of the modules that happen to be imported, so cases would depend on what ran
    # before in the process, and each process would parse the sources of all tests.
    providers._get_local_constants = lambda: providers._local_constants

# JAX is a reference: its programs run once, and compiling one takes longer than running it. Read on import.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

#: Folders whose tests mostly wait for processes, longest first.
_WAITING = ("system", "server", "client", "worker")
#: The share of a run in which the files of these folders begin, so that none of them runs alone at the end.
_WAITING_UNTIL = 0.8

#: Bytes of the name of the folder of temporary files: Unix sockets lie far below it, in folders of tests, and
#: theirs may have 107.
_LONGEST = 12


def pytest_configure() -> None:
    """Before pytest makes its folder."""
    if len(tempfile.gettempdir()) > _LONGEST and os.access("/tmp", os.W_OK | os.X_OK):
        os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect tests without the garbage collector, which calls into JAX: what is imported is not garbage.

    Without bytecode, processes side by side would compile the same files at the same time.
    """
    if session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        session.config.args = _rotated(session.config.args)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def _rotated(roots: list[str]) -> list[str]:
    """What is in ``roots``, from another folder on in each process."""
    parts = sorted(
        {
            root / path.relative_to(root).parts[0]
            for root in map(Path, roots)
            for path in root.rglob("test_*.py")
        }
    )
    first = len(parts) * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first //= int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return list(map(str, parts[first:] + parts[:first]))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before items are selected by their marks."""
    _sample(items)
    _order(items)


def _sample(items: list[pytest.Item]) -> None:
    """Mark as long all but every ``N``-th case of each test that is marked ``sampled(N)``."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("long"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for group in cases.values():
        step = group[0].get_closest_marker("sampled").args[0]  # type: ignore[union-attr]
        by_name = sorted(group, key=lambda item: zlib.crc32(item.nodeid.encode()))
        for number, item in enumerate(by_name):
            if number % step:
                item.add_marker("long")


def _order(items: list[pytest.Item]) -> None:
    """Sort files so that those that mostly wait run beside others, which use the processors meanwhile."""
    paths = sorted({item.path for item in items})  # processes collect in orders of their own
    folders = {path: path.relative_to(Path(__file__).parent).parts[0] for path in paths}
    others = [path for path in paths if folders[path] not in _WAITING]
    waiting = sorted(set(paths) - set(others), key=lambda path: (_WAITING.index(folders[path]), path))
    position = {path: place / len(others) for place, path in enumerate(others)}
    position |= {path: _WAITING_UNTIL * place / len(waiting) for place, path in enumerate(waiting)}
    items.sort(key=lambda item: (position[item.path], item.path))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Before the fixtures of each test, so that what they and it draw depends on no test before."""
    random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(0)  # torch.manual_seed keeps a stack trace for each other device


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Of what passed, say no more than that: xdist encodes three reports of each test in Python."""
    report = yield
    if report.passed:
        report.keywords, report.sections = {}, []
    return report


def pytest_collection_finish() -> None:
    """Before the first test."""
    # A collection walks the objects of MLIR, JAX and PyTorch, and JAX has a callback in each.
    gc.set_threshold(_ALLOCATIONS, 50, 100)
    _freeze_heap()


@pytest.fixture(scope="module", autouse=True)
def _frozen_heap() -> Iterator[None]:
    yield
    _freeze_heap()


def _freeze_heap() -> None:
    """Keep the collector from visiting what lives as long as the process: 15,000 tests, PyTorch and JAX.

    A full collection took more than a second.
    """
    gc.collect()
    gc.freeze()


#: Allocations between two collections of young objects.
_ALLOCATIONS = 100_000

#: Settings of ours, of Postgres, of object stores, and of gRPC, which writes to standard error when asked.
_SETTINGS = ("KCACHE_", "PG", "AWS_", "GRPC_")
#: What makes the command line write colors, or lines of another width: GitHub sets the last one.
_LOOKS = ("FORCE_COLOR", "PY_COLORS", "TTY_COMPATIBLE", "COLUMNS", "GITHUB_ACTIONS")


#: Where programs look for what a user keeps between runs: caches, keys, state, configuration.
_HOMES = ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")


@pytest.fixture(scope="session", autouse=True)
def _no_ambient_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test sees the user's settings, keys or stores, or writes into them; subprocesses inherit that."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(_SETTINGS) or name in _LOOKS]:
            patch.delenv(name)
        for name in _HOMES:
            folder = tmp_path_factory.mktemp(name.lower().replace("_", "-"))
            folder.chmod(0o700)
            patch.setenv(name, str(folder))
        for name in ("no_proxy", "NO_PROXY"):  # servers of tests are on this machine
            patch.setenv(name, ",".join(filter(None, ("127.0.0.1,localhost", os.environ.get(name)))))
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.PostgresServer]:
    """One Postgres for all tests that ask for a database."""
    with postgres.running() as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.S3Server]:
    """One S3-compatible server for all tests, where the environment says it is."""
    with s3.s3_server(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment(server.endpoint).items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests that need one that is neither stopped nor empty."""
    from tests.serving import ServerProcess

    with ServerProcess(tmp_path_factory.mktemp("server")) as process:
        yield process


@pytest.fixture(scope="module")
def client(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kcache.Client]:
    """A client of the server, with a cache folder of the module's own."""
    import kcache_grpc as kcache

    cache = tmp_path_factory.mktemp("cache")
    cache.chmod(0o700)
    with kcache.Client(server.address, cache_dir=cache) as client:
        yield client
