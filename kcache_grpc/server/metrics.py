"""Metrics for Prometheus: what each RPC cost and came to, and what the service counts.

They name RPCs, outcomes and numbers, never callers, namespaces or programs: who may scrape learns no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import prometheus_client
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from kcache_grpc.errors import ArgumentError, Unavailable
from kcache_grpc.model.bypass import SERVER_REASONS, counter_of
from kcache_grpc.model.identity import Toolchains

#: From a hit in memory to a compile that takes minutes. Seconds.
_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300)

#: Name, help -> whether it only grows. The service's counters by these names are shown.
_COUNTERS = {
    "programs_parsed": "Times that a worker parsed a program.",
    "memory_hits": "Hits served from the server's memory.",
    "compile_requests": "Kernels that compiles were asked for, alone or several a call.",
    "compiles": "Compiles that this server ran.",
    "worker_restarts": "Workers that were replaced.",
    "libraries_prepared": "Libraries of kernels that were compiled while the server was idle.",
    "library_preparations_preempted": "Precompilations of libraries that a client's job ended or prevented.",
    "verifications": "Stored kernels that this server verified in the background.",
    "verification_faults": "Those of them that were faulty.",
    "verifications_preempted": "Background verifications that a client's job ended.",
    "audit_dropped": "Requests that were not written to the audit log, as its queue was full.",
    "blob_hits": "Values of BlobCache that were handed out.",
    "blob_misses": "Keys of BlobCache that were asked for and are not stored.",
    "blob_inserts": "Values of BlobCache that were stored.",
    "blob_conflicts": "Values of BlobCache that were offered under a key with another value.",
    "blob_milliseconds_saved": "Time that producing the values that were handed out took.",
    "assertion_hits": "Assertions of source digests that were returned.",
    "assertion_misses": "Source digests without an assertion that the caller may trust.",
    "assertion_inserts": "Assertions that were stored.",
    "assertion_conflicts": "Assertions that were offered after another one of the same actor.",
    "assertions_quarantined": "Assertions that were disputed and put into quarantine.",
}
_BYPASSES = "Compile requests that bypassed the cache, by reason."
_GAUGES = {
    "compiles_running": "Compiles that run, or wait for a worker or for another server.",
    "workers": "Worker processes.",
    "workers_busy": "Worker processes with a job.",
    "jobs_waiting": "Jobs that wait for a worker.",
}

Counters = Callable[[], Mapping[str, int]]


class Metrics:
    """What one server measures. ``observe`` costs about two microseconds."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        self._seconds = prometheus_client.Histogram(
            "kcache_rpc_seconds",
            "Duration of RPCs, streams included, by method and outcome (OK, or the reason of the error).",
            ("rpc", "outcome"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._children: dict[tuple[str, str], prometheus_client.Histogram] = {}

    def observe(self, method: str, outcome: str, seconds: float) -> None:
        """One RPC. Thread-safe. Outcomes and methods are from small fixed sets."""
        child = self._children.get((method, outcome))
        if child is None:
            child = self._seconds.labels(method.rpartition("/")[2], outcome)
            self._children[method, outcome] = child
        child.observe(seconds)

    def watch(self, counters: Counters, version: str, toolchains: Toolchains) -> None:
        """Show what the service counts, and what it is."""
        self.registry.register(_Service(counters))
        info = prometheus_client.Info("kcache_server", "What this server is.", registry=self.registry)
        cpu, gpu = (each.digest.hex()[:16] for each in (toolchains.cpu, toolchains.gpu))
        info.info({"version": version, "toolchain": cpu, "gpu_toolchain": gpu})

    def text(self) -> str:
        """In Prometheus's text format."""
        return prometheus_client.generate_latest(self.registry).decode()

    def serve(self, address: str) -> MetricsEndpoint:
        """Answers ``http://address/metrics`` from a thread. Raises ``ArgumentError`` or ``Unavailable``."""
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise ArgumentError(f"metrics address {address!r}: use host:port", field="metrics")
        try:
            server, thread = prometheus_client.start_http_server(
                int(port), addr=host.strip("[]"), registry=self.registry
            )
        except OSError as error:
            raise Unavailable(f"cannot serve metrics on {address}: {error.strerror}") from error

        def close() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return MetricsEndpoint(f"{host}:{server.server_port}", close)


class MetricsEndpoint:
    """Where metrics are served, until ``close``."""

    def __init__(self, address: str, close: Callable[[], None]) -> None:
        self.address = address
        self.close = close


class _Service(Collector):
    """Reads the service's counters when somebody scrapes."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def collect(self) -> Iterable[Metric]:
        values = self._counters()
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"kcache_{name}", text, value=values[name])
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"kcache_{name}", text, value=values[name])
        bypasses = CounterMetricFamily("kcache_bypasses", _BYPASSES, labels=("reason",))
        for reason in SERVER_REASONS:
            bypasses.add_metric((reason.value,), values[counter_of(reason)])
        yield bypasses
