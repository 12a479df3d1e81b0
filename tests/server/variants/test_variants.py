"""Variants over a real server: static, dynamic and guarded kernels under one key, and which one is served."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc import Dim
from kcache_grpc._proto.kcache.v1 import common_pb2
from kcache_grpc._proto.kcache.v1 import kernel_cache_pb2 as pb
from kcache_grpc.model.manifest import Binding, Manifest
from kcache_grpc.storage import open_store
from tests.server.harness import dynamic_jobs
from tests.server.harness.dynamic_programs import WHOLE, agrees, matmul
from tests.server.harness.programs import compile_request, header, inline, kernels_request, result_of
from tests.server.harness.running import Running, config_in, running

#: Kernels for all sizes are what is tested here, not the evidence for them (test_evidence.py).
pytestmark = pytest.mark.filterwarnings("ignore:dynamic=.assume.:kcache_grpc.KcacheWarning")

NewClient = Callable[..., kcache.Client]

DYNAMIC = common_pb2.DynamicShapes(mode=common_pb2.DYNAMIC_MODE_DYNAMIC, assume=True)
AUTO = common_pb2.DynamicShapes(mode=common_pb2.DYNAMIC_MODE_AUTO)


@pytest.fixture
def client(server: Running, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[kcache.Client]:
    """In a namespace of the test's own, without what other tests keep on disk."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:100]
    with kcache.Client(server.address, namespace=name, cache_dir=tmp_path / "cache", strict=True) as client:
        yield client


def published(server: Running, namespace: str) -> list[bytes | None]:
    """Digests of the kernels that were compiled, in order."""
    with open_store(server.config.db) as store:
        events = store.list_audit(store.get_or_create_namespace(namespace), limit=100_000)
    return [record.event.kernel_digest for record in events if record.event.kind == "publish"]


def shape(kernel: kcache.Kernel) -> tuple[str, str]:
    return kernel.manifest.arg_spec, kernel.manifest.guard


def test_one_dynamic_kernel_takes_all_sizes_without_another_request(
    server: Running, client: kcache.Client
) -> None:
    kernel = client.compile(matmul(2, 8, 64), dynamic="assume")
    assert shape(kernel) == (WHOLE, "")
    before = client.stats()
    for sizes in [(2, 8, 64), (3, 5, 7), (1, 1, 1), (0, 4, 4), (4, 0, 4), (4, 4, 0), (33, 65, 17)]:
        assert agrees(kernel, *sizes)
    after = client.stats()
    assert after.client.get("retries", 0) == before.client.get("retries", 0)
    assert (after.hits, after.compiles, after.kernels) == (before.hits, 1, 1)


def test_other_sizes_of_the_program_are_served_by_the_same_kernel(client: kcache.Client) -> None:
    first = client.compile(matmul(2, 8, 64), dynamic="assume")
    two = client.compile(matmul(5, 6, 7), dynamic="assume")
    assert (first.origin, two.origin) == ("compiled", "remote")
    assert two.manifest.kernel_digest == first.manifest.kernel_digest
    assert two.key == first.key
    assert two.binding.program_digest != first.binding.program_digest
    assert (two.binding.symbol_values, two.binding.arg_spec) == ((5, 6, 7), "f32[5,6];f32[6,7]")
    assert agrees(two, 9, 2, 4)


def test_static_dynamic_and_guarded_kernels_live_under_one_key(
    server: Running, client: kcache.Client
) -> None:
    """No request changes what another one gets, in whatever order they come."""
    even: dict[str, Any] = {"dynamic": "assume", "symbols": {(0, 0): Dim(2, 64, 2)}}
    wishes: list[dict[str, Any]] = [
        {},
        even,
        {"dynamic": "assume"},
        {"dynamic": "assume", "symbols": [(0, 0), (1, 0)]},
    ]
    shapes = [
        ("f32[4,8];f32[8,6]", ""),
        ("f32[s0,8];f32[8,6]", "2 <= s0 & s0 <= 64 & s0 % 2 == 0"),
        (WHOLE, ""),
        ("f32[s0,s1];f32[s1,6]", ""),
    ]
    first = [client.compile(matmul(4, 8, 6), **requirements) for requirements in wishes]
    assert [shape(kernel) for kernel in first] == shapes
    again = [client.compile(matmul(4, 8, 6) + "\n", **requirements) for requirements in reversed(wishes)][
        ::-1
    ]
    assert [shape(kernel) for kernel in again] == shapes
    assert [kernel.origin for kernel in again] == ["remote"] * 4
    assert len({kernel.key for kernel in first + again}) == 1
    assert len(published(server, client_namespace(client))) == 4
    assert all(agrees(kernel, 4, 8, 6) for kernel in first)


