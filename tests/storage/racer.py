"""One of several processes that use one store at once: ``python -m tests.storage.racer MODE URL SEED``.

Waits for a line on standard input, then writes what it was told by the store, one JSON list a line.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Iterator

from kcache_grpc.storage import Store, migrate, open_store
from kcache_grpc.storage.records import AuditEvent, Lease, Namespace
from tests.storage.drafts import graph, kernel, sha256, spec

#: What the racers of one race have in common.
SPECS = 60
KERNELS = 15


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


MODES = {
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
