"""Threads and processes that insert the same keys at the same time, and what each of them saw."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kcache_grpc.caches import InMemoryCache, OnDiskCache, RemoteCache, TieredCache

#: Of one thread, for each round: whether its insert succeeded, and who wrote the value that it then read.
Seen = list[tuple[bool, Any]]

#: Makes a value longer than one write of a small buffer, so that a partial one would be noticed.
_PADDING = b"x" * 9000


def memory_and_disk(directory: Path) -> TieredCache[Any, Any]:
    """A cache of two tiers, the second of which processes share."""
    return TieredCache(InMemoryCache(), OnDiskCache(base_dir=directory))


def memory_disk_and_server(directory: Path, address: str, namespace: str) -> TieredCache[Any, Any]:
    """A cache of three tiers: its own, that of the processes of one machine, and that of all machines."""
    remote: RemoteCache[Any, Any] = RemoteCache(address, namespace=namespace, timeout=120)
    return TieredCache(InMemoryCache(), OnDiskCache(base_dir=directory), remote)


def threads(cache: Any, count: int, rounds: int, *, name: str = "p", barrier: Any = None) -> list[Seen]:
    """``count`` threads of this process; ``barrier`` is shared with those of other processes.

    Of a cache in tiers each tier is read, too: all have the same value.
    """
    tiers: tuple[Any, ...] = getattr(cache, "tiers", ())
    barrier = barrier or threading.Barrier(count)
    seen: list[Seen] = [[] for _ in range(count)]
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            for turn in range(rounds):
                barrier.wait(120)
                won = cache.insert(("race", turn), [name, number, _PADDING])
                value = cache.get(("race", turn))
                assert [tier.get(("race", turn)) for tier in tiers] == [value] * len(tiers)
                assert value[2:] == [_PADDING]
                assert not won or value[:2] == [name, number]
                seen[number].append((won, value[:2]))
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    workers = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    return seen


def processes(
    reopen: Callable[[], Any] | Sequence[Callable[[], Any]], count: int, each: int, rounds: int
) -> list[Seen]:
    """``each`` threads in each of ``count`` processes, all on caches from ``reopen``, in turn if several."""
    reopens = [reopen] if callable(reopen) else list(reopen)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(count * each)
    pipes = [context.Pipe(duplex=False) for _ in range(count)]
    children = [
        context.Process(
            target=_child, args=(writer, reopens[number % len(reopens)], f"p{number}", each, rounds, barrier)
        )
        for number, (_, writer) in enumerate(pipes)
    ]
    for child in children:
        child.start()
    for _, writer in pipes:
        writer.close()
    try:
        results = [reader.recv() for reader, _ in pipes]
    finally:
        for child in children:
            child.join(60)
            child.close()
        for reader, _ in pipes:
            reader.close()
    failures = [result for result in results if isinstance(result, str)]
    assert not failures, failures
    return [seen for result in results for seen in result]


def _child(
    writer: Connection, reopen: Callable[[], Any], name: str, each: int, rounds: int, barrier: Any
) -> None:
    try:
        writer.send(threads(reopen(), each, rounds, name=name, barrier=barrier))
    except BaseException as error:
        writer.send(repr(error))
    writer.close()


def check(seen: list[Seen], rounds: int) -> None:
    """In each round exactly one insert succeeded, and every thread read the value of that one."""
    for turn in range(rounds):
        of_round = [thread[turn] for thread in seen]
        winners = [value for won, value in of_round if won]
        assert len(winners) == 1, (turn, winners)
        assert [value for _, value in of_round] == winners * len(of_round)