def client_namespace(client: kcache.Client) -> str:
    return client._core.config.namespace  # pyright: ignore[reportPrivateUsage]


def test_auto_is_static_first_and_dynamic_from_the_second_size_on(
    server: Running, client: kcache.Client
) -> None:
    first = client.compile(matmul(2, 8, 4), dynamic="auto")
    assert (first.origin, *shape(first)) == ("compiled", "f32[2,8];f32[8,4]", "")
    same = client.compile(matmul(2, 8, 4) + "\n", dynamic="auto")
    assert (same.origin, same.manifest) == ("remote", first.manifest)
    second = client.compile(matmul(3, 8, 4), dynamic="auto")
    assert (second.origin, *shape(second)) == ("compiled", "f32[s0,8];f32[8,4]", "")
    third = client.compile(matmul(7, 5, 2), dynamic="auto")
    assert (third.origin, *shape(third)) == ("compiled", WHOLE, "")
    assert agrees(third, 7, 5, 2)
    fourth = client.compile(matmul(9, 3, 6), dynamic="auto")
    assert (fourth.origin, fourth.manifest) == ("remote", third.manifest)
    assert len(published(server, client_namespace(client))) == 3
    assert client.compile(matmul(2, 8, 4) + " ", dynamic="auto").manifest == first.manifest


def test_auto_serves_the_most_specific_kernel_for_the_sizes(client: kcache.Client) -> None:
    client.compile(matmul(16, 8, 4), dynamic="assume")
    client.compile(matmul(16, 8, 4), dynamic="assume", symbols={(0, 0): Dim(multiple_of=8)})
    client.compile(matmul(16, 8, 4), dynamic="assume", symbols={(0, 0): Dim(8, 64, 8)})
    client.compile(matmul(16, 8, 4))
    for sizes in [(15, 8, 4), (16, 9, 4), (16, 8, 5)]:
        client.store(matmul(*sizes))
    served = {rows: shape(client.compile(matmul(rows, 8, 4), dynamic="auto")) for rows in (16, 24, 72, 17)}
    assert served == {
        16: ("f32[16,8];f32[8,4]", ""),
        24: ("f32[s0,8];f32[8,4]", "8 <= s0 & s0 <= 64 & s0 % 8 == 0"),
        72: ("f32[s0,8];f32[8,4]", "s0 % 8 == 0"),
        17: (WHOLE, ""),
    }
    assert client.stats().kernels == 4


def test_of_equally_special_kernels_the_older_is_served(client: kcache.Client) -> None:
    rows = client.compile(matmul(4, 8, 5), dynamic="assume", symbols=[(0, 0)])
    client.compile(matmul(4, 8, 5), dynamic="assume", symbols=[(1, 1)])
    for sizes in [(6, 8, 5), (4, 8, 7)]:
        client.store(matmul(*sizes))
    assert client.compile(matmul(4, 8, 5), dynamic="auto").manifest == rows.manifest


def test_a_second_size_of_what_may_be_no_symbol_stays_static(client: kcache.Client) -> None:
    client.compile(matmul(2, 8, 4), dynamic="auto", symbols=[(0, 0)])
    other = client.compile(matmul(2, 8, 5), dynamic="auto", symbols=[(0, 0)])
    assert shape(other) == ("f32[2,8];f32[8,5]", "")
    third = client.compile(matmul(6, 8, 5), dynamic="auto", symbols=[(0, 0)])
    assert shape(third) == ("f32[s0,8];f32[8,5]", "")


