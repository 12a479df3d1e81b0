"""What auditing costs: a hit from memory with and without it, appending, sealing and proving.

    python -m benchmarks.services.audit

Prints one JSON object. Times are CPU times of one thread; the ratio is the one of a whole gRPC call (100 us).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kcache_grpc.model.identity import Toolchain, Toolchains
from kcache_grpc.model.signing import Signed, Signer
from kcache_grpc.model.target import CpuTarget
from kcache_grpc.service.audit.proof import Verification
from kcache_grpc.service.audit.recorder import AuditRecorder
from kcache_grpc.service.audit.sealer import Sealer
from kcache_grpc.service.store_threads import StoreThreads
from kcache_grpc.service.values import Caller, Found, KnownGraph, KnownKernel, Missing
from kcache_grpc.storage import Store, open_store
from kcache_grpc.storage.records import AuditEvent, Namespace

_ROUNDS = 7
_CALLS = 20_000
_EVENTS = 10_000


def _digest(text: object) -> bytes:
    return hashlib.sha256(str(text).encode()).digest()


def _cpu(work: Callable[[], object], count: int) -> float:
    """Median microseconds of CPU for each of ``count`` parts of ``work``."""
    times: list[float] = []
    for _ in range(_ROUNDS):
        began = time.thread_time()
        work()
        times.append((time.thread_time() - began) / count * 1e6)
    return round(statistics.median(times), 2)


def _event(number: int) -> AuditEvent:
    return AuditEvent(
        "serve",
        outcome="hit",
        origin="stored",
        actor="ada",
        job="train-7",
        peer="ipv4:127.0.0.1:4711",
        request_id="r" * 32,
        program_digest=_digest(number % 100),
        spec_digest=_digest("spec"),
        key=1 + number % 100,
        kernel_digest=_digest(number % 50),
        target="x86-64-v3",
        toolchain=_digest("toolchain"),
        duration_us=120,
        byte_count=20_000,
        saved_us=500_000,
        at=number + 1,
    )


async def _noting(store: Store, namespace: Namespace) -> float:
    """One lookup of one kernel: what the recorder does of it in the event loop."""
    graph = KnownGraph(_digest("p"), 1, _digest("s"), "f32[4]", Signed(b"", b"", b""))
    results: list[Found | Missing] = [Found(graph, KnownKernel(_digest("k"), Signed(b"", b"", b""), (), 1))]
    threads = StoreThreads(1)
    recorder = AuditRecorder(store, threads, Toolchains(Toolchain(), Toolchain()))
    target, caller, digests = CpuTarget("x86-64-v3"), Caller(started=time.perf_counter()), [_digest("p")]

    def calls() -> None:
        for _ in range(_CALLS):
            recorder.looked_up(namespace, caller, target, digests, results)

    times: list[float] = []
    for _ in range(_ROUNDS):
        began = time.thread_time()
        calls()
        times.append((time.thread_time() - began) / _CALLS * 1e6)
        await recorder.flush()
    await recorder.close()
    threads.close()
    return round(statistics.median(times), 2)


def _caller(actor: str = "", job: str = "") -> Callable[[], None]:
    def make() -> None:
        for _ in range(_CALLS):
            Caller("default", "r" * 32, "kcache-python/0.1.0", "ipv4:127.0.0.1:1", actor, job)

    return make


def main() -> None:
    """Measures and prints."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'store.sqlite'}"
        with open_store(url, migrate=True) as store:
            namespace = store.get_or_create_namespace("default")
            noting = asyncio.run(_noting(store, namespace))
            batch = [_event(number) for number in range(1000)]
            plain = _cpu(lambda: store.append_audit(namespace, batch), len(batch))
            sealer = Sealer(store, Signer.generate())
            sealer.begin()
            kept = _cpu(lambda: store.append_audit(namespace, batch), len(batch))
            store.append_audit(namespace, [_event(number) for number in range(_EVENTS)])
            began = time.thread_time()
            sealed = sealer.seal_own()
            sealing = (time.thread_time() - began) / sealed * 1e6
            began = time.thread_time()
            events = sum(chain.events for chain in Verification(store).all())
            proving = (time.thread_time() - began) / events * 1e6
    saying = _cpu(_caller("ada", "train-7"), _CALLS) - _cpu(_caller(), _CALLS)
    result = {
        "hit_us": {"noting": noting, "actor_and_job": round(saying, 2)},
        "append_us_per_event": {"plain": plain, "remembered_for_sealing": kept},
        "seal_us_per_event": round(sealing, 2),
        "verify_us_per_event": round(proving, 2),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
