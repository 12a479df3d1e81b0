"""Programs that bypass the cache are counted by reason: every reason, by what really causes it."""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

import kcache_grpc as kcache
from kcache_grpc.model.bypass import SERVER_REASONS, BypassReason, counter_of, rejection_reason
from kcache_grpc.service.values import Limits
from kcache_grpc.storage import open_store
from tests.client.conftest import PROGRAM, NewClient
from tests.client.fake import FakeServer, FakeService, Rejection
from tests.repository.sources import ROOT
from tests.server.harness import gated_jobs
from tests.server.harness.programs import add
from tests.server.harness.running import Running, config_in, running

pytestmark = pytest.mark.issue(number=20, point=6)

UNSUPPORTED = (
    "func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {\n"
    "  %0 = stablehlo.custom_call @anything(%x) : (tensor<8xf32>) -> tensor<8xf32>\n"
    "  return %0 : tensor<8xf32>\n}\n"
)
LARGE = "\n".join(
    [
        "func.func @main(%v0: tensor<8xf32>) -> tensor<8xf32> {",
        *(f"  %v{n + 1} = stablehlo.tanh %v{n} : tensor<8xf32>" for n in range(60)),
        "  return %v60 : tensor<8xf32>\n}\n",
    ]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bypasses")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    """Its compiler crashes and hangs for certain sizes, and takes 50 operations and 5 s."""
    worker = gated_jobs.write_module(folder / "jobs")
    (folder / "jobs" / "open").touch()
    limits = Limits(operations=50, compile_seconds=5.0)
    with running(config_in(folder, worker=worker, limits=limits, metrics="127.0.0.1:0")) as server:
        yield server


@pytest.fixture
def strict(server: Running, new_client: NewClient, request: pytest.FixtureRequest) -> kcache.Client:
    space = request.node.originalname.replace("_", "-")[:40]
    return new_client(server.address, namespace=space)


def bypasses(client: kcache.Client) -> dict[str, int]:
    counts = client._core._counters.snapshot()
    return {
        reason.value: counts[counter_of(reason)] for reason in BypassReason if counts.get(counter_of(reason))
    }


def gained(server: Running, before: dict[str, int], client: kcache.Client) -> dict[str, int]:
    """What the server has counted since, as its statistics and its metrics agree."""
    after = dict(client.stats().bypasses)
    with urllib.request.urlopen(
        f"http://{server.addresses[-1].removeprefix('http://')}", timeout=120
    ) as reply:
        families = text_string_to_metric_families(reply.read().decode())
    samples = [sample for family in families if family.name == "kcache_bypasses" for sample in family.samples]
    assert {sample.labels["reason"] for sample in samples} == {reason.value for reason in SERVER_REASONS}
    assert {sample.labels["reason"]: sample.value for sample in samples if sample.value} == after
    return {
        reason: count - before.get(reason, 0)
        for reason, count in after.items()
        if count > before.get(reason, 0)
    }


@pytest.mark.parametrize(
    ("program", "error", "reason"),
    [
        ("func.func @main( {", kcache.InvalidProgram, "invalid_program"),
        (UNSUPPORTED, kcache.UnsupportedOp, "unsupported_op"),
        (LARGE, kcache.ResourceExhausted, "over_limit"),
        (add(gated_jobs.SEGFAULT), kcache.CompileFailed, "compile_failed"),
        (add(gated_jobs.HANG), kcache.CompileTimeout, "compile_timeout"),
    ],
    ids=lambda value: value if isinstance(value, str) and "_" in value and " " not in value else "",
)
def test_a_program_without_a_kernel(
    server: Running, strict: kcache.Client, program: Any, error: type[kcache.KcacheError], reason: str
) -> None:
    before = dict(strict.stats().bypasses)
    with pytest.raises(error):
        strict.compile(program, format="stablehlo", target="x86-64-v3")
    assert bypasses(strict) == {reason: 1}
    # A large program is refused to the first request that looks for it, and to the one that sends it along.
    assert set(gained(server, before, strict)) == {reason}


def test_a_remembered_failure_that_is_tried_again(server: Running, strict: kcache.Client) -> None:
    for _ in range(2):
        with pytest.raises(kcache.UnsupportedOp):
            strict.compile(UNSUPPORTED, target="x86-64-v3")
    before = dict(strict.stats().bypasses)
    assert bypasses(strict) == {"unsupported_op": 2}
    with pytest.raises(kcache.UnsupportedOp):
        strict.compile(UNSUPPORTED, target="x86-64-v3", retry=True)
    assert bypasses(strict) == {"unsupported_op": 3, "retry": 1}
    assert gained(server, before, strict)["retry"] == 1


def test_a_retry_without_a_failure_is_none(strict: kcache.Client) -> None:
    strict.compile(add(5), target="x86-64-v3", retry=True)
    assert bypasses(strict) == {}


def test_a_quota(server: Running, strict: kcache.Client, folder: Path) -> None:
    strict.compile(add(6), target="x86-64-v3")
    with open_store(f"sqlite:///{folder}/kcache.sqlite") as store:
        space = store.find_namespace(strict._core.config.namespace)
        assert space is not None
        store.set_quota(space, "kernels", 1, "refuse")
    before = dict(strict.stats().bypasses)
    with pytest.raises(kcache.ResourceExhausted):
        strict.compile(add(7), target="x86-64-v3")
    assert bypasses(strict) == {"quota": 1}
    assert gained(server, before, strict) == {"quota": 1}


def test_an_input_without_bytes(strict: kcache.Client) -> None:
    with pytest.raises(kcache.ArgumentError):
        strict.compile(object())  # pyright: ignore[reportArgumentType]
    assert bypasses(strict) == {"uncacheable_input": 1}


def test_a_cache_directory_that_is_open_to_others(
    fake: FakeServer, new_client: NewClient, cache_dir: Path
) -> None:
    cache_dir.mkdir(mode=0o755)
    cache_dir.chmod(0o755)
    with pytest.warns(kcache.KcacheWarning, match="keeps nothing on disk"):
        client = new_client(fake.address)
    client.compile(PROGRAM)
    assert bypasses(client) == {"disk_unusable": 1}


def test_a_disk_that_takes_no_bytes(fake: FakeServer, new_client: NewClient, cache_dir: Path) -> None:
    cache_dir.mkdir(mode=0o700)
    (cache_dir / "kernels").write_text("not a folder")
    client = new_client(fake.address)
    with pytest.warns(kcache.KcacheWarning, match="keeps nothing more on disk"):
        client.compile(PROGRAM)
    client.compile(PROGRAM + "\n")
    assert bypasses(client) == {"disk_unusable": 2}


def test_a_service_that_is_away_and_then_given_up(
    embedded_service: FakeService, new_client: NewClient
) -> None:
    client = new_client("127.0.0.1:1", strict=False)
    with pytest.warns(kcache.KcacheWarning, match="an embedded service compiles instead"):
        client.compile(PROGRAM)
    assert bypasses(client) == {"service_unavailable": 1}
    client.compile(PROGRAM + "\n")
    assert bypasses(client) == {"service_unavailable": 1, "breaker_open": 1}
    client.compile_many([PROGRAM + "\n" * n for n in (2, 3, 4)])
    assert bypasses(client) == {"service_unavailable": 1, "breaker_open": 4}
    client.normalize(PROGRAM)  # compiles nothing
    assert bypasses(client) == {"service_unavailable": 1, "breaker_open": 4}


def test_a_strict_client_bypasses_nothing(new_client: NewClient) -> None:
    client = new_client("127.0.0.1:1", timeout=0.5)
    with pytest.raises(kcache.Unavailable):
        client.compile(PROGRAM)
    assert bypasses(client) == {}


def full(reply: Any) -> Any:
    raise Rejection(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", "RESOURCE_EXHAUSTED", limit="quota.kernels")


def disowned(reply: Any) -> Any:
    raise Rejection(grpc.StatusCode.PERMISSION_DENIED, "disowned", "PERMISSION_DENIED", toolchain="ab")


@pytest.mark.parametrize(
    ("method", "bend", "reason"),
    [("CompileKernel", full, "quota"), ("GetKernels", disowned, "version_skew")],
)
def test_a_service_that_rejects(
    fake: FakeServer,
    service: FakeService,
    embedded_service: FakeService,
    new_client: NewClient,
    method: str,
    bend: Callable[[Any], Any],
    reason: str,
) -> None:
    service.bend[method] = bend
    client = new_client(fake.address, strict=False)
    with pytest.warns(kcache.KcacheWarning, match="an embedded service compiles instead"):
        client.compile(PROGRAM)
    assert bypasses(client) == {reason: 1}


def test_a_damaged_pin(
    fake: FakeServer, embedded_service: FakeService, new_client: NewClient, cache_dir: Path
) -> None:
    new_client(fake.address).compile(PROGRAM)
    [pin] = (cache_dir / "pins").iterdir()
    pin.write_text("{")
    client = new_client(fake.address, strict=False)
    with pytest.warns(kcache.KcacheWarning, match="kcache pins forget"):
        client.compile(PROGRAM)
    assert bypasses(client) == {"damaged_pin": 1}


def test_bypasses_of_ended_clients_are_in_the_stats(fake: FakeServer, new_client: NewClient) -> None:
    first = new_client(fake.address)
    for _ in range(2):
        with contextlib.suppress(kcache.ArgumentError):
            first.compile(object())  # pyright: ignore[reportArgumentType]
    first.close()
    stats = new_client(fake.address).stats()
    assert stats.local_bypasses == {"uncacheable_input": 2}
    assert "bypass_uncacheable_input" not in stats.client


@pytest.mark.parametrize("limit", ["max_waiting", "reply_bytes", "spool_bytes"])
def test_a_busy_server_is_no_reason(limit: str) -> None:
    assert rejection_reason(kcache.ResourceExhausted("busy", limit=limit)) is None
    assert rejection_reason(kcache.Unavailable("away")) is None
    assert rejection_reason(kcache.ArgumentError("wrong")) is None


def test_the_page_has_every_reason_and_this_file_goes_through_all() -> None:
    page = (ROOT / "docs" / "guide" / "time-saved.md").read_text()
    table = page[page.index("| reason |") :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert [row[0].strip("`") for row in cells] == [reason.value for reason in BypassReason]
    seen = {row[0].strip("`") for row in cells if "server" in row[1]}
    assert seen == {reason.value for reason in SERVER_REASONS}
    source = Path(__file__).read_text()
    assert [reason for reason in BypassReason if f'"{reason.value}"' not in source] == []