def test_what_auto_has_seen_outlives_the_server(tmp_path: Path) -> None:
    def asked(rows: int) -> tuple[str, tuple[str, str]]:
        config = config_in(tmp_path)
        with (
            running(config) as server,
            kcache.Client(server.address, cache_dir=tmp_path / f"cache-{rows}", strict=True) as client,
        ):
            kernel = client.compile(matmul(rows, 3, 3), dynamic="auto")
            return kernel.origin, shape(kernel)

    assert [asked(rows) for rows in (2, 4, 5)] == [
        ("compiled", ("f32[2,3];f32[3,3]", "")),
        ("compiled", ("f32[s0,3];f32[3,3]", "")),
        ("remote", ("f32[s0,3];f32[3,3]", "")),
    ]


def test_requests_for_many_sizes_at_once_are_one_compile(server: Running) -> None:
    requests = [
        compile_request(inline(matmul(rows, 3, 3).encode()), "manysizes", shapes=DYNAMIC)
        for rows in range(2, 34)
    ]
    calls = [server.stub.CompileKernel(request) for request in requests]
    with ThreadPoolExecutor(32) as threads:
        results = list(threads.map(result_of, calls))
    assert Counter(result.origin for result in results)[pb.ORIGIN_COMPILED] == 1
    assert len({result.manifest.payload for result in results}) == 1
    assert len({result.binding.payload for result in results}) == 32
    assert len(published(server, "manysizes")) == 1


def test_what_cannot_be_compiled_dynamic_is_static_under_auto(tmp_path: Path) -> None:
    """Other modes raise, and remember; auto is there to make things better, never worse."""
    config = config_in(tmp_path, worker=dynamic_jobs.write_module(tmp_path / "jobs"))
    with (
        running(config) as server,
        kcache.Client(server.address, cache_dir=tmp_path / "c", strict=True) as client,
    ):
        client.compile(matmul(2, 3, 3), dynamic="auto")
        static = client.compile(matmul(4, 3, 3), dynamic="auto")
        assert shape(static) == ("f32[4,3];f32[3,3]", "")
        for _ in range(2):
            with pytest.raises(kcache.UnsupportedOp, match="sorts"):
                client.compile(matmul(4, 3, 3), dynamic="assume", symbols=[(0, 0)])
        another = client.compile(matmul(5, 3, 3), dynamic="auto")
        assert (another.origin, *shape(another)) == ("compiled", "f32[5,3];f32[3,3]", "")
        assert client.compile(matmul(5, 3, 3) + "\n", dynamic="auto").origin == "remote"
        assert len(list((tmp_path / "jobs").glob("dynamic-*"))) == 1


def test_axes_that_the_program_leaves_open_are_symbols_in_every_mode(client: kcache.Client) -> None:
    program = matmul("?", 8, 4)
    static = client.compile(program)
    assert shape(static) == ("f32[s0,8];f32[8,4]", "")
    assert static.binding.symbol_values == (-1, 8, 4)
    assert agrees(static, 5, 8, 4)
    auto = client.compile(program + "\n", dynamic="auto")
    assert auto.manifest == static.manifest
    bounded = client.compile(program, dynamic=True, symbols={(0, 0): Dim(max=9)})
    assert shape(bounded) == ("f32[s0,8];f32[8,4]", "s0 <= 9")
    assert client.compile(program + " ", dynamic="auto").manifest == static.manifest
    with pytest.raises(kcache.ArgumentError, match="s0 <= 9 only"):
        bounded(np.zeros((10, 8), np.float32), np.zeros((8, 4), np.float32))
    known = client.compile(matmul(6, 8, 4), dynamic="auto")
    assert known.manifest == bounded.manifest
    assert client.compile(program, dynamic=True).manifest == static.manifest
    whole = client.compile(program, dynamic="assume")
    assert shape(whole) == (WHOLE, "")


