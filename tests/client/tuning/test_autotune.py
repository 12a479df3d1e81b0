"""The tuner against the real service: what it tries, records and picks, and what others then get."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.duration_pb2 import Duration

import kcache_grpc as kcache
from kcache_grpc._proto.kcache.v1 import autotune_pb2, autotune_pb2_grpc, common_pb2
from kcache_grpc.client.tuning.search import Search
from kcache_grpc.client.tuning.sizes import cases_of
from kcache_grpc.client.tuning.timings import subject_of
from kcache_grpc.model.schedule import winner_of_sizes
from kcache_grpc.model.target import CpuTarget
from kcache_grpc.runtime import comparison
from kcache_grpc.storage import open_store
from kcache_grpc.storage.records import Failure
from tests.serving import ServerProcess

pytestmark = pytest.mark.timeout(240)


def product(m: int) -> str:
    """A contraction of its own for each test."""
    return f"""func.func @main(%a: tensor<{m}x64xf32>, %b: tensor<64x96xf32>) -> tensor<{m}x96xf32> {{
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<{m}x64xf32>, tensor<64x96xf32>) -> tensor<{m}x96xf32>
  return %0 : tensor<{m}x96xf32> }}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("autotune"), "--workers", "1") as process:
        yield process


@pytest.fixture
def connect(server: ServerProcess, tmp_path: Path) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:

        def make(name: str, **settings: Any) -> kcache.Client:
            settings = {"cache_dir": tmp_path / name, "strict": True, "timeout": 120, **settings}
            return stack.enter_context(kcache.Client(server.address, **settings))

        yield make


def test_what_one_tunes_all_others_get(connect: Any) -> None:
    program, told = product(480), []
    tuner = connect("a", namespace="shared")
    default = tuner.compile(program)
    # Compiled before, since the budget is for compiles too: a slow machine would leave choices out.
    for schedule in ("grain:4", "tile:4x3", "grain:4,tile:4x3"):
        tuner.compile(program, options=kcache.Options(schedule=schedule))
    tuning = tuner.autotune(
        program,
        choices={"grain": ["4"], "tile": ["4x3"]},
        budget=60.0,
        on_progress=lambda what, _: told.append(what),
    )
    tried = {each.schedule for each in tuning.timings}
    # Which of them depends on whether the tile, which is tried first, is faster.
    assert tried in ({"", "tile:4x3", "grain:4"}, {"", "tile:4x3", "grain:4,tile:4x3"})
    assert next(what for what in told if "race" not in what) == "tile:4x3"
    assert tuning.recorded == len(tuning.timings)
    assert tuning.rejected == {}
    assert tuning.schedule == winner_of_sizes(
        ("", each.schedule, each.nanoseconds) for each in tuning.timings
    )
    assert tuning.speedup == 1.0 or tuning.speedup > 1.03
    assert tuning.kernel.manifest.options.schedule == tuning.schedule

    other = connect("b", namespace="shared")
    kernel = other.compile(program, options=kcache.Options(schedule="recorded"))
    assert kernel.origin == "remote"
    assert kernel.manifest.kernel_digest == tuning.kernel.manifest.kernel_digest
    assert other.compile(program).manifest.kernel_digest == default.manifest.kernel_digest
    events = {(event.outcome, event.key) for event in tuner.audit("kind = tune")}
    assert events == {("recorded", default.key)}  # one for each race


def record(server: ServerProcess, namespace: str, kernel: Any, nanos: dict[str, int]) -> None:
    """Timings that nobody took, for a kernel for x86-64-v3."""
    target = CpuTarget("x86-64-v3")
    subject = subject_of(kernel.spec_digest, kernel.binding.arg_spec, target, kcache.Options())
    timings = [
        autotune_pb2.ScheduleTiming(schedule=schedule, duration=Duration(nanos=each), sample_count=1)
        for schedule, each in nanos.items()
    ]
    request = autotune_pb2.RecordTimingsRequest(
        header=common_pb2.RequestHeader(namespace=namespace), subject=subject, timings=timings
    )
    with grpc.insecure_channel(server.address) as channel:
        autotune_pb2_grpc.AutotuneStub(channel).RecordTimings(request, timeout=240)


