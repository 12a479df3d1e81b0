"""New specs a second in one namespace, on SQLite and Postgres, both synced to disk; no key may be missing.

``python -m benchmarks.inserts [--specs N] [--json FILE]``. Writers are processes with a store each.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.environment import clear_and_restart, description
from kcache_grpc.storage import migrate, open_store
from kcache_grpc.storage.records import SpecDraft
from tests import postgres

#: Postgres as it is installed, synced to disk.
_SETTINGS = ("-c max_connections=100",)
_WRITERS = (1, 4)


def measure(specs: int = 4000) -> dict[str, Any]:
    """Store -> number of writers -> new specs a second."""
    report: dict[str, Any] = {}
    with stores() as urls:
        for name, url in urls.items():
            migrate(url)
            report[name] = {str(writers): _rate(url, writers, specs) for writers in _WRITERS}
    return report


@contextmanager
def stores() -> Iterator[dict[str, str]]:
    """An empty store of each kind."""
    with tempfile.TemporaryDirectory(prefix="kcache-bench-") as folder, _postgres() as server:
        yield {"SQLite": f"sqlite:///{folder}/kcache.sqlite", "Postgres": server.create()}


@contextmanager
def _postgres() -> Iterator[postgres.PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="kc-pg-") as folder:
        Path(folder).chmod(0o755)
        server = postgres.PostgresServer(Path(folder), settings=_SETTINGS)
        try:
            yield server
        finally:
            server.stop("immediate")


def _rate(url: str, writers: int, specs: int) -> float:
    """Specs a second over all writers, which start together; a writer's own start does not count."""
    name, each = f"writers-{writers}", specs // writers
    command = [sys.executable, "-m", "benchmarks.inserts", "--write", url, name, str(each)]
    running = [
        subprocess.Popen([*command, str(index)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for index in range(writers)
    ]
    for writer in running:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    started = time.perf_counter()
    for writer in running:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    keys = sorted(key for writer in running for key in json.loads(writer.communicate(timeout=600)[0]))
    seconds = time.perf_counter() - started
    assert keys == list(range(1, each * writers + 1)), "keys are not 1, 2, 3, ..."
    return each * writers / seconds


def write(url: str, namespace: str, count: int, index: int) -> None:
    """One writer: prints the keys that it was given."""
    texts = [f"kcache.spec v1 default\n%0 = add arg{index} arg{number}\n" for number in range(count)]
    drafts = [SpecDraft(hashlib.sha256(text.encode()).digest(), text, "default", 1) for text in texts]
    with open_store(url) as store:
        space = store.get_or_create_namespace(namespace)
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps([store.put_spec(space, draft).key for draft in drafts]))


def main() -> None:
    """Measures and prints, and writes JSON where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--specs", type=int, default=4000)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--write", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        url, namespace, count, index = arguments.write
        write(url, namespace, int(count), int(index))
        return
    clear_and_restart("benchmarks.inserts")
    report = {"environment": description(), "new_specs_a_second": measure(arguments.specs)}
    print(json.dumps(report, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