def test_a_dynamic_kernel_rejects_what_its_guard_or_its_spec_reject(client: kcache.Client) -> None:
    kernel = client.compile(matmul(8, 8, 4), dynamic="assume", symbols={(0, 0): Dim(8, 64, 8), (0, 1): Dim()})

    def call(a: tuple[int, int], b: tuple[int, int]) -> None:
        kernel(np.zeros(a, np.float32), np.zeros(b, np.float32))

    call((16, 3), (3, 4))
    with pytest.raises(kcache.ArgumentError) as rejected:
        call((12, 8), (8, 4))
    assert "argument 0 (arg0): axis 0 (s0) is 12, and this kernel is for s0 % 8 == 0 only" in str(
        rejected.value
    )
    assert rejected.value.metadata["guard"] == kernel.manifest.guard
    assert (rejected.value.metadata["argument"], rejected.value.metadata["axis"]) == ("0", "0")
    with pytest.raises(
        kcache.ArgumentError, match=r"axis 0 is 5 instead of 3 \(s1 = 3 from axis 1 of argument 0\)"
    ):
        call((16, 3), (5, 4))
    with pytest.raises(kcache.ArgumentError, match="axis 1 is 5 instead of 4"):
        call((16, 3), (3, 5))
    with pytest.raises(kcache.ArgumentError, match="8 <= s0"):
        call((0, 3), (3, 4))


@pytest.mark.parametrize(
    ("symbols", "says"),
    [
        ([(0, 2)], "symbols name axis 2 of argument 0"),
        ([(2, 0)], "axis 0 of argument 2; the program has 2 arguments"),
        ({(0, 0): Dim(min=9)}, r"axis 0 of argument 0 \(s0\) is 8 in the program"),
        ({(0, 1): Dim(min=8), (1, 0): Dim(max=7)}, r"are one size \(s1\), and no size meets both"),
    ],
)
def test_symbols_that_cannot_be_are_rejected_with_their_place(
    client: kcache.Client, symbols: Any, says: str
) -> None:
    wishes: list[Any] = [True, "assume", "auto"]
    for dynamic in wishes:
        for _ in range(2):  # unknown to the server, then known
            with pytest.raises(kcache.ArgumentError, match=says):
                client.compile(matmul(8, 8, 4), dynamic=dynamic, symbols=symbols)


def test_an_axis_that_the_program_fixes_cannot_be_a_symbol(client: kcache.Client) -> None:
    program = """func.func @main(%a: tensor<4x6xf32>) -> tensor<4x2xf32> {
      %r = stablehlo.slice %a [0:4, 1:3] : (tensor<4x6xf32>) -> tensor<4x2xf32>
      return %r : tensor<4x2xf32> }"""
    with pytest.raises(kcache.ArgumentError, match="axis 1 of argument 0 is fixed at 6 by the program"):
        client.compile(program, dynamic="assume", symbols=[(0, 1)])
    assert shape(client.compile(program, dynamic="assume")) == ("f32[s0,6]", "")


def test_dynamic_kernels_come_from_memory_and_from_disk(tmp_path: Path) -> None:
    requirements: dict[str, Any] = {"dynamic": "assume", "symbols": {(0, 0): Dim(1, 9)}}
    with running(config_in(tmp_path)) as server:

        def origins(asked: bool = True, **more: Any) -> list[str]:
            settings: dict[str, Any] = {"cache_dir": tmp_path / "cache", "strict": True, **more}
            with kcache.Client(server.address, **settings) as client:
                if asked:
                    client.store(matmul(5, 3, 2))
                kernels = [client.compile(matmul(4, 3, 2), **requirements) for _ in range(2)]
                kernels.append(client.compile(matmul(4, 3, 2), dynamic="auto"))
            assert all(agrees(kernel, 7, 3, 2) for kernel in kernels[:2])
            assert agrees(kernels[2], 4, 3, 2)
            assert {shape(kernel) for kernel in kernels} == {("f32[s0,3];f32[3,2]", "1 <= s0 & s0 <= 9")}
            return [kernel.origin for kernel in kernels]

        assert origins() == ["compiled", "memory", "remote"]
        assert origins() == ["disk", "memory", "disk"]
        server.stop(0)
        assert origins(asked=False) == ["disk", "memory", "disk"]