def test_programs_with_different_winners_come_together(server: ServerProcess, connect: Any) -> None:
    tuner = connect("a", namespace="several")
    winners = {product(18): "grain:4", product(19): "unroll:on", product(20): ""}
    for program, best in winners.items():
        for schedule in ("", "grain:4", "unroll:on"):
            options = kcache.Options(schedule=schedule)
            compiled = tuner.compile(program, target="x86-64-v3", options=options)
        record(server, "several", compiled, {"": 20, best: 10})
    recorded = kcache.Options(schedule="recorded")
    kernels = connect("b", namespace="several").compile_many(
        list(winners), target="x86-64-v3", options=recorded
    )
    assert [each.manifest.options.schedule for each in kernels] == list(winners.values())
    assert {each.origin for each in kernels} == {"remote"}


def test_a_winner_that_the_compiler_rejects_now_gives_way_to_the_default(
    server: ServerProcess, connect: Any
) -> None:
    """Its failure is remembered by the service, as that of a compile is."""
    tuner, programs = connect("a", namespace="refused"), [product(26), product(27)]
    plain = tuner.compile_many(programs, target="x86-64-v3")
    for kernel in plain:
        record(server, "refused", kernel, {"": 30, "grain:4": 10, "unroll:on": 20})
    elsewhere = connect("b", namespace="elsewhere")
    failure = Failure("COMPILE_FAILED", "lower", "", (("message", "no such grain any more"),))
    chosen = kcache.Options(schedule="grain:4")
    lost = elsewhere.compile(programs[0], target="x86-64-v3", options=chosen)
    with open_store(f"sqlite:///{server.database}") as store:
        ns = store.find_namespace("refused")
        assert ns is not None
        store.record_failure(ns, lost.manifest.kernel_digest, failure, 600.0)

    recorded = kcache.Options(schedule="recorded")
    client = connect("c", namespace="refused")
    with pytest.warns(kcache.KcacheWarning, match="recorded schedule grain:4 .* no such grain any more"):
        kernels = client.compile_many(programs, target="x86-64-v3", options=recorded)
    assert [each.manifest.options.schedule for each in kernels] == ["", "grain:4"]
    assert kernels[0].manifest.kernel_digest == plain[0].manifest.kernel_digest
    # It is said once a while, and the failure of what is asked for by name is the caller's.
    assert client.compile(programs[0], target="x86-64-v3", options=recorded).manifest.options.schedule == ""
    with pytest.raises(kcache.CompileFailed, match="no such grain"):
        client.compile(programs[0], target="x86-64-v3", options=chosen)


def test_without_timings_the_default_is_taken(connect: Any) -> None:
    client = connect("a", namespace="untuned")
    plain = client.compile(product(17))
    recorded = client.compile(product(17), options=kcache.Options(schedule="recorded"))
    assert recorded.manifest.kernel_digest == plain.manifest.kernel_digest
    explained = client.explain(product(17), options=kcache.Options(schedule="grain:4"))
    assert "schedule" in str(explained)


def test_a_choice_is_a_kernel_of_its_own_that_computes_the_same(connect: Any) -> None:
    client = connect("a", namespace="chosen")
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((31, 64), (64, 96)))
    kernels = [
        client.compile(product(31), options=kcache.Options(schedule=schedule))
        for schedule in ("", "tile:4x3", "grain:1/4,tile:6x4")
    ]
    assert len({kernel.manifest.kernel_digest for kernel in kernels}) == 3
    assert len({kernel.key for kernel in kernels}) == 1
    for kernel in kernels:
        np.testing.assert_allclose(kernel(a, b)[0], a @ b, rtol=1e-3, atol=1e-4)


def test_tuners_at_the_same_time_agree_on_the_winner(connect: Any) -> None:
    clients, choices = [connect(f"c{number}", namespace="both") for number in range(2)], {"grain": ["4"]}
    with ThreadPoolExecutor(2) as pool:
        # Time for all choices on any machine: what is left out now would be new later.
        results = list(pool.map(lambda c: c.autotune(product(400), choices=choices, budget=60.0), clients))
    later = [client.autotune(product(400), choices=choices, budget=0.2) for client in clients]
    assert [each.recorded for each in later] == [0, 0]
    assert later[0].schedule == later[1].schedule
    assert {each.schedule for each in results[0].timings} <= {each.schedule for each in later[0].timings}


