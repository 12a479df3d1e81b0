"""The collector of reference cycles is paused while a graph is compiled, and as it was before afterwards."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Generator

import pytest

pytest.importorskip("torch")

import torch

from kcache_grpc.integrations.torch.dynamo import backend
from kcache_grpc.integrations.torch.dynamo.collector import collect_if_due, collector_paused


@pytest.fixture(autouse=True)
def _collector() -> Generator[None]:
    enabled = gc.isenabled()
    yield
    (gc.enable if enabled else gc.disable)()


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_it_is_paused_while_the_backend_compiles(
    enabled: bool, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def function(self: object) -> object:
        seen.append(gc.isenabled())
        if fails:
            raise ValueError("no kernel")
        return graph.forward

    monkeypatch.setattr(backend._Compilation, "function", function)
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    (gc.enable if enabled else gc.disable)()
    if fails:
        with pytest.raises(ValueError, match="no kernel"):
            backend.kcache(graph, [torch.ones(2)], options={"strict": True})
    else:
        backend.kcache(graph, [torch.ones(2)])
    assert seen == [False]
    assert gc.isenabled() == enabled


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize(("name", "paused"), [("kcache", True), ("eager", False)])
@pytest.mark.parametrize("enabled", [True, False])
def test_it_is_paused_while_dynamo_compiles_a_frame_for_this_backend(
    name: str, paused: bool, enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def observe(_: object) -> None:
        seen.append(gc.isenabled())

    monkeypatch.setattr(backend._Compilation, "function", lambda self: self._graph_module.forward)
    handler = torch._dynamo.callback.callback_handler
    handler.register_start_callback(observe)
    handler.register_end_callback(observe)
    function = torch.compile(lambda x: x + 1, backend=name)
    (gc.enable if enabled else gc.disable)()
    function(torch.ones(2))
    assert seen == [enabled and not paused] * 2
    assert gc.isenabled() == enabled


@pytest.mark.usefixtures("fresh_dynamo")
def test_it_collects_again_after_a_compile_that_fails() -> None:
    @torch.compile(backend="kcache", fullgraph=True)
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x

    gc.enable()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        function(torch.ones(2))
    assert gc.isenabled()


def test_a_pause_in_a_pause_ends_with_the_outer_one() -> None:
    gc.enable()
    with collector_paused():
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_last_of_two_threads_leaves_a_collector_that_the_program_disabled() -> None:
    gc.enable()
    begun, left = threading.Event(), threading.Event()

    def pause() -> None:
        with collector_paused():
            begun.set()
            left.wait()

    with collector_paused():
        other = threading.Thread(target=pause)
        other.start()
        begun.wait()
    assert gc.isenabled()
    gc.disable()
    left.set()
    other.join()
    assert not gc.isenabled()


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_the_child_of_a_pause_leaves_a_collector_that_it_disabled() -> None:
    gc.enable()
    with collector_paused():
        child = os.fork()
        if not child:
            gc.disable()
    if not child:
        os._exit(1 if gc.isenabled() else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gc.isenabled()


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, if another test imported it
def test_a_fork_in_the_pause_of_a_thread_collects() -> None:
    gc.enable()
    with collector_paused():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collection_that_is_due_is_made() -> None:
    generations: list[int] = []

    def observe(phase: str, details: dict[str, int]) -> None:
        if phase == "start":
            generations.append(details["generation"])

    gc.enable()
    gc.collect()
    gc.callbacks.append(observe)
    try:
        collect_if_due()
        assert generations
        generations.clear()
        gc.disable()
        collect_if_due()
    finally:
        gc.callbacks.remove(observe)
    assert generations == []