def test_stubs_get_the_kernel_whose_guard_holds(server: Running) -> None:
    """A stub sends digests and needs no guards: the server evaluates them."""
    axis = common_pb2.SymbolAxis(arg=0, axis=0, min=8, multiple_of=8)
    guarded = common_pb2.DynamicShapes(mode=common_pb2.DYNAMIC_MODE_DYNAMIC, axes=[axis], assume=True)
    bodies = [matmul(rows, 3, 3).encode() for rows in (8, 16, 17)]
    for other in (matmul(8, 4, 3), matmul(8, 3, 4)):
        server.stub.StoreGraph(pb.StoreGraphRequest(header=header("stubs"), graph=inline(other.encode())))
    for body, shapes in zip(bodies, (guarded, DYNAMIC, None), strict=True):
        server.stub.StoreGraph(pb.StoreGraphRequest(header=header("stubs"), graph=inline(body)))
        if body != bodies[-1]:
            result_of(server.stub.CompileKernel(compile_request(inline(body), "stubs", shapes=shapes)))

    def look(shapes: Any) -> list[tuple[int, str | bytes]]:
        replies = server.stub.GetKernels(kernels_request(bodies, "stubs", shapes=shapes))
        results = {result.index: result for reply in replies for result in reply.results}
        answers = [results[index] for index in range(len(bodies))]
        return [
            (result.status, result.manifest.payload and guard_in(result.manifest.payload))
            for result in answers
        ]

    hit, missing = pb.KERNEL_STATUS_FOUND, pb.KERNEL_STATUS_NEED_COMPILE
    guard = "8 <= s0 & s0 % 8 == 0"
    assert look(AUTO) == [(hit, guard), (hit, guard), (hit, "")]
    assert look(DYNAMIC) == [(hit, "")] * 3
    assert look(None) == [(missing, b"")] * 3
    assert look(common_pb2.DynamicShapes()) == [(missing, b"")] * 3


def guard_in(payload: bytes) -> str:
    return Manifest.from_bytes(payload).guard


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        (common_pb2.DynamicShapes(axes=[common_pb2.SymbolAxis()]), "for one size only"),
        (common_pb2.DynamicShapes(mode=9), "unknown dynamic mode number 9"),  # type: ignore[arg-type]
        (
            common_pb2.DynamicShapes(
                mode=common_pb2.DYNAMIC_MODE_DYNAMIC, axes=[common_pb2.SymbolAxis(min=4, max=2)]
            ),
            "no size meets",
        ),
        (
            common_pb2.DynamicShapes(
                mode=common_pb2.DYNAMIC_MODE_AUTO, axes=[common_pb2.SymbolAxis(min=1 << 63)]
            ),
            "min of a Dim",
        ),
        (
            common_pb2.DynamicShapes(
                mode=common_pb2.DYNAMIC_MODE_DYNAMIC,
                axes=[common_pb2.SymbolAxis(axis=a) for a in range(5000)],
            ),
            "more than 4096",
        ),
        (
            common_pb2.DynamicShapes(
                mode=common_pb2.DYNAMIC_MODE_DYNAMIC, axes=[common_pb2.SymbolAxis(arg=4_000_000_000)]
            ),
            "the program has 2 arguments",
        ),
    ],
)
def test_bad_wishes_on_the_wire_are_rejected(server: Running, shapes: Any, says: str) -> None:
    body = matmul(8, 3, 3).encode()
    server.stub.StoreGraph(pb.StoreGraphRequest(header=header("badwish"), graph=inline(body)))
    for call in (
        server.stub.CompileKernel(compile_request(inline(body), "badwish", shapes=shapes)),
        server.stub.GetKernels(kernels_request([body], "badwish", shapes=shapes)),
    ):
        with pytest.raises(grpc.RpcError) as rejected:
            list(call)
        assert rejected.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]
        assert says in rejected.value.details()  # type: ignore[attr-defined]


