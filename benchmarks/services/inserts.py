"""New specs a second in one namespace, beside bare INSERTs of the same rows, on SQLite and Postgres.

``python -m benchmarks.services.inserts [--folder DIR] [--store NAME] [--seconds S] [--rounds N] [--json
FILE]``.
Both databases are as they are installed: a commit waits for the disk on which ``--folder`` lies. Each writer
is a thread that stores new programs, each with a new spec of 1 KB: spec, key, mapping, usage
and audit event are one transaction, on the disk when the call returns. The rival writes the same rows into
the same tables with the bare driver, a transaction each, under keys that it makes up: nothing is looked for,
counted or checked. No key of ours may be missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environment import clear_and_restart, description
from benchmarks.services.bare_inserts import bare_writer
from kcache_grpc.storage import migrate, open_store
from kcache_grpc.storage.records import AuditEvent, GraphDraft, SignedBytes, SpecDraft
from tests import postgres

#: Postgres as it is installed, synced to disk.
_SETTINGS = ("-c max_connections=200",)
#: Processes and threads of each.
_WRITERS = ((1, 1), (1, 8), (1, 64), (3, 16))
_STORES = ("sqlite", "postgres")
#: Specs that each writer stores before the time begins, so that its statements are prepared.
_WARM = 6

#: Stores one program.
Write = Callable[[GraphDraft, AuditEvent], object]


@dataclass
class _Run:
    """Specs a second, and microseconds of CPU that one takes: the writers' and the database's."""

    rate: float
    cpu: float


def measure(
    folder: Path | None, stores: Sequence[str], seconds: float, rounds: int
) -> dict[str, dict[str, Any]]:
    """Store -> "processes x threads" -> medians of new specs a second, ours and bare, and of their ratios."""
    report: dict[str, dict[str, Any]] = {}
    for name in stores:
        with _database(name, folder) as (url, pid):
            migrate(url)
            report[name] = {
                f"{processes} x {threads}": _compare(url, pid, processes, threads, seconds, rounds)
                for processes, threads in _WRITERS
            }
    return report


@contextmanager
def _database(name: str, folder: Path | None) -> Iterator[tuple[str, int | None]]:
    """The URL of an empty database, and the process that serves it if there is one."""
    with tempfile.TemporaryDirectory(prefix="kc-bench-", dir=folder) as inside:
        if name == "sqlite":
            yield f"sqlite:///{inside}/kcache.sqlite", None
            return
        Path(inside).chmod(0o755)
        server = postgres.PostgresServer(Path(inside), settings=_SETTINGS)
        try:
            yield server.create(), server.pid
        finally:
            server.stop("immediate")


def _compare(
    url: str, pid: int | None, processes: int, threads: int, seconds: float, rounds: int
) -> dict[str, Any]:
    """Both in turn, in namespaces of their own."""
    runs: dict[str, list[_Run]] = {"kcache": [], "bare": []}
    for number in range(rounds):
        for how, measured in runs.items():
            namespace = f"{how}-{processes}-{threads}-{number}"
            measured.append(_run(url, pid, how, namespace, processes, threads, seconds))
    ratios = [ours.rate / bare.rate for ours, bare in zip(*runs.values(), strict=True)]
    report: dict[str, Any] = {}
    for how, measured in runs.items():
        report[f"{how}_specs_a_second"] = round(statistics.median(each.rate for each in measured))
        report[f"{how}_cpu_us_a_spec"] = round(statistics.median(each.cpu for each in measured))
    return report | {
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in sorted(ratios)],
    }


def _run(
    url: str, pid: int | None, how: str, namespace: str, processes: int, threads: int, seconds: float
) -> _Run:
    """All writers, which start together; a writer's own start does not count."""
    with open_store(url) as store:
        space = store.get_or_create_namespace(namespace)
    with ExitStack() as stack:
        running = [
            stack.enter_context(_start(url, how, namespace, index, threads, seconds))
            for index in range(processes)
        ]
        for writer in running:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        before = 0.0 if pid is None else _cpu_of_server(pid)
        for writer in running:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        told = [json.loads(writer.communicate(timeout=600)[0]) for writer in running]
    cpu = 0.0 if pid is None else _cpu_of_server(pid) - before
    if how == "kcache":
        stored = sum(warm + written for warm, written, *_ in told)
        with open_store(url) as store:
            assert store.count_specs(space) == stored, "keys are missing"
            assert store.get_spec(space, stored) is not None
    written = sum(written for _, written, *_ in told)
    cpu += sum(cpu for *_, cpu in told)
    return _Run(written / max(spent for *_, spent, _ in told), cpu / written * 1e6)


