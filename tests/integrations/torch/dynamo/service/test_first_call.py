"""Compiles go on while PyTorch does the rest, and the first call of a graph waits for its kernels."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch._dynamo.exc import BackendCompilerFailed
from torch._subclasses.fake_tensor import in_kernel_invocation_manager

import kcache_grpc as kcache
from kcache_grpc import embedded, errors
from kcache_grpc.integrations.torch.dynamo import kernels
from kcache_grpc.integrations.torch.dynamo.lowering import decisions
from kcache_grpc.integrations.torch.dynamo.lowering.lower import Lowering
from kcache_grpc.integrations.torch.dynamo.settings import settings_from
from kcache_grpc.integrations.torch.dynamo.trace import Trace
from kcache_grpc.torch import failures
from tests.integrations.torch.dynamo.compiled import kernel_count, tensor
from tests.serving import ServerProcess


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("KCACHE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "_CLIENTS", kernels._Clients())
    kernels.FAILURES.forget()
    decisions.forget()
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Gate:
    """Compiles of the backend begin, and end when calls of the graph wait: with an error, if one is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        #: Calls that wait before a compile ends.
        self.callers = 1
        #: Errors of the next compiles; ``None``: they succeed, as those after them do.
        self.errors: list[Exception | None] = []
        self.compiles = self.waiting = 0
        self._open = threading.Event()
        self._lock = threading.Lock()
        compile_programs, wait = kernels.KernelSource.compile, Trace._wait

        def compile_later(source: Any, programs: Any) -> Any:
            with self._lock:
                self.compiles += 1
                error = self.errors.pop(0) if self.errors else None
            if source._on_progress is None:  # for a warm start
                return compile_programs(source, programs)
            source._on_progress("queued", 0.0)
            assert self._open.wait(240), "no call waits for the compile"
            if error is not None:
                raise error
            return compile_programs(source, programs)

        def wait_for_kernels(trace: Trace) -> Any:
            with self._lock:
                self.waiting += 1
                if self.waiting >= self.callers:
                    self._open.set()
            return wait(trace)

        monkeypatch.setattr(kernels.KernelSource, "compile", compile_later)
        monkeypatch.setattr(Trace, "_wait", wait_for_kernels)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def function(x: Tensor, y: Tensor) -> Tensor:
    return (torch.sin(x) * y + torch.tanh(x - y)).sum(1)


def run(call: Callable[..., Tensor], grad: bool) -> list[Tensor]:
    """The result, and with ``grad`` the gradients."""
    x, y = tensor(4, 6, grad=grad), tensor(4, 6, seed=1, grad=grad)
    result = call(x, y)
    if not grad:
        return [result]
    result.sin().sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    return [result.detach(), x.grad, y.grad]


def agree(call: Callable[..., Tensor], grad: bool) -> None:
    torch.testing.assert_close(run(call, grad), run(function, grad))


def compiled(address: str, **options: Any) -> Callable[..., Tensor]:
    return torch.compile(
        function, backend="kcache", options={"address": address, "warm_start": False} | options
    )


@pytest.mark.parametrize("grad", [False, True])
def test_the_first_call_waits(grad: bool, address: str, gate: Gate) -> None:
    call = compiled(address, strict=True)
    agree(call, grad)
    kinds = ["forward", "backward"] if grad else ["inference"]
    assert [decision.kind for decision in decisions.decisions()] == kinds
    assert kernel_count() == gate.compiles == len(kinds)
    agree(call, grad)
    assert gate.waiting == 1


@pytest.mark.parametrize("grad", [False, True])
def test_a_program_that_is_rejected_late(grad: bool, address: str, gate: Gate) -> None:
    """The rest of the graph becomes kernels."""
    gate.errors = [errors.UnsupportedOp("injected", op="torch.aten.tanh")]
    call = compiled(address, strict=True)
    agree(call, grad)
    first = decisions.decisions()[0]
    assert [(each.operator, each.reason) for each in first.left_out] == [
        ("aten.tanh.default", "UnsupportedOp: injected")
    ]
    assert first.kernels
    agree(call, grad)
    assert failures() == {}


