"""The embedded service starts while the first graph is traced, not before."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from kcache_grpc import embedded
from kcache_grpc.client.client import Client
from kcache_grpc.errors import Unavailable
from kcache_grpc.integrations.torch.dynamo.record import RecordStore
from kcache_grpc.integrations.torch.dynamo.trace import Trace

DIGEST = bytes(32)


def test_a_graph_is_traced_while_the_service_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_dynamo: None
) -> None:
    monkeypatch.delenv("KCACHE_ADDR", raising=False)
    monkeypatch.setenv("KCACHE_CACHE_DIR", str(tmp_path))
    tracing = threading.Event()
    start, function = embedded.start, Trace.function

    def start_once_traced(cache_dir: Path | None, warn: embedded.Warn) -> embedded.EmbeddedService:
        assert tracing.wait(60)
        return start(cache_dir, warn)

    def traced(self: Trace) -> Any:
        tracing.set()
        return function(self)

    monkeypatch.setattr(embedded, "start", start_once_traced)
    monkeypatch.setattr(Trace, "function", traced)
    # A timeout of its own: no other test has this client.
    options = {"strict": True, "timeout": 611.0, "least_operators": 0}
    compiled = torch.compile(lambda x: torch.tanh(x * 2) + x, backend="kcache", options=options)
    x = torch.linspace(-1, 1, 24).reshape(4, 6)
    torch.testing.assert_close(compiled(x), torch.tanh(x * 2) + x)
    assert embedded.is_running(tmp_path)
    with Client(cache_dir=tmp_path) as client:
        assert not client.start_service()  # it runs


def test_a_service_that_does_not_start_is_told_by_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KCACHE_ADDR", raising=False)
    asked = threading.Event()

    def fail(cache_dir: Path | None, warn: embedded.Warn) -> embedded.EmbeddedService:
        asked.set()
        raise Unavailable("no memory")

    monkeypatch.setattr(embedded, "start", fail)
    with Client(cache_dir=tmp_path) as client:
        assert RecordStore(client).find(DIGEST) is None
        assert asked.wait(60)
        with pytest.raises(Unavailable, match="no memory"):
            client.count()


def test_nothing_is_started_where_nothing_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KCACHE_ADDR", raising=False)
    monkeypatch.setattr(embedded, "missing", lambda: "no compiler")
    with Client(cache_dir=tmp_path) as client:
        assert not client.start_service()


def test_a_service_at_an_address_is_asked(address: str, tmp_path: Path) -> None:
    with Client(address, cache_dir=tmp_path / "cache") as client:
        assert not client.start_service()
        client.put_assertion(DIGEST, b"{}", [])
        stored = RecordStore(client).find(DIGEST)
        assert stored is not None
        assert (stored.body, stored.origin) == (b"{}", "remote")
