"""Many threads and processes on one database: never two winners, no gap, nothing torn."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.records import Lease
from tests.repository.sources import ROOT
from tests.storage.drafts import graph, kernel, program, sha256, spec
from tests.storage.inside import assert_sound, path_of, rows
from tests.storage.racer import KERNELS, SPECS

PROCESSES = 3


def start(mode: str, url: str, seed: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-m", "tests.storage.racer", mode, url, str(seed)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def race(mode: str, url: str) -> list[list[list[Any]]]:
    """What each of some processes was told, all started before any goes."""
    running = [start(mode, url, seed) for seed in range(PROCESSES)]
    with ThreadPoolExecutor(PROCESSES) as pool:
        outputs = list(pool.map(lambda process: process.communicate("go\n", timeout=240)[0], running))
    assert [process.returncode for process in running] == [0] * PROCESSES
    return [[json.loads(line) for line in output.splitlines()] for output in outputs]


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """The results of ``work`` in threads that begin at the same moment."""
    barrier = threading.Barrier(count)

    def run(index: int) -> Any:
        barrier.wait()
        return work(index)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


class TestThreads:
    COUNT = 8

    def test_specs_get_one_key_each(self, store, ns):
        def work(index: int) -> dict[int, int]:
            order = random.Random(index).sample(range(30), 30)
            return {number: store.put_spec(ns, spec(number)).key for number in order}

        first, *others = together(self.COUNT, work)
        assert all(other == first for other in others)
        assert sorted(first.values()) == list(range(1, 31))
        assert store.count_specs(ns) == 30

    def test_one_thread_stores_each_graph(self, store, ns):
        def work(index: int) -> list[tuple[bool, bool]]:
            put = [store.put_graph(ns, graph(number, [b"weights"])) for number in range(10)]
            return [(each.new_spec, each.new_mapping) for each in put]

        for results in zip(*together(self.COUNT, work), strict=True):
            assert sorted(results) == [(False, False)] * (self.COUNT - 1) + [(True, True)]

    def test_one_thread_gets_each_lease(self, store, ns):
        def work(index: int) -> list[object]:
            return [store.acquire_lease(ns, sha256(str(n)), f"holder {index}", 600) for n in range(10)]

        for results in zip(*together(self.COUNT, work), strict=True):
            assert sum(isinstance(each, Lease) for each in results) == 1
            assert len({(each.holder, each.fencing_token) for each in results}) == 1

    def test_one_thread_creates_a_namespace(self, store):
        namespaces = together(self.COUNT, lambda _: store.get_or_create_namespace("new"))
        assert len(set(namespaces)) == 1
        assert store.put_spec(namespaces[0], spec(0)).key == 1

    def test_readers_see_whole_kernels_or_none(self, store, ns):
        store.put_spec(ns, spec(0))
        wanted = [kernel(number).kernel.kernel_digest for number in range(20)]

        def work(index: int) -> None:
            if index == 0:
                for number in range(20):
                    store.publish_kernel(ns, kernel(number))
                return
            while len(kernels := store.find_kernels(ns, wanted)) < 20:
                for stored in kernels.values():
                    assert [ref.kind for ref in stored.artifacts] == ["so", "llvm"]
                    for ref in stored.artifacts:
                        assert sha256(store.read_artifact(ns, ref.digest)) == ref.digest

        together(4, work)


class TestProcesses:
    @pytest.fixture
    def url(self, sqlite: Store) -> str:
        sqlite.get_or_create_namespace("default")
        return sqlite.url

    def test_overlapping_specs_get_one_key_each(self, sqlite, url):
        first, *others = (sorted(told) for told in race("specs", url))
        assert all(other == first for other in others)
        assert sorted(key for _, key in first) == list(range(1, SPECS + 1))
        assert_sound(path_of(sqlite))

    def test_each_kernel_has_one_winner_whose_bytes_all_see(self, sqlite, url):
        told = [each for process in race("kernels", url) for each in process]
        assert len({(number, digest) for number, digest, _ in told}) == KERNELS
        assert Counter(number for number, _, inserted in told if inserted) == dict.fromkeys(range(KERNELS), 1)
        assert len(sqlite.list_audit(sqlite.find_namespace("default"))) == KERNELS
        assert_sound(path_of(sqlite))

    def test_each_lease_has_one_holder(self, sqlite, url):
        told = [each for process in race("leases", url) for each in process]
        assert Counter(number for number, got, *_ in told if got) == dict.fromkeys(range(KERNELS), 1)
        assert len({(number, holder, token) for number, _, holder, token in told}) == KERNELS


def kill_and_look(path: Path, seed: int) -> None:
    """Kill a writer after some acknowledgements; all it acknowledged is there, all that is there is whole."""
    url = f"sqlite:///{path}"
    process = start("endless", url, seed)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write("go\n")
        process.stdin.flush()
        told = [json.loads(process.stdout.readline()) for _ in range(random.Random(seed).randrange(1, 60))]
        process.send_signal(signal.SIGKILL)
        told += [
            json.loads(line) for line in process.stdout.read().splitlines(keepends=True) if line[-1] == "\n"
        ]
    assert_sound(path)
    with open_store(url) as store:
        ns = store.get_or_create_namespace("default")
        for kind, number, key in told:
            mapping = store.find_mapping(ns, program(number), "default")
            assert mapping is not None
            assert mapping.key == key
            if kind == "kernel":
                assert store.find_kernel(ns, kernel(number).kernel.kernel_digest) is not None
        assert_whole(store, path)


def assert_whole(store: Store, path: Path) -> None:
    """Every kernel and every blob can be read, and there is one publish event a kernel."""
    ns = store.get_or_create_namespace("default")
    kernels = [digest for (digest,) in rows(path, "SELECT kernel_digest FROM kernels")]
    assert set(store.find_kernels(ns, kernels)) == set(kernels)
    assert rows(path, "SELECT count(*) FROM audit_events WHERE kind = 'publish'") == [(len(kernels),)]
    for (digest,) in rows(path, "SELECT digest FROM artifacts"):
        content = store.read_artifact(ns, digest)
        assert content is not None
        assert sha256(content) == digest


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(2))
def test_what_a_killed_writer_acknowledged_is_there_and_whole(sqlite, seed):
    path = path_of(sqlite)
    for each in range(2):
        kill_and_look(path, 2 * seed + each)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3, *range(100, 140)])
def test_writers_killed_many_times(sqlite, seed):
    for each in range(5):
        kill_and_look(path_of(sqlite), 5 * seed + each)