def test_a_rejection_while_the_mode_of_fake_tensors_runs_an_operator(
    address: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fake tensors are on the device "meta" meanwhile, for all threads."""
    gate.errors = [errors.UnsupportedOp("injected", op="torch.aten.tanh")]
    write_plan = Lowering.write_plan

    def write_inside(lowering: Lowering) -> None:
        value = next(iter(lowering.graph_module.graph.nodes)).meta["val"]
        with in_kernel_invocation_manager(value.fake_mode):
            gate._open.set()
            for thread in threading.enumerate():
                if thread.name == "kcache-torch-compile":
                    thread.join(240)
        write_plan(lowering)

    monkeypatch.setattr(Lowering, "write_plan", write_inside)
    agree(compiled(address, strict=True), grad=False)
    [decision] = decisions.decisions()
    assert [each.operator for each in decision.left_out] == ["aten.tanh.default"]
    assert decision.kernels


@pytest.mark.parametrize("fast", ["kernels", "none"])
def test_decisions_are_in_the_order_of_the_graphs(
    fast: str, address: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the second graph is there before the first."""
    start = Lowering.start

    def start_fast(lowering: Lowering) -> Any:
        if lowering.kind == "backward" and fast == "none":
            lowering.least_operators = 1000
        elif lowering.kind == "backward":
            lowering.compile = kernels.KernelSource(settings_from(None, {"address": address})).compile
        return start(lowering)

    monkeypatch.setattr(Lowering, "start", start_fast)
    agree(compiled(address, strict=True), grad=True)
    assert [each.kind for each in decisions.decisions()] == ["forward", "backward"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("error", [errors.Unavailable("injected"), MemoryError("injected")])
def test_a_late_failure_leaves_the_graph_to_pytorch(
    error: Exception, grad: bool, address: str, gate: Gate
) -> None:
    gate.errors = [error]
    call = compiled(address)
    with pytest.warns(kcache.KcacheWarning, match="injected"):
        agree(call, grad)
    assert failures() == {f"compile: {type(error).__name__}": 1}
    assert [decision.origin for decision in decisions.decisions()] == ["eager"]
    agree(call, grad)
    assert gate.compiles == (2 if grad else 1)
    assert sum(failures().values()) == 1


def test_a_late_failure_of_a_backward_leaves_the_forward_a_kernel(address: str, gate: Gate) -> None:
    gate.errors = [None, errors.Unavailable("injected")]
    call = compiled(address)
    with pytest.warns(kcache.KcacheWarning, match="a backward graph was left to PyTorch"):
        agree(call, grad=True)
    assert [(each.kind, each.origin) for each in decisions.decisions()] == [
        ("forward", "compiled"),
        ("backward", "eager"),
    ]
    agree(call, grad=True)
    assert failures() == {"compile: Unavailable": 1}


@pytest.mark.parametrize("grad", [False, True])
def test_strict_raises_in_each_call(grad: bool, address: str, gate: Gate) -> None:
    gate.errors = [None, errors.Unavailable("injected")] if grad else [errors.Unavailable("injected")]
    call = compiled(address, strict=True)
    for _ in range(2):
        with pytest.raises(errors.Unavailable, match="injected"):
            run(call, grad)
    kinds = [decision.kind for decision in decisions.decisions()]
    assert kinds == (["forward"] if grad else [])
    assert failures() == {}
    torch._dynamo.reset()
    agree(call, grad)


def test_an_error_before_the_compile_begins_is_raised_by_the_backend(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise errors.Unavailable("injected")

    monkeypatch.setattr(kcache.Client, "compile", fail)
    with pytest.raises(BackendCompilerFailed, match="injected"):
        run(compiled(address, strict=True), grad=False)


def test_a_service_that_is_killed_while_it_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "missing", lambda: "the test has none")
    compile_program = kcache.Client.compile
    waited = threading.Event()
    with ServerProcess(tmp_path) as server:

        def compile_and_kill(client: kcache.Client, *args: Any, on_progress: Any, **options: Any) -> Any:
            told = iter([server.kill])

            def kill(stage: str, seconds: float) -> None:
                for each in told:
                    each()
                on_progress(stage, seconds)

            return compile_program(client, *args, on_progress=kill, **options)

        wait = Trace._wait

        def wait_for_kernels(trace: Trace) -> Any:
            waited.set()
            return wait(trace)

        monkeypatch.setattr(kcache.Client, "compile", compile_and_kill)
        monkeypatch.setattr(Trace, "_wait", wait_for_kernels)
        call = compiled(server.address)
        with pytest.warns(kcache.KcacheWarning, match="a graph was left to PyTorch"):
            agree(call, grad=False)
        assert waited.is_set()
        assert failures() == {"compile: Unavailable": 1}
        agree(call, grad=False)
        server.start()


@pytest.mark.long
def test_a_service_that_stops_while_it_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its connections and answers nothing: the timeout ends the first call, PyTorch computes it."""
    compile_program = kcache.Client.compile
    with ServerProcess(tmp_path) as server:

        def compile_and_stop(client: kcache.Client, *args: Any, on_progress: Any, **options: Any) -> Any:
            def stop(stage: str, seconds: float) -> None:
                os.kill(server.pid, signal.SIGSTOP)
                on_progress(stage, seconds)

            return compile_program(client, *args, on_progress=stop, **options)

        with monkeypatch.context() as patched:
            patched.setattr(kcache.Client, "compile", compile_and_stop)
            call = compiled(server.address, timeout=10.0)
            try:
                with pytest.warns(kcache.KcacheWarning, match="timeout of 10 s"):
                    agree(call, grad=False)
                agree(call, grad=False)
            finally:
                os.kill(server.pid, signal.SIGCONT)
        assert failures() == {"compile: OutOfTime": 1}
        assert [decision.origin for decision in decisions.decisions()] == ["eager"]
        torch._dynamo.reset()
        agree(compiled(server.address, strict=True, timeout=120.0), grad=True)


def test_threads_that_make_the_first_call(address: str, gate: Gate) -> None:
    gate.callers = 2
    call = compiled(address, strict=True)
    results: list[Tensor] = []

    def first_call() -> None:
        results.extend(run(call, grad=False))

    threads = [threading.Thread(target=first_call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.testing.assert_close(results, run(function, grad=False) * 2)
    # Each may have compiled the graph before the other had.
    assert len(decisions.decisions()) == gate.compiles
    assert gate.compiles in (1, 2)


def test_a_record_is_written_by_the_first_call(address: str, gate: Gate, tmp_path: Path) -> None:
    call = compiled(address, strict=True, warm_start=True, namespace="first-call")
    agree(call, grad=True)
    for origin in ("compiled", "warm"):
        assert [decision.origin for decision in decisions.decisions()] == [origin] * 2
        torch._dynamo.reset()
        decisions.forget()
        agree(call, grad=True)
    assert gate.waiting == 1


def test_dynamic_sizes_wait_in_the_backend(address: str, gate: Gate) -> None:
    gate._open.set()
    call: Any = torch.compile(
        function, backend="kcache", dynamic=True, options={"address": address, "warm_start": False}
    )
    agree(call, grad=False)
    assert [decision.kind for decision in decisions.decisions()] == ["inference"]


_PROGRAM = """
import os, sys, threading
import torch
from kcache_grpc.errors import Unavailable
from kcache_grpc.integrations.torch.dynamo import kernels
from kcache_grpc.integrations.torch.dynamo.backend import kcache
from kcache_grpc.integrations.torch.dynamo.trace import Trace
from kcache_grpc.torch import decisions, failures

torch.set_num_threads(1)  # GCC's OpenMP has no threads after a fork
options = {"address": sys.argv[1], "warm_start": False}
x = torch.randn(4, 6)
original, wait, gate, parent = kernels.KernelSource.compile, Trace._wait, threading.Event(), os.getpid()

def function(x):
    return torch.tanh(x.sin() * 2) + x
"""
_NEVER_CALLED = """
def compile_later(source, programs):
    source._on_progress("queued", 0.0)
    gate.wait()
    raise Unavailable("injected")

kernels.KernelSource.compile = compile_later

def backend(graph, inputs):
    kcache(graph, inputs, options=options)
    return graph.forward

torch.testing.assert_close(torch.compile(function, backend=backend)(x), function(x))
assert not decisions()
if sys.argv[2] == "fails":
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "kcache-torch-compile":
            thread.join()
print("done")
"""
_FORKED = """
def compile_later(source, programs):
    if os.getpid() == parent:
        source._on_progress("queued", 0.0)
        gate.wait()
    return original(source, programs)

children = []
def fork_and_wait(trace):
    children.append(os.fork())
    gate.set()
    return wait(trace)

kernels.KernelSource.compile, Trace._wait = compile_later, fork_and_wait
compiled = torch.compile(function, backend="kcache", options={**options, "strict": True})
for _ in range(2):
    torch.testing.assert_close(compiled(x), function(x))
assert len(decisions()) == 1 and len(children) == 1, children
if not children[0]:
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
print("done")
"""


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error::UserWarning", "-c", _PROGRAM + program, *arguments]
    return subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=240)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("end", ["waits", "fails"])
def test_a_graph_that_is_never_called_keeps_no_process(end: str, address: str) -> None:
    ran = _run(_NEVER_CALLED, address, end)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")


def test_a_fork_before_the_kernels_are_there(address: str) -> None:
    ran = _run(_FORKED, address)
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