def _cpu_of_server(pid: int) -> float:
    """Seconds of CPU that a Postgres and its sessions, ended ones too, have had."""
    fields = [_stat(Path(f"/proc/{pid}/stat"))]
    children = [_stat(path) for path in Path("/proc").glob("[0-9]*/stat")]
    ticks = sum(map(int, fields[0][11:15]))
    ticks += sum(int(each[11]) + int(each[12]) for each in children if each and each[1] == str(pid))
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(path: Path) -> list[str]:
    """From the third field on; nothing for a process that has ended."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _start(
    url: str, how: str, namespace: str, index: int, threads: int, seconds: float
) -> subprocess.Popen[str]:
    job = json.dumps([url, how, namespace, index, threads, seconds])
    command = [sys.executable, "-m", "benchmarks.services.inserts", "--write", job]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def write(url: str, how: str, namespace: str, index: int, threads: int, seconds: float) -> None:
    """One process of writers: prints the specs stored before the start, those after it, and their seconds."""
    with ExitStack() as stack:
        store = stack.enter_context(open_store(url))
        space = store.get_or_create_namespace(namespace)
        if how == "bare":
            writers = [stack.enter_context(bare_writer(url, space, f"{index}-{n}")) for n in range(threads)]
        else:
            writers = [lambda graph, event: store.put_graph(space, graph, event)] * threads
        started = threading.Event()
        warm = threading.Barrier(threads + 1)
        counts = [0] * threads

        def run(number: int, put: Write) -> None:
            for _ in range(_WARM):
                put(*_program(f"{namespace} {index} {number} {counts[number]}"))
                counts[number] += 1
            warm.wait()
            started.wait()
            while time.perf_counter() < end:
                put(*_program(f"{namespace} {index} {number} {counts[number]}"))
                counts[number] += 1

        running = [threading.Thread(target=run, args=each) for each in enumerate(writers)]
        for thread in running:
            thread.start()
        warm.wait()
        before = sum(counts)
        print("ready", flush=True)
        sys.stdin.readline()
        cpu = time.process_time()
        began = time.perf_counter()
        end = began + seconds
        started.set()
        for thread in running:
            thread.join()
        spent = time.perf_counter() - began
        print(json.dumps([before, sum(counts) - before, spent, time.process_time() - cpu]))


def _program(name: str) -> tuple[GraphDraft, AuditEvent]:
    text = f"kcache.spec v1 default\n{name}\n" + "%0 = add %1 %2 : f32[a0, a1]\n" * 32
    spec = SpecDraft(hashlib.sha256(text.encode()).digest(), text, "default", 1)
    program = hashlib.sha256(name.encode()).digest()
    event = AuditEvent("store", "ok", program_digest=program, spec_digest=spec.spec_digest)
    return GraphDraft(spec, program, _bind), event


def _bind(key: int) -> SignedBytes:
    return SignedBytes(f"{key}".encode() * 64, bytes(64))


def main() -> None:
    """Measures and prints, and writes JSON where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where the databases lie")
    parser.add_argument("--store", choices=_STORES, help="one of them only")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write(*json.loads(arguments.write))
        return
    clear_and_restart("benchmarks.services.inserts")
    stores = _STORES if arguments.store is None else (arguments.store,)
    measured = measure(arguments.folder, stores, arguments.seconds, arguments.rounds)
    report = {"environment": description(), "new_specs": measured}
    print(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
