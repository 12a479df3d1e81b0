"""Kernels for lower targets over a real server: who gets them, and which one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

import kcache_grpc as kcache
from kcache_grpc import Options
from kcache_grpc._proto.kcache.v1 import admin_pb2, admin_pb2_grpc, common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.manifest import Manifest
from kcache_grpc.model.target import compatible_targets, host_target
from kcache_grpc.storage import open_store
from tests.server.harness.dynamic_programs import agrees, matmul
from tests.server.harness.programs import add, compile_request, header, inline, kernels_request, result_of
from tests.server.harness.running import Running, config_in, running

pytestmark = [
    pytest.mark.issue(number=20, point=7),
    pytest.mark.filterwarnings("ignore:dynamic=.assume.:kcache_grpc.KcacheWarning"),
]

ALLOW, REFUSE = Options(compatible_targets=True), Options(compatible_targets=False)
HOST = str(host_target())
V2, V3, V4 = "x86-64-v2", "x86-64-v3", "x86-64-v4"

runs_lower = pytest.mark.skipif(
    not compatible_targets(host_target()), reason="this machine has no lower target than its own"
)


class Clients:
    """Clients of one server without anything in common but the namespace of the test."""

    def __init__(self, server: Running, folder: Path, namespace: str) -> None:
        self.server = server
        self.namespace = namespace
        self._folder = folder
        self._made: list[kcache.Client] = []

    def new(self, **settings: Any) -> kcache.Client:
        folder = self._folder / f"cache-{len(self._made)}"
        client = kcache.Client(
            self.server.address, namespace=self.namespace, cache_dir=folder, strict=True, **settings
        )
        self._made.append(client)
        return client

    def close(self) -> None:
        for client in self._made:
            client.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")
    with running(config_in(folder, listen=(), socket=folder / "run" / "s")) as server:
        yield server


@pytest.fixture
def clients(server: Running, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Clients]:
    clients = Clients(server, tmp_path, re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:100])
    yield clients
    clients.close()


def got(kernel: kcache.Kernel) -> tuple[str, str]:
    return kernel.origin, str(kernel.manifest.target)


@runs_lower
def test_a_stored_kernel_for_a_lower_target_is_a_hit_and_computes_the_same(clients: Clients) -> None:
    lowest = str(compatible_targets(host_target())[-1])
    assert got(clients.new().compile(matmul(4, 8, 16), target=lowest)) == ("compiled", lowest)
    client = clients.new()
    kernel = client.compile(matmul(4, 8, 16), options=ALLOW)
    assert got(kernel) == ("remote", lowest)
    assert agrees(kernel, 4, 8, 16)
    assert client.stats().compiles == 1
    assert got(clients.new().compile(matmul(4, 8, 16))) == ("compiled", HOST)


def test_exact_first_then_the_highest_level(clients: Clients) -> None:
    first = clients.new()
    for target, expected in ((V2, V2), (V3, V3), (V4, V4)):
        first.compile(matmul(2, 3, 4), target=target)
        kernel = clients.new().compile(matmul(2, 3, 4), target=V4, options=ALLOW)
        assert got(kernel) == ("remote", expected)


@pytest.mark.parametrize("allowed", [REFUSE, None], ids=["rejected", "left to the namespace"])
def test_who_does_not_allow_it_compiles(clients: Clients, allowed: Options | None) -> None:
    clients.new().compile(matmul(2, 3, 4), target=V2)
    kernel = clients.new().compile(matmul(2, 3, 4), target=V3, options=allowed)
    assert got(kernel) == ("compiled", V3)


def test_nothing_but_the_target_may_differ(clients: Clients) -> None:
    client = clients.new()
    client.compile(matmul(2, 3, 4), target=V2, options=Options(opt_level=1))
    client.compile(matmul(2, 3, 4), target=V2, options=Options(numerics="strict"))
    client.compile(matmul(2, 3, 5), target=V2)
    client.compile(matmul(2, 3, 4), target=V2, dynamic="assume")
    assert got(client.compile(matmul(2, 3, 4), target=V3, options=ALLOW)) == ("compiled", V3)


def test_higher_targets_and_other_architectures_never_serve(clients: Clients) -> None:
    client = clients.new()
    for target in (V3, "aarch64", "znver2"):
        client.compile(matmul(2, 3, 4), target=target)
    assert got(client.compile(matmul(2, 3, 4), target=V2, options=ALLOW)) == ("compiled", V2)
    assert got(client.compile(matmul(2, 3, 4), target="neoverse-n1", options=ALLOW)) == ("remote", "aarch64")


def test_exact_variants_come_before_lower_ones_however_special(clients: Clients) -> None:
    """Automatic mode: the target first, then the level, then what takes the fewest sizes."""
    first = clients.new()
    first.compile(matmul(4, 8, 16), target=V2)
    first.compile(matmul(4, 8, 16), target=V3, dynamic="assume", symbols=[(0, 0)])
    evidence = [matmul(4, 8, 16), matmul(5, 8, 16)]
    served = clients.new().compile(evidence, target=V4, dynamic="auto", options=ALLOW)
    assert (got(served), served.manifest.arg_spec) == (("remote", V3), "f32[s0,8];f32[8,16]")
    first.compile(matmul(4, 8, 16), target=V3)
    served = clients.new().compile(evidence, target=V4, dynamic="auto", options=ALLOW)
    assert (got(served), served.manifest.arg_spec) == (("remote", V3), "f32[4,8];f32[8,16]")
    first.compile(matmul(4, 8, 16), target=V4, dynamic="assume", symbols=[(0, 0)])
    served = clients.new().compile(evidence, target=V4, dynamic="auto", options=ALLOW)
    assert (got(served), served.manifest.arg_spec) == (("remote", V4), "f32[s0,8];f32[8,16]")


def test_a_dynamic_wish_gets_its_own_guard_only(clients: Clients) -> None:
    first = clients.new()
    bounds = {(0, 0): kcache.Dim(min=2, multiple_of=2)}
    first.compile(matmul(4, 8, 16), target=V2, dynamic="assume", symbols=bounds)
    other = {(0, 0): kcache.Dim(min=4)}
    kernel = clients.new().compile(
        matmul(4, 8, 16), target=V3, dynamic="assume", symbols=other, options=ALLOW
    )
    assert got(kernel) == ("compiled", V3)
    kernel = clients.new().compile(
        matmul(4, 8, 16), target=V4, dynamic="assume", symbols=bounds, options=ALLOW
    )
    assert (got(kernel), kernel.manifest.guard) == (("remote", V2), "2 <= s0 & s0 % 2 == 0")


def test_explain_names_the_compatible_kernel(clients: Clients) -> None:
    client = clients.new()
    client.compile(matmul(2, 3, 4), target=V2)
    missed = client.explain(matmul(2, 3, 4), target=V3)
    assert (missed.step, missed.hit, missed.compatible_target) == ("TARGET", False, V2)
    assert f"a stored kernel for {V2} would serve it if the request allowed" in missed.summary
    hit = client.explain(matmul(2, 3, 4), target=V3, options=ALLOW)
    assert (hit.hit, hit.compatible_target) == (True, V2)
    assert hit.summary.endswith(f"it is for {V2}, which the target of the request includes")
    client.compile(matmul(2, 3, 4), target=V3)
    exact = client.explain(matmul(2, 3, 4), target=V3, options=ALLOW)
    assert (exact.hit, exact.compatible_target) == (True, "")
    none = client.explain(matmul(2, 3, 4), target="aarch64")
    assert (none.step, none.compatible_target) == ("TARGET", "")


def set_match(server: Running, namespace: str, match: common_pb2.TargetMatch) -> bool:
    stub = admin_pb2_grpc.AdminStub(server.channel)
    request = admin_pb2.SetTargetMatchRequest(header=header(namespace), target_match=match)
    return stub.SetTargetMatch(request).changed


def test_the_namespace_decides_for_those_who_leave_it_open(clients: Clients) -> None:
    server, space = clients.server, clients.namespace
    clients.new().compile(matmul(2, 3, 4), target=V2)
    assert set_match(server, space, common_pb2.TARGET_MATCH_COMPATIBLE)
    assert not set_match(server, space, common_pb2.TARGET_MATCH_COMPATIBLE)
    assert got(clients.new().compile(matmul(2, 3, 4), target=V3)) == ("remote", V2)
    assert got(clients.new(compatible_targets=False).compile(matmul(2, 3, 4), target=V4)) == ("compiled", V4)
    assert set_match(server, space, common_pb2.TARGET_MATCH_EXACT)
    assert got(clients.new().compile(matmul(2, 3, 4), target=V3)) == ("compiled", V3)
    with open_store(server.config.db) as store:
        events = store.list_audit(store.get_or_create_namespace(space), limit=1000)
    assert [e.event.detail for e in events if e.event.outcome == "target_match"] == [
        '{"compatible_targets": true}',
        '{"compatible_targets": true}',
        '{"compatible_targets": false}',
    ]


def test_a_namespace_cannot_leave_it_to_itself(clients: Clients) -> None:
    with pytest.raises(grpc.RpcError, match="use TARGET_MATCH_EXACT or TARGET_MATCH_COMPATIBLE"):
        set_match(clients.server, clients.namespace, common_pb2.TARGET_MATCH_NAMESPACE)


def test_a_client_of_before_gets_exact_kernels_whatever_the_namespace_says(clients: Clients) -> None:
    """Its requests have no such field, and its trust checks know one target only."""
    server, space = clients.server, clients.namespace
    clients.new().compile(add(3), format="stablehlo", target=V2)
    set_match(server, space, common_pb2.TARGET_MATCH_COMPATIBLE)
    request = compile_request(inline(add(3)), space)
    assert request.target.cpu.isa == V3
    result = result_of(server.stub.CompileKernel(request))
    assert result.origin == pb.ORIGIN_COMPILED
    assert str(Manifest.from_bytes(result.manifest.payload).target) == V3


def test_an_unknown_match_is_rejected(clients: Clients) -> None:
    request = kernels_request([add(3)], clients.namespace)
    request.target_match = 77  # type: ignore[assignment]
    with pytest.raises(grpc.RpcError, match="unknown target match number 77"):
        list(clients.server.stub.GetKernels(request))


def test_of_many_at_once_each_gets_the_best_that_there_is_for_it(clients: Clients) -> None:
    first = clients.new()
    first.compile(matmul(2, 3, 4), target=V2)
    first.compile(matmul(3, 3, 4), target=V3)
    kernels = clients.new().compile_many(
        [matmul(2, 3, 4), matmul(3, 3, 4), matmul(4, 3, 4)], target=V3, options=ALLOW
    )
    assert [got(kernel) for kernel in kernels] == [("remote", V2), ("remote", V3), ("compiled", V3)]


def test_a_store_keeps_the_setting(tmp_path: Path) -> None:
    from tests.fresh import fresh_store

    fresh_store(tmp_path / "kcache.sqlite")
    url = f"sqlite:///{tmp_path / 'kcache.sqlite'}"
    with open_store(url) as store:
        space = store.get_or_create_namespace("a")
        assert not store.allows_compatible_targets(space)
        assert store.set_compatible_targets(space, True)
        assert not store.allows_compatible_targets(store.get_or_create_namespace("b"))
    with open_store(url) as store:
        assert store.allows_compatible_targets(store.get_or_create_namespace("a"))


def test_bad_settings_are_rejected() -> None:
    with pytest.raises(ArgumentError, match="compatible_targets"):
        kcache.Options(compatible_targets=1)  # type: ignore[arg-type]
