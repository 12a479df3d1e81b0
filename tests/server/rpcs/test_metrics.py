"""What Prometheus scrapes: real requests, read back through the text format's own parser."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.errors import ArgumentError, Unavailable
from tests.server.harness import idle_jobs
from tests.server.harness.programs import TARGET, add, header, inline
from tests.server.harness.running import Running, config_in, running


def scrape(server: Running) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples by name and labels."""
    with urllib.request.urlopen(server.addresses[-1], timeout=120) as reply:
        text = reply.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def calls(samples: dict, rpc: str, outcome: str) -> float:
    return samples.get(("kcache_rpc_seconds_count", (("outcome", outcome), ("rpc", rpc))), 0.0)


def test_requests_and_work_are_counted(tmp_path: Path) -> None:
    with running(config_in(tmp_path, metrics="127.0.0.1:0")) as server:
        before = scrape(server)
        assert calls(before, "CountSpecs", "OK") == 0
        assert before["kcache_compiles_total", ()] == 0
        for _ in range(3):
            server.stub.CountSpecs(pb.CountSpecsRequest(header=header()))
        with pytest.raises(grpc.RpcError):
            server.stub.CountSpecs(pb.CountSpecsRequest(header=header("not a namespace")))
        request = pb.CompileKernelRequest(header=header("secret-name"), graph=inline(add(4)), target=TARGET)
        list(server.stub.CompileKernel(request))
        list(server.stub.CompileKernels(pb.CompileKernelsRequest(header=header(), requests=[request] * 2)))
        # A flight lands, and a worker is free, a moment after the result is told.
        while (after := scrape(server))["kcache_workers_busy", ()] or after["kcache_compiles_running", ()]:
            pass
        assert calls(after, "CountSpecs", "OK") == 3
        assert calls(after, "CountSpecs", "ARGUMENT") == 1
        assert calls(after, "CompileKernel", "OK") == 1
        assert after["kcache_compiles_total", ()] == 2  # "secret-name" and the default namespace
        assert after["kcache_compile_requests_total", ()] == 3
        assert after["kcache_programs_parsed_total", ()] == 2
        assert after["kcache_workers", ()] >= 1
        assert ("process_resident_memory_bytes", ()) in after
        (info,) = [dict(labels) for name, labels in after if name == "kcache_server_info"]
        assert set(info) == {"version", "toolchain", "gpu_toolchain"}
        with urllib.request.urlopen(server.addresses[-1], timeout=120) as reply:
            assert b"secret-name" not in reply.read()
        address = server.addresses[-1]
    with pytest.raises(OSError):
        urllib.request.urlopen(address, timeout=5)


@pytest.mark.parametrize("address", ["9090", "host:", ":9090", "localhost:99999"])
def test_what_is_no_address(tmp_path: Path, address: str) -> None:
    with pytest.raises(ArgumentError, match="host:port"), running(config_in(tmp_path, metrics=address)):
        pass


def test_a_taken_port_is_a_clear_error_and_nothing_is_left(tmp_path: Path) -> None:
    idle = idle_jobs.settings()
    with running(config_in(tmp_path / "one", metrics="127.0.0.1:0", worker=idle)) as server:
        taken = server.addresses[-1].split("/")[2]
        config = config_in(tmp_path / "two", metrics=taken, worker=idle)
        with pytest.raises(Unavailable, match="Address already in use"), running(config):
            pass
