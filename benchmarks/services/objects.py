"""Where bytes of which size belong: put and read of one blob, in rows and in an object store, side by side.

``python -m benchmarks.services.objects [--rounds N] [--json FILE]``. The object stores are a folder, and
moto's S3
server on this machine. A real one adds its way over the network: two round trips a put, one a read.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.environment import description
from kcache_grpc.storage import Store, migrate, open_store
from kcache_grpc.storage.records import Blob
from tests import postgres, s3

SIZES = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)
#: Takes every byte into rows.
_ALL = 1 << 40


@contextmanager
def stores() -> Iterator[dict[str, Store]]:
    """Databases, with an object store for every byte or with none; both databases synced to disk."""
    with tempfile.TemporaryDirectory(prefix="kc-bench-") as name, ExitStack() as resources:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "pg").mkdir()
        server = postgres.PostgresServer(folder / "pg", settings=("-c max_connections=50",))
        resources.callback(server.stop, "immediate")
        bucket = resources.enter_context(s3.s3_server(folder))
        os.environ.update(s3.environment(bucket.endpoint))
        opened: dict[str, Store] = {}
        for database in ("SQLite", "Postgres"):
            places = {
                "rows": None,
                "folder": f"file://{folder}/{database}",
                "S3": f"s3://{bucket.shared_bucket}/{database}",
            }
            for place, objects in places.items():
                url = f"sqlite:///{folder}/{place}.sqlite" if database == "SQLite" else server.create()
                migrate(url)
                inline = _ALL if objects is None else 0
                store = open_store(url, objects=objects, inline_bytes=inline)
                opened[f"{database}, {place}"] = resources.enter_context(store)
        yield opened


def measure(rounds: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds, median: size -> store -> [put, read]. Stores take turns: all see the same machine."""
    report: dict[str, dict[str, list[float]]] = {}
    with stores() as opened:
        spaces = {name: store.get_or_create_namespace("bench") for name, store in opened.items()}
        for size in SIZES:
            took: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in opened}
            for _ in range(rounds):
                content = os.urandom(size)
                blob = Blob(hashlib.sha256(content).digest(), content)
                for name, store in opened.items():
                    took[name][0].append(_milliseconds(store.put_constants, spaces[name], [blob]))
                    took[name][1].append(_milliseconds(store.read_artifact, spaces[name], blob.digest))
            report[str(size)] = {
                name: [round(statistics.median(times), 3) for times in both] for name, both in took.items()
            }
    return report


def _milliseconds(call: Callable[..., object], *arguments: object) -> float:
    began = time.perf_counter()
    call(*arguments)
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    report = {"machine": description(), "milliseconds": measure(arguments.rounds)}
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    for size, stores in report["milliseconds"].items():
        for name, (put, read) in stores.items():
            print(f"{int(size) >> 10:6} KiB  {name:18} put {put:8.2f} ms   read {read:8.3f} ms")


if __name__ == "__main__":
    main()