def test_a_later_choice_leaves_the_rows_that_are_there(connect: Any) -> None:
    client = connect("a", namespace="later")
    first = client.autotune(product(330), choices={"grain": ["4"]}, budget=60.0)
    second = client.autotune(product(330), choices={"tile": ["4x3"]}, budget=60.0)
    assert set(first.timings) < set(second.timings)


def test_the_asynchronous_client(server: ServerProcess, tmp_path: Path) -> None:
    async def tune() -> tuple[kcache.Tuning, Any]:
        async with kcache.aio.Client(
            server.address, cache_dir=tmp_path / "a", namespace="aio", strict=True
        ) as client:
            tuning = await client.autotune(product(24), choices=["unroll"], budget=0.3)
            return tuning, await client.compile(product(24), options=kcache.Options(schedule="recorded"))

    tuning, kernel = asyncio.run(tune())
    assert kernel.manifest.options.schedule == tuning.schedule


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"choices": ["speed"]}, "no schedule choice; there are attention, columns, "),
        ({"choices": {"grain": ["5"]}}, "use one of 1, 1/4, 4, 16"),
        ({"choices": "grain"}, "not the text"),
        ({"budget": 0}, "seconds above 0"),
        ({"budget": float("nan")}, "seconds above 0"),
        ({"inputs": [np.ones(3, np.float32)]}, "takes 2 arguments"),
    ],
)
def test_wrong_input_is_rejected(connect: Any, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(kcache.ArgumentError, match=said):
        connect("a", namespace="wrong").autotune(product(16), **arguments)


def test_a_variant_that_computes_something_else_is_out(connect: Any) -> None:
    """The search over real kernels, one of which is of another program."""
    client = connect("a", namespace="liar")
    right = client.compile(product(20))
    wrong = client.compile(
        product(20).replace("return %0", "%1 = stablehlo.negate %0 : tensor<20x96xf32>\n return %1")
    )
    kernels = {"": right, "unroll:on": wrong}
    arrays = cases_of(right, None, None)[0].arrays
    expected = right(*arrays)

    async def make(schedule: str) -> kcache.Kernel:
        return kernels[schedule]

    async def compare(kernel: kcache.Kernel) -> str:
        return comparison.difference(expected, kernel(*arrays), kernel, strict=False)

    async def compete(kernels: Any, seconds: float) -> Any:
        return {name: [pace] for name, pace in comparison.race(kernels, arrays, seconds).items()}

    kept: list[str] = []

    async def keep(timings: Any) -> None:
        kept.extend(timing.schedule for timing in timings)

    search = Search([""], make, compete, compare, keep, lambda *_: None, 0.2)
    asyncio.run(search.run({"unroll": ("on",)}))
    assert (set(search.timings), kept) == ({""}, [""])
    assert search.rejected == {"unroll:on": "result 0 differs from that of the default schedule"}


def test_an_interrupted_search_has_kept_what_it_timed(connect: Any) -> None:
    client, told = connect("a", namespace="interrupted"), []

    def interrupt(what: str, seconds: float) -> None:
        told.append(what)
        if what.startswith("race") and sum(each.startswith("race") for each in told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.autotune(
            product(340),
            choices={"depth": ["128"], "grain": ["4"], "tile": ["4x3"], "columns": ["1/2"]},
            budget=60.0,
            on_progress=interrupt,
        )
    [event] = client.audit("kind = tune")
    assert event.outcome == "recorded"
    later = client.autotune(product(340), choices={"tile": []}, budget=0.1)
    assert {each.schedule for each in later.timings} > {""}


def test_choices_that_change_no_code_are_never_recorded(connect: Any) -> None:
    """A product is no attention, and this machine or its code may have no use for the others."""
    client = connect("a", namespace="useless")
    tuning = client.autotune(product(21), choices=["attention", "keys", "panels"], budget=0.2)
    assert [each.schedule for each in tuning.timings] == [""]
    assert [(each.schedule, each.ratio) for each in tuning.trials] == [("", 1.0)]
