"""What lookups, inserts, audit queries and collection cost in a large store, against a small one.

``python -m benchmarks.services.scale [--postgres] [--keep FOLDER] [--specs 200000] [--only TEXT] [--limit
2]``

Fills two stores: one with 1,000,000 mappings, as many audit events, 200,000 specs and kernels and 20 GB worth
of artifacts (rows that name objects of that size, without the objects), one with 1,000 mappings and events.
Then it asks both the same things, one call here, one call there, and compares medians of wall time and of
CPU time: of this process, and of the server processes of a Postgres on this machine. Of the two rows of a
question ``again`` asks for the same few things over and over, ``any`` for something else each time, so that
in the large store hardly a page was read before. The files are in the operating system's cache both times,
locked there while it measures: what a disk takes is not the question, and a virtual machine may drop pages.

Both are SQLite files in a temporary folder, or with ``--postgres`` databases of a server that it starts, or
what ``--db`` and ``--small`` name. Filling the large one takes minutes: with ``--keep`` it stays in a folder
and is used again. On a busy machine trust CPU times, and give more ``--rounds``. Exits with 1 if a ratio of
wall times is above ``--limit``, and lists those that are.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import delete, text

from benchmarks.environment import clear_and_restart, description
from benchmarks.services.filling import filled, vacuum
from benchmarks.services.holding import held
from benchmarks.services.questions import Question, questions
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.contract.lifecycle import Collected
from kcache_grpc.storage.schema import leases
from kcache_grpc.storage.sql.engine.database import Database

#: Rounds, and calls of each store in one; for what removes rows, of which the small store has 200, fewer.
ROUNDS, CALLS, FEW = 7, 20, 2
#: Specs of the small store.
SMALL = 200
_SERVERS = text(
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
)
_FILES = text(
    "SELECT current_setting('data_directory') || '/' || pg_relation_filepath(oid) AS path FROM pg_class"
    " WHERE relkind IN ('r', 'i') AND relnamespace = current_schema()::regnamespace"
)
#: Subjects that ``again`` asks for.
SUBJECTS = 5


@dataclass(frozen=True)
class Cost:
    """Medians of one store, in microseconds; ``rounds``: the median wall time of each round."""

    wall: float
    cpu: float
    rounds: tuple[float, ...]


class Asking:
    """A question to a store, with clocks."""

    def __init__(self, store: Store, question: Question, numbers: Iterator[int]) -> None:
        self._question = question
        self._numbers = numbers
        self._database: Database = store._db  # type: ignore[attr-defined]
        self._servers: list[Path] = []

    def warm(self, calls: int) -> None:
        """Ask, and learn which processes answer."""
        for _ in range(calls):
            self._question.ask(next(self._numbers))
        if self._database.shared:
            rows = self._database.fetch(_SERVERS)
            self._servers = [path for row in rows if (path := Path(f"/proc/{row.pid}/schedstat")).exists()]

    def once(self) -> tuple[float, float, int]:
        """Microseconds of wall and CPU time of one call, and how many rows a collection found."""
        number = next(self._numbers)
        cpu, wall = self._cpu(), time.perf_counter_ns()
        answer = self._question.ask(number)
        wall = time.perf_counter_ns() - wall
        rows = answer.rows if isinstance(answer, Collected) else 0
        return wall / 1e3, (self._cpu() - cpu) / 1e3, rows

    def _cpu(self) -> int:
        """Nanoseconds, of this process and the servers'."""
        return time.process_time_ns() + sum(int(each.read_text().split()[0]) for each in self._servers)


def files_of(store: Store) -> list[Path]:
    """Those of the database, on this machine."""
    database: Database = store._db  # type: ignore[attr-defined]
    if not database.shared:
        return [Path(store.url.removeprefix("sqlite:///"))]
    named = [Path(row.path) for row in database.fetch(_FILES)]
    return [path for first in named for path in first.parent.glob(f"{first.name}*")]


