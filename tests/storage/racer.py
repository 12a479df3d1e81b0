"""One of several processes that use one store at once: ``python -m tests.storage.racer MODE URL SEED``.

Waits for a line on standard input, then writes what it was told by the store, one JSON list a line.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from kcache_grpc.storage import Store, migrate, open_store
from kcache_grpc.storage.records import AuditEvent, Lease, Namespace
from tests.storage.drafts import graph, kernel, sha256, spec

#: What the racers of one race have in common.
SPECS = 60
KERNELS = 15
#: Of one process, where its writes meet.
THREADS = 8


def race_for_specs(store: Store, ns: Namespace, chance: random.Random) -> Iterator[list[object]]:
    """Put all specs in an order of one's own; the key of each."""
    for number in chance.sample(range(SPECS), SPECS):
        yield [number, store.put_spec(ns, spec(number)).key]


def race_for_kernels(store: Store, ns: Namespace, chance: random.Random) -> Iterator[list[object]]:
    """Publish all kernels with bytes of one's own; whose bytes each has, and whether it was us."""
    mark = chance.randbytes(8)
    store.put_spec(ns, spec(0))
    for number in chance.sample(range(KERNELS), KERNELS):
        published = store.publish_kernel(ns, kernel(number, so=mark), event=AuditEvent("publish"))
        yield [number, published.stored.artifacts[0].digest.hex(), published.inserted]


def race_for_leases(store: Store, ns: Namespace, chance: random.Random) -> Iterator[list[object]]:
    """Ask for all leases, give none back; those that we got."""
    holder = chance.randbytes(8).hex()
    for number in chance.sample(range(KERNELS), KERNELS):
        lease = store.acquire_lease(ns, sha256(str(number)), holder, ttl=600)
        yield [number, isinstance(lease, Lease), lease.holder, lease.fencing_token]


def write_until_killed(store: Store, ns: Namespace, chance: random.Random) -> Iterator[list[object]]:
    """Graphs and kernels without end; what was acknowledged."""
    for _ in itertools.count():
        number = chance.randrange(10**6)
        key = store.put_graph(ns, graph(number, [f"weights {number % 7}".encode() * 999])).spec.key
        yield ["graph", number, key]
        store.publish_kernel(ns, kernel(number, key, so=chance.randbytes(5000)), event=AuditEvent("publish"))
        yield ["kernel", number, key]


def race_step_by_step(store: Store, ns: Namespace, chance: random.Random) -> Iterator[list[object]]:
    """For each number on standard input a graph and a kernel with bytes of one's own; what one was told."""
    mark = chance.randbytes(8)
    for line in sys.stdin:
        number = int(line)
        put = store.put_graph(ns, graph(number, [b"weights"]))
        published = store.publish_kernel(ns, kernel(number, put.spec.key, so=mark))
        so = published.stored.artifacts[0].digest.hex()
        yield [[put.spec.key, so], [put.new_spec, put.new_mapping, published.inserted]]


def put_until_killed(store: Store, ns: Namespace, chance: random.Random) -> Iterator[list[object]]:
    """Specs without end, some of them others' too; the keys that were acknowledged."""
    for _ in itertools.count():
        number = chance.randrange(10**4)
        yield [number, store.put_spec(ns, spec(number)).key]


def put_together_until_killed(store: Store, ns: Namespace, chance: random.Random) -> Iterator[list[object]]:
    """As ``put_until_killed``, by threads whose writes share transactions; graphs with constants too."""
    told: SimpleQueue[list[object]] = SimpleQueue()

    def put(seed: int) -> None:
        mine = random.Random(seed)
        for _ in itertools.count():
            number = mine.randrange(10**4)
            draft = graph(number, [f"weights {number % 3}".encode()] if number % 4 == 0 else ())
            told.put([number, store.put_graph(ns, draft).spec.key])

    for _ in range(THREADS):
        threading.Thread(target=put, args=(chance.randrange(2**32),), daemon=True).start()
    while True:
        yield told.get()


def race_together_for_specs(store: Store, ns: Namespace, chance: random.Random) -> Iterator[list[object]]:
    """As ``race_for_specs``, in as many threads; each stores graphs with constants in an order of its own."""
    seeds = [chance.randrange(2**32) for _ in range(THREADS)]

    def put(seed: int) -> list[list[object]]:
        order = random.Random(seed).sample(range(SPECS), SPECS)
        graphs = (graph(number, [f"weights {number % 5}".encode(), b"bias"]) for number in order)
        return [
            [number, store.put_graph(ns, each).spec.key] for number, each in zip(order, graphs, strict=True)
        ]

    with ThreadPoolExecutor(THREADS) as pool:
        told = [sorted(each) for each in pool.map(put, seeds)]
    assert all(each == told[0] for each in told)
    yield from told[0]


MODES = {
    "together": race_together_for_specs,
    "endless together": put_together_until_killed,
    "specs": race_for_specs,
    "kernels": race_for_kernels,
    "leases": race_for_leases,
    "endless": write_until_killed,
    "endless specs": put_until_killed,
    "steps": race_step_by_step,
}


def main() -> None:
    mode, url, *seed = sys.argv[1:]
    sys.stdin.readline()
    if mode == "migrate":
        migrate(url)
        return
    with open_store(url) as store:
        ns = store.get_or_create_namespace("default")
        for told in MODES[mode](store, ns, random.Random(int(seed[0]))):
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