def test_kernels_of_a_key_are_listed_in_pages(server: Running, client: kcache.Client) -> None:
    for rows in (2, 3, 4):
        client.compile(matmul(rows, 3, 2))
    guarded = client.compile(matmul(4, 3, 2), dynamic="assume", symbols={(0, 0): Dim(max=9)})
    name = client_namespace(client)

    def page(token: str, size: int = 3) -> pb.ListKernelsResponse:
        request = pb.ListKernelsRequest(
            header=header(name), key=guarded.key, page_size=size, page_token=token
        )
        return server.stub.ListKernels(request)

    first = page("")
    second = page(first.next_page_token)
    shapes = [(each.arg_spec, each.guard) for each in [*first.kernels, *second.kernels]]
    assert shapes == [
        ("f32[s0,3];f32[3,2]", "s0 <= 9"),
        *((f"f32[{rows},3];f32[3,2]", "") for rows in (4, 3, 2)),
    ]
    assert first.kernels[0].kernel_digest == guarded.manifest.kernel_digest
    assert first.kernels[0].target.cpu.isa == str(guarded.manifest.target)
    assert second.next_page_token == ""
    assert [kernel.arg_spec for kernel in client.kernels(guarded.key)] == [arg_spec for arg_spec, _ in shapes]
    assert client.kernels(99) == ()


def test_repeats_parse_nothing(client: kcache.Client) -> None:
    for rows in (2, 3):
        client.compile(matmul(rows, 9, 9), dynamic="auto")
    client.compile(matmul(2, 9, 9), dynamic="assume")
    parsed = client.stats().programs_parsed
    with kcache.Client(
        client._core.config.address,  # pyright: ignore[reportPrivateUsage]
        namespace=client_namespace(client),
        cache_dir=client._core.config.cache_dir / "another",  # pyright: ignore[reportPrivateUsage]
        strict=True,
    ) as another:
        for rows in (2, 3):
            wishes: list[dict[str, Any]] = [{"dynamic": "auto"}, {"dynamic": "assume"}]
            for requirements in wishes:
                assert another.compile(matmul(rows, 9, 9), **requirements).origin == "remote"
    assert client.stats().programs_parsed == parsed


def test_many_programs_are_asked_for_at_once(client: kcache.Client) -> None:
    kernels = client.compile_many([matmul(rows, 2, 5) for rows in range(2, 8)], dynamic="assume")
    assert {kernel.manifest.kernel_digest for kernel in kernels} == {kernels[0].manifest.kernel_digest}
    assert [kernel.binding.symbol_values for kernel in kernels] == [(rows, 2, 5) for rows in range(2, 8)]
    assert client.stats().kernels == 1


def test_the_asynchronous_client_does_the_same(server: Running, tmp_path: Path) -> None:
    async def main() -> None:
        settings: dict[str, Any] = {"namespace": "async", "cache_dir": tmp_path, "strict": True}
        async with kcache.aio.Client(server.address, **settings) as client:
            requirements: dict[str, Any] = {"dynamic": "assume", "symbols": {(0, 0): Dim(max=9)}}
            kernels = await asyncio.gather(
                *(client.compile(matmul(n, 2, 2), **requirements) for n in (3, 4, 5))
            )
            assert {shape(kernel) for kernel in kernels} == {("f32[s0,2];f32[2,2]", "s0 <= 9")}
            assert sum(kernel.origin == "compiled" for kernel in kernels) >= 1
            assert len(await client.kernels(kernels[0].key)) == 1
            with pytest.raises(kcache.ArgumentError, match="10 in the program"):
                await client.compile(matmul(10, 2, 2), **requirements)

    asyncio.run(main())


def test_the_binding_says_what_the_sizes_of_a_spec_are(server: Running) -> None:
    body = matmul(4, 3, 2).encode()
    reply = server.stub.StoreGraph(pb.StoreGraphRequest(header=header("symbols"), graph=inline(body)))
    binding = Binding.from_bytes(reply.binding.payload)
    assert ";".join(map(str, binding.symbolic_inputs)) == WHOLE
    assert [(s.name, s.arg, s.axis) for s in binding.symbols] == [("s0", 0, 0), ("s1", 0, 1), ("s2", 1, 1)]
    assert binding.symbol_values == (4, 3, 2)
    request = pb.NormalizeGraphRequest(header=header("symbols"), graph=inline(body))
    first = next(iter(server.stub.NormalizeGraph(request)))
    assert list(first.symbol_values) == [4, 3, 2]
    assert [list(tensor.dims) for tensor in first.symbolic_inputs] == [["s0", "s1"], ["s1", "s2"]]