def compare(asked: dict[str, Asking], rounds: int, calls: int) -> dict[str, Cost]:
    """The same question to each store in turn: whatever disturbs the machine disturbs both.

    Calls in which one found more to collect than the other do not count: the small store runs out of it.
    """
    for asking in asked.values():
        asking.warm(max(2, calls // 5))
    samples: dict[str, list[list[tuple[float, float]]]] = {size: [] for size in asked}
    for round in range(rounds):
        sizes = list(asked) if round % 2 else list(asked)[::-1]
        for each in samples.values():
            each.append([])
        for _ in range(calls):
            answers = {size: asked[size].once() for size in sizes}
            if len({rows for _, _, rows in answers.values()}) == 1:
                for size, (wall, cpu, _) in answers.items():
                    samples[size][-1].append((wall, cpu))
    kept = {size: [round for round in rounds if round] for size, rounds in samples.items()}
    return {size: _cost(rounds) for size, rounds in kept.items() if rounds}


def _cost(rounds: list[list[tuple[float, float]]]) -> Cost:
    every = [each for round in rounds for each in round]
    return Cost(
        statistics.median(wall for wall, _ in every),
        statistics.median(cpu for _, cpu in every),
        tuple(statistics.median(wall for wall, _ in round) for round in rounds),
    )


def measure(large: Store, small: Store, chosen: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Costs in both, by question and column."""
    stores = {"small": small, "large": large}
    asked: dict[str, dict[str, Question]] = {}
    for size, number in (("small", SMALL), ("large", chosen.specs)):
        namespace = filled(stores[size], number)
        database: Database = stores[size]._db  # type: ignore[attr-defined]
        # Those that an earlier run of this benchmark took in a store that was kept.
        database.transact(lambda connection: connection.execute(delete(leases)))
        vacuum(stores[size])
        asked[size] = questions(stores[size], namespace, number)
    with held([path for store in stores.values() for path in files_of(store)]) as locked:
        if not locked:
            print("the files could not be locked in memory (ulimit -l): figures may be of a cold disk")
        return _ask(stores, asked, chosen)


def _ask(
    stores: dict[str, Store], asked: dict[str, dict[str, Question]], chosen: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    report: dict[str, dict[str, Any]] = {}
    for name, question in asked["small"].items():
        if chosen.only not in name:
            continue

        def row(calls: int, numbers: Callable[[], Iterator[int]], name: str = name) -> dict[str, float]:
            both = {size: Asking(store, asked[size][name], numbers()) for size, store in stores.items()}
            return _row(compare(both, chosen.rounds, calls))

        if question.uses_up:
            columns = {"any": row(FEW, lambda: itertools.count(1))}
        else:
            again = row(CALLS, lambda: itertools.cycle(range(SUBJECTS)))
            columns = {"any": row(CALLS, lambda: itertools.count(1)), "again": again}
        report[name] = {column: costs for column, costs in columns.items() if costs}
    return report


def _row(costs: dict[str, Cost]) -> dict[str, float]:
    """Nothing where no two calls can be compared."""
    if not costs:
        return {}
    large, small = costs["large"], costs["small"]
    ratios = sorted(a / b for a, b in zip(large.rounds, small.rounds, strict=True))
    return {
        "small_us": small.wall,
        "large_us": large.wall,
        "ratio": large.wall / small.wall,
        "ratio_low": ratios[0],
        "ratio_high": ratios[-1],
        "small_cpu_us": small.cpu,
        "large_cpu_us": large.cpu,
        "cpu_ratio": large.cpu / max(small.cpu, 0.1),
    }


@contextmanager
def _stores(chosen: argparse.Namespace) -> Iterator[tuple[Store, Store, str]]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=chosen.folder))
        urls = [
            chosen.db or f"sqlite:///{(chosen.keep or Path(folder)).absolute()}/large.sqlite",
            chosen.small or f"sqlite:///{folder}/small.sqlite",
        ]
        if chosen.postgres:
            urls = stack.enter_context(_databases(chosen.keep))
        kind = urls[0].partition(":")[0]
        # Where rows of bytes point to; nothing is read there.
        places = [(chosen.keep or Path(folder)).absolute() / f"objects-{kind}", Path(folder, "objects-small")]
        large, small = (
            stack.enter_context(open_store(url, migrate=True, objects=f"file://{place}"))
            for url, place in zip(urls, places, strict=True)
        )
        yield large, small, kind


@contextmanager
def _databases(keep: Path | None) -> Iterator[list[str]]:
    """A large and a small one of a server that runs meanwhile."""
    from tests.postgres import running

    # As a server for real is set: memory, and commits that wait for the disk.
    settings = ("-c shared_buffers=512MB", "-c fsync=on", "-c full_page_writes=on")
    with running(settings=settings, keep=keep and keep.absolute() / "pg") as server:
        if not server.execute("SELECT 1 FROM pg_database WHERE datname = 'large'"):
            server.execute("CREATE DATABASE large TEMPLATE template0")
        server.execute("DROP DATABASE IF EXISTS small")
        server.execute("CREATE DATABASE small TEMPLATE template0")
        yield [server.url("large"), server.url("small")]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--db", default="", help="an empty database for the large store")
    parser.add_argument("--small", default="", help="another one for the small store")
    parser.add_argument("--postgres", action="store_true", help="start a Postgres for both")
    parser.add_argument("--specs", type=int, default=200_000)
    parser.add_argument("--only", default="", help="questions whose names contain this")
    parser.add_argument("--keep", type=Path, help="a folder where the large store stays")
    parser.add_argument("--folder", help="where other files go while it runs")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--limit", type=float, default=2.0, help="the ratio that is too much")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out")
    chosen = parser.parse_args()
    if chosen.keep:
        chosen.keep.mkdir(parents=True, exist_ok=True)
    return chosen


def main() -> None:
    chosen = _arguments()
    clear_and_restart("benchmarks.services.scale")
    began = time.monotonic()
    with _stores(chosen) as (large, small, kind):
        costs = measure(large, small, chosen)
    Console(width=130).print(_table(f"{kind}, {chosen.specs:,} specs; microseconds", costs))
    chosen.out.mkdir(parents=True, exist_ok=True)
    report = {"environment": description(), "seconds": time.monotonic() - began, "questions": costs}
    (chosen.out / f"scale-{kind}.json").write_text(json.dumps(report, indent=1) + "\n")
    slow = [
        f"{name} ({column}): {row['ratio']:.2f}x, {row['cpu_ratio']:.2f}x of CPU time"
        for name, columns in costs.items()
        for column, row in columns.items()
        if row["ratio"] > chosen.limit
    ]
    if slow:
        sys.exit("\n".join([f"above {chosen.limit}x:", *slow]))


def _table(title: str, report: dict[str, dict[str, Any]]) -> Table:
    names = ("question", "asks for", "small", "large", "ratio (low to high)", "CPU small", "large", "ratio")
    shown = Table(*names, title=title)
    for name, columns in report.items():
        for column, row in columns.items():
            ratio = f"{row['ratio']:.2f}x ({row['ratio_low']:.2f} to {row['ratio_high']:.2f})"
            wall = (f"{row['small_us']:,.0f}", f"{row['large_us']:,.0f}", ratio)
            cpu = (f"{row['small_cpu_us']:,.0f}", f"{row['large_cpu_us']:,.0f}", f"{row['cpu_ratio']:.2f}x")
            shown.add_row(name, column, *wall, *cpu)
    return shown


if __name__ == "__main__":
    main()
