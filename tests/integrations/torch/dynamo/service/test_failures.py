"""Failures of kcache: the program goes on with PyTorch's results, and each reason is counted and reported."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters

import kcache_grpc as kcache
from kcache_grpc import embedded, errors
from kcache_grpc.client.requests.support import Refusal
from kcache_grpc.integrations.torch.dynamo import kernels
from kcache_grpc.integrations.torch.dynamo.lowering import decisions
from kcache_grpc.integrations.torch.dynamo.lowering.rejections import Rejection
from kcache_grpc.integrations.torch.dynamo.record import RecordStore
from kcache_grpc.integrations.torch.dynamo.settings import Settings
from kcache_grpc.runtime.torch.call import TorchCall
from kcache_grpc.torch import failures
from tests.integrations.torch.dynamo.compiled import kernel_count, tensor
from tests.ports import free_port

NAMES = ["CompileFailed", "CompileTimeout", "InvalidProgram", "Unavailable", "ResourceExhausted"] + [
    "IntegrityError", "PermissionDenied", "NotFound", "Conflict", "ArgumentError"
]  # fmt: skip
ERRORS = [getattr(errors, name)("injected") for name in NAMES] + [
    errors.UnsupportedOp("injected", op="torch.aten.sin"), RuntimeError("injected"), OSError("injected"),
    MemoryError("injected"), RecursionError("injected"), AssertionError("injected"),
]  # fmt: skip
#: Errors about one program: its operators are left to PyTorch, which is no failure.
REJECTIONS = ("CompileFailed", "CompileTimeout", "InvalidProgram", "ArgumentError", "UnsupportedOp")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Clients of this test, with a cache directory of their own, and no failures so far."""
    monkeypatch.setenv("KCACHE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "_CLIENTS", kernels._Clients())  # pyright: ignore[reportPrivateUsage]
    kernels.FAILURES.forget()
    decisions.forget()
    counters.clear()
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def function(x: Tensor, y: Tensor) -> Tensor:
    return (torch.sin(x) * y + torch.tanh(x - y)).sum(1)


def run(call: Callable[..., Tensor]) -> list[Tensor]:
    """The result and the gradients."""
    x, y = tensor(4, 6, grad=True), tensor(4, 6, seed=1, grad=True)
    result = call(x, y)
    result.sin().sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    return [result.detach(), x.grad, y.grad]


def agree(call: Callable[..., Tensor]) -> None:
    torch.testing.assert_close(run(call), run(function))


def compiled(address: str, **options: Any) -> Callable[..., Tensor]:
    torch._dynamo.reset()
    return torch.compile(function, backend="kcache", options={"address": address, **options})


def raising(error: Exception) -> Callable[..., Any]:
    def raise_error(*_: Any, **__: Any) -> Any:
        raise error

    return raise_error


@pytest.mark.sampled(12)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_of_compiles(error: Exception, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kcache.Client, "compile", raising(error))
    name = type(error).__name__
    if name in REJECTIONS:
        agree(compiled(address, warm_start=False))
        assert kernel_count() == 0
        left_out = [each.reason for decision in decisions.decisions() for each in decision.left_out]
        assert any("injected" in reason for reason in left_out)
        assert failures() == {}
        return
    with pytest.warns(kcache.KcacheWarning, match="injected"):
        agree(compiled(address, warm_start=False))
    # A limit concerns one island; after other errors the forward and the backward stay with PyTorch.
    count = 2 if name == "ResourceExhausted" else 1
    assert failures() == {f"compile: {name}": count}
    assert counters["kcache"] == {f"compile: {name}": count}
    agree(compiled(address, warm_start=False))  # a second warning would fail the test
    assert failures() == {f"compile: {name}": 2 * count}
    with pytest.raises(BackendCompilerFailed, match="injected"):
        run(compiled(address, strict=True, warm_start=False))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_of_calls(error: Exception, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = compiled(address)
    agree(call)
    assert kernel_count() == 2
    monkeypatch.setattr(TorchCall, "__call__", raising(error))
    with pytest.warns(kcache.KcacheWarning, match="injected"):
        agree(call)
    reason = f"call: {type(error).__name__}"
    assert failures() == {reason: 2}
    agree(call)
    assert counters["kcache"] == failures() == {reason: 4}
    strict = compiled(address, strict=True)
    with pytest.raises(type(error), match="injected"):
        run(strict)
    monkeypatch.undo()
    agree(strict)


def test_every_call_runs_the_kernel(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """AOTAutograd has a mode of dispatch of its own in the first call."""
    original, calls = TorchCall.__call__, 0

    def counted(self: TorchCall, tensors: list[Tensor]) -> tuple[Tensor, ...]:
        nonlocal calls
        calls += 1
        return original(self, tensors)

    monkeypatch.setattr(TorchCall, "__call__", counted)
    call = compiled(address, warm_start=False)
    for count in (1, 2, 3):
        call(tensor(4, 6), tensor(4, 6, seed=1))
        assert calls == count


def test_a_kernel_that_rejects_a_size(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = TorchCall.__call__

    def guarded(self: TorchCall, tensors: list[Tensor]) -> tuple[Tensor, ...]:
        if tensors[0].shape[0] == 7:
            raise kcache.errors.ArgumentError("the guard is false for 7")
        return original(self, tensors)

    monkeypatch.setattr(TorchCall, "__call__", guarded)
    call: Any = torch.compile(function, backend="kcache", options={"address": address}, dynamic=True)
    for size in (5, 6):
        torch.testing.assert_close(
            *(each(tensor(size, 4), tensor(size, 4, seed=1)) for each in (call, function))
        )
    assert failures() == {}
    with pytest.warns(kcache.KcacheWarning, match="the guard is false"):
        torch.testing.assert_close(*(each(tensor(7, 4), tensor(7, 4, seed=1)) for each in (call, function)))
    torch.testing.assert_close(*(each(tensor(8, 4), tensor(8, 4, seed=1)) for each in (call, function)))
    assert failures() == {"call: ArgumentError": 1}


def test_an_error_of_the_program_itself_is_raised(address: str) -> None:
    def fails(x: Tensor, y: Tensor) -> Tensor:
        z = torch.sin(x) * y + 1
        return torch.linalg.cholesky(-z @ z.t()).cos() * 2

    call: Any = torch.compile(fails, backend="kcache", options={"address": address})
    with pytest.raises(torch._C._LinAlgError):
        call(tensor(4, 6), tensor(4, 6))
    assert failures() == {}


def test_a_failing_backward_leaves_the_forward_a_kernel(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both where the backward is compiled with the forward and where AOTAutograd compiles it when it runs."""
    original = kernels.KernelSource.compile
    count = 0

    def second_fails(self: Any, programs: Any) -> Any:
        nonlocal count
        count += 1
        if count % 2 == 0:
            raise errors.Unavailable("injected")
        return original(self, programs)

    monkeypatch.setattr(kernels.KernelSource, "compile", second_fails)
    with pytest.warns(kcache.KcacheWarning, match="injected"):
        agree(compiled(address, warm_start=False))
    assert kernel_count() == 1
    assert failures() == {"compile: Unavailable": 1}
    monkeypatch.setattr(
        "kcache_grpc.integrations.torch.dynamo.aot.capture._cannot_capture", lambda _: "a reason of the test"
    )
    decisions.forget()
    agree(compiled(address, warm_start=False))
    assert kernel_count() == 1
    assert failures() == {"compile: Unavailable": 2}


def test_warnings_as_errors_do_not_stop_the_program(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kcache.Client, "compile", raising(errors.Unavailable("injected")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agree(compiled(address, warm_start=False))
    assert failures() == {"compile: Unavailable": 1}
    levels = [record.levelname for record in caplog.records if "injected" in record.message]
    assert [level for level in levels if level != "INFO"] == [
        "WARNING"
    ]  # TORCH_LOGS of another test shows INFO


def test_another_compiler_as_fallback(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[Any] = []
    inductor = ModuleType("compile_fx")
    inductor.__dict__["compile_fx"] = lambda graph, inputs: graphs.append(graph) or graph.forward
    monkeypatch.setitem(sys.modules, "torch._inductor.compile_fx", inductor)
    monkeypatch.setattr(kcache.Client, "compile", raising(errors.Unavailable("injected")))
    with pytest.warns(kcache.KcacheWarning, match="injected"):
        agree(compiled(address, fallback="inductor"))
    assert len(graphs) == 1
    inductor.__dict__["compile_fx"] = raising(RuntimeError("no compiler of C++"))
    with pytest.warns(kcache.KcacheWarning, match="no compiler of C"):
        agree(compiled(address, fallback="inductor"))
    assert failures()["fallback: RuntimeError"] == 1


def test_all_operators_that_the_service_rejects_are_learned_at_once(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs: list[Any] = []
    original = kernels.KernelSource.compile

    def keep(self: Any, several: Any) -> Any:
        programs.extend(several)
        return original(self, several)

    monkeypatch.setattr(kernels.KernelSource, "compile", keep)
    agree(compiled(address, warm_start=False))
    source = kernels.KernelSource(Settings(address=address))
    assert source.rejected(programs[0]) == []
    monkeypatch.setattr(kcache.Client, "support", lambda *_, **__: Answer)
    assert source.rejected(programs[0]) == [
        Rejection("aten.first", "unknown", (3, 5)),
        Rejection("aten.second", "unknown"),
        Rejection("", "too large"),
    ]


class Answer:
    """What ``Client.support`` returns, as far as it is read."""

    refusals = (
        Refusal("torch.aten.first", "unknown", 2, ("-:3:10", "-:5:10")),
        Refusal("torch.aten.second", "unknown", 2, ("-:7:10",)),
        Refusal("", "too large", 1, ('"name"',)),
    )


def test_no_server_and_no_embedded_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "missing", lambda: "the test has none")
    address = f"127.0.0.1:{free_port()}"
    with pytest.warns(kcache.KcacheWarning, match="the test has none"):
        agree(compiled(address))
    assert failures() == {"compile: Unavailable": 1}
    with pytest.raises(BackendCompilerFailed, match="Unavailable"):
        run(compiled(address, strict=True))


def test_an_address_that_is_none() -> None:
    with pytest.warns(kcache.KcacheWarning, match="not an address|address"):
        agree(compiled("no such address:x"))
    assert failures() == {"compile: ArgumentError": 1}


def records(tmp_path: Path) -> list[Path]:
    return [
        path
        for path in (tmp_path / "cache" / "torch-sources").iterdir()
        if path.is_file() and path.name != "lock"
    ]


def damage_in_file(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def no_content(path: Path) -> None:
    path.write_bytes(b"")


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("damage", [damage_in_file, no_content, cut_off, fifo, directory, dangling_link])
def test_damaged_files_of_records(damage: Callable[[Path], None], address: str, tmp_path: Path) -> None:
    agree(compiled(address, namespace="damage"))
    assert len(records(tmp_path)) == 1
    damage(records(tmp_path)[0])
    agree(compiled(address, namespace="damage", strict=True))
    assert kernel_count() == 4
    assert failures() == {}


HOSTILE = [
    b"", b"{", b"[]", b"null", b"{}", b"[" * 100_000, b'{"format": 1}', b"\xff\xfe", b"1" * 10_000,
    b'{"format": 1, "aot": {}, "graphs": {}}', b'{"format": 1, "aot": null, "graphs": [1]}',
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_records(body: bytes, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kcache_grpc.integrations.torch.dynamo.record import StoredRecord

    monkeypatch.setattr(RecordStore, "find", lambda *_: StoredRecord(body, "disk"))
    monkeypatch.setattr(RecordStore, "add", lambda *_: None)
    with pytest.warns(kcache.KcacheWarning, match="a record was not used"):
        agree(compiled(address))
    assert kernel_count() == 2
    assert sum(failures().values()) == 1


def test_a_store_of_records_that_raises(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordStore, "add", raising(RuntimeError("injected")))
    with pytest.warns(kcache.KcacheWarning, match="injected"):
        agree(compiled(address, namespace="other-records"))
    assert kernel_count() == 2


def test_a_cache_directory_that_cannot_be_used(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KCACHE_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(kcache.KcacheWarning, match="keeps nothing on disk"):
        agree(compiled(address, strict=True))
    assert kernel_count() == 2
    assert failures() == {}
