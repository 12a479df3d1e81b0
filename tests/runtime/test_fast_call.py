"""Calls with NumPy arrays through the extension module, and through cffi: the same results and errors."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc.runtime.cpu import fast_call
from kcache_grpc.runtime.cpu._abi import ffi
from kcache_grpc.runtime.cpu.library import load_library
from kcache_grpc.runtime.cpu.memory import aligned_copy
from kcache_grpc.runtime.cpu.outputs import packed
from tests.repository.sources import ROOT
from tests.runtime.c_kernels import ADD, copy_of, make, shared_object
from tests.runtime.extension import built

pytest.importorskip("hatchling", reason="builds the extension module")
pytestmark = pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="no extension module for this interpreter"
)

#: outputs: a + c and b[0] - c[0]
TWO = """
RUN { const float *a = buffers[0], *c = buffers[2]; const double *b = buffers[1];
      float *sum = buffers[3]; double *less = buffers[4];
      for (int64_t i = 0; i < dims[0]; i++) sum[i] = a[i] + c[0];
      *less = b[0] - c[0]; return b[0] == 3 ? 3 : 0; }
"""
#: Tells that it runs, and waits for another thread to write, up to some seconds.
WAITS = """
RUN { volatile float *flag = buffers[0], *begun = buffers[1]; float *out = buffers[2];
      begun[0] = 1;
      for (int64_t i = 0; i < 20000000000 && flag[0] == 0; i++) {}
      out[0] = flag[0]; return 0; }
"""
WORKSPACE = """
RUN { const float *x = buffers[0]; float *out = buffers[1], *place = workspace;
      if ((intptr_t)workspace % 64) return 3;
      for (int i = 0; i < 1024; i++) place[i] = x[0] + i;
      out[0] = 0; for (int i = 0; i < 1024; i++) out[0] += place[i] - x[0];
      return 0; }
"""
MANY = """
RUN { const float *x = buffers[0];
      for (int i = 0; i < 62; i++) *(float *)buffers[1 + i] = *x + i;
      return 0; }
"""


class Subclass(np.ndarray[Any, Any]):
    """Not ``numpy.ndarray`` itself."""


@pytest.fixture(params=["extension", "cffi"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How arrays reach the kernel."""
    module = built() if request.param == "extension" else None
    monkeypatch.setattr(fast_call, "extension", lambda: module)
    return request.param


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """``FastCall``; kernels use it."""
    monkeypatch.setattr(fast_call, "extension", built)
    return built().call_type


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def adding() -> Any:
    """A kernel that was called, so that its next call skips the general path."""
    kernel = make(ADD, ["f32[4,8]"] * 2, ["f32[4,8]"])
    kernel(ones(4, 8), ones(4, 8))
    return kernel


def calls(kernel: Any, *arrays: Any) -> bool:
    """Whether the extension module is what the kernel calls."""
    kernel(*arrays)
    return type(getattr(kernel._short, "__self__", None)) is built().call_type


def test_the_kernel_runs(way: str) -> None:
    kernel = adding()
    assert calls(kernel, ones(4, 8), ones(4, 8)) == (way == "extension")
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    [first] = kernel._short((x, ones(4, 8)))
    assert np.array_equal(first, x + 1)
    [second] = kernel(x, x)
    assert np.array_equal(second, x + x)
    assert np.array_equal(first, x + 1)


UNALIGNED = np.frombuffer(b"\0" * 129, np.uint8)[1:].view(np.float32).reshape(4, 8)


@pytest.mark.parametrize(
    "wrong",
    [
        ones(4, 7),
        ones(32),
        ones(4, 8, 1),
        ones(),
        ones(0, 8),
        ones(2, 4, 8)[0, :, :4],
        np.ones((4, 8), np.float64),
        np.ones((4, 8), np.int32),
        np.ones((4, 8), ">f4"),
        np.ones((4, 8), object),
        np.zeros((4, 8), "M8[s]"),
        np.zeros((4, 8), [("a", "f4")]),
        np.zeros((4, 8), "S4"),
        ones(8, 4).T,
        ones(4, 16)[:, ::2],
        ones(4, 8)[::-1],
        np.broadcast_to(ones(8), (4, 8)),
        UNALIGNED,
        np.ma.masked_array(ones(4, 8)),
        [[1.0] * 8] * 4,
        b"\0" * 128,
        memoryview(ones(4, 8)),
        None,
        1.0,
        np.float32(1),
    ],
    ids=lambda each: f"{type(each).__name__} {getattr(each, 'dtype', '')}{getattr(each, 'shape', '')}",
)
@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.usefixtures("way")
def test_other_arguments_are_rejected_with_the_reason(wrong: Any, position: int) -> None:
    kernel, arrays = adding(), [ones(4, 8), ones(4, 8)]
    arrays[position] = wrong
    before = sys.getrefcount(arrays[1 - position])
    result = kernel._short(tuple(arrays))
    after = sys.getrefcount(arrays[1 - position])
    assert (result, after) == (None, before)  # no buffer is held
    with pytest.raises(kcache.ArgumentError, match=f"argument {position} "):
        kernel(*arrays)


@pytest.mark.parametrize("count", [0, 1, 3, 70])
@pytest.mark.usefixtures("way")
def test_another_number_of_arguments_is_rejected(count: int) -> None:
    kernel = adding()
    assert kernel._short((ones(4, 8),) * count) is None
    with pytest.raises(kcache.ArgumentError, match="takes 2 arguments"):
        kernel(*(ones(4, 8),) * count)


@pytest.mark.usefixtures("way")
def test_a_subclass_takes_the_general_path() -> None:
    kernel = adding()
    assert kernel._short((ones(4, 8).view(Subclass), ones(4, 8))) is None
    [result] = kernel(ones(4, 8).view(Subclass), ones(4, 8))
    assert np.array_equal(result, 2 * ones(4, 8))


@pytest.mark.usefixtures("way")
def test_a_read_only_array_is_an_argument() -> None:
    x = ones(4, 8)
    x.flags.writeable = False
    [result] = adding()._short((x, x))
    assert np.array_equal(result, x + x)
    assert result.flags.writeable


@pytest.mark.usefixtures("way")
def test_an_array_that_changed_is_checked_again() -> None:
    kernel, x = adding(), ones(4, 8)
    kernel(x, x)
    x.resize((4, 9), refcheck=False)
    with pytest.raises(kcache.ArgumentError, match="got shape"):
        kernel(x, x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4"])
def test_dtypes_that_the_buffer_protocol_has_no_format_for(way: str, dtype: str) -> None:
    ml_dtypes: Any = pytest.importorskip("ml_dtypes")
    x = np.zeros(16, getattr(ml_dtypes, dtype))
    x[3] = 1
    name = {"bfloat16": "bf16", "float8_e4m3fn": "f8E4M3FN", "int4": "i4"}[dtype]
    kernel = make(copy_of(x.nbytes), [f"{name}[16]"], [f"{name}[16]"])
    assert calls(kernel, x) == (way == "extension")
    [result] = kernel(x)
    assert (result.dtype, result.tobytes()) == (x.dtype, x.tobytes())


@pytest.mark.usefixtures("way")
def test_symbols_constants_scalars_and_several_outputs() -> None:
    kernel = two()
    for size in (5, 0, 7, 7):
        for _ in range(2):
            sums, less = kernel(np.arange(size, dtype=np.float32), np.float64(5) * np.ones(()))
            assert np.array_equal(sums, np.arange(size) + 2)
            assert (less, less.shape) == (3, ())
    assert kernel._short((np.zeros(7, np.float32), np.ones(()))) is not None


def two() -> Any:
    constants = [("f32[1]", np.array([2], np.float32).tobytes())]
    symbols = [("s0", 0, 0)]
    return make(TWO, ["f32[s0]", "f64[]"], ["f32[s0]", "f64[]"], symbols=symbols, constants=constants)


def test_as_many_outputs_as_there_is_room_for(way: str) -> None:
    kernel = make(MANY, ["f32[]"], ["f32[]"] * 62)
    for start in range(3):
        results = kernel(np.full((), start, np.float32))
        assert [float(each) for each in results] == [start + i for i in range(62)]
    assert calls(kernel, ones()) == (way == "extension")


@pytest.mark.parametrize("size", [1 << 13, 1 << 20], ids=["ring", "recycled"])
@pytest.mark.usefixtures("way")
def test_outputs_are_the_callers_own(size: int) -> None:
    kernel, kept = make(copy_of(4 * size), [f"f32[{size}]"], [f"f32[{size}]"]), []
    for value in range(20):
        [result] = kernel(np.full(size, value, np.float32))
        assert result.ctypes.data % 64 == 0
        kept.append(result)
    assert all((output == value).all() for value, output in enumerate(kept))


@pytest.mark.usefixtures("way")
def test_a_code_of_the_kernel_is_its_error() -> None:
    kernel, x = two(), ones(4)
    kernel(x, np.ones(()))
    for _ in range(3):
        with pytest.raises(kcache.KcacheError, match="index out of range"):
            kernel(x, np.full((), 3.0))
        assert kernel(x, np.full((), 5.0))[1] == 3


@pytest.mark.parametrize("size", [4096, 1 << 20], ids=["on the stack", "apart"])
def test_a_workspace(way: str, size: int) -> None:
    kernel = make(WORKSPACE, ["f32[1]"], ["f32[1]"], workspace=str(size))
    assert calls(kernel, ones(1)) == (way == "extension" and size == 4096)
    for _ in range(3):
        [result] = kernel(ones(1))
        assert result[0] == 1023 * 512


@pytest.mark.usefixtures("way")
def test_a_strict_kernel_is_an_error_in_a_thread_that_flushes_subnormal_numbers() -> None:
    torch: Any = pytest.importorskip("torch")
    kernel = make(ADD, ["f32[4,8]"] * 2, ["f32[4,8]"], numerics="strict")
    x = ones(4, 8)
    kernel(x, x)
    assert kernel._short((x, x)) is not None
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush them")
    try:
        with pytest.raises(kcache.KcacheError, match="flushes subnormal"):
            kernel(x, x)
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.usefixtures("extension")
def test_references_and_memory_are_given_back() -> None:
    kernel, x, wrong = adding(), ones(4, 8), ones(4, 9)
    counted = (x, wrong, x.dtype, np.ndarray, kernel._short.__self__)

    def work(count: int) -> None:
        for _ in range(count):
            kernel(x, x)
            kernel._short((x,))
            kernel._short((x, wrong))
            kernel._short((x, None))

    work(100)
    before = [sys.getrefcount(each) for each in counted]
    tracemalloc.start()
    try:
        work(100)
        held = tracemalloc.get_traced_memory()[0]
        work(100_000)
        assert tracemalloc.get_traced_memory()[0] - held < 10_000
    finally:
        tracemalloc.stop()
    assert [sys.getrefcount(each) for each in counted] == before


@pytest.mark.usefixtures("extension")
def test_other_threads_run_meanwhile() -> None:
    kernel = make(WAITS, ["f32[1]"] * 2, ["f32[1]"])
    kernel(ones(1), ones(1))
    flag, begun = np.zeros(1, np.float32), np.zeros(1, np.float32)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(kernel(flag, begun)[0][0]))
    thread.start()
    while not begun[0] and thread.is_alive():
        pass
    flag[0] = 7
    thread.join()
    assert results == [7]


def test_a_process_ends_while_a_daemon_is_in_a_call() -> None:
    text = """
import threading
from tests.runtime import test_fast_call as t
t.fast_call.extension = t.built
kernel = t.make(t.WAITS, ["f32[1]"] * 2, ["f32[1]"])
assert t.calls(kernel, t.ones(1), t.ones(1))
flag = t.np.zeros(1, t.np.float32)
begun = threading.Event()
def work():
    begun.set()
    while True:
        flag[0] = 1
        kernel(flag, flag)
threading.Thread(target=work, daemon=True).start()
begun.wait()
"""
    assert run_python(text) == (0, "")


def test_an_installation_without_the_module_calls_through_cffi() -> None:
    text = """
import sys
sys.modules["kcache_grpc.runtime._fastcall"] = None
from tests.runtime import test_fast_call as t
assert t.fast_call.extension() is None
kernel = t.adding()
assert not t.calls(kernel, t.ones(4, 8), t.ones(4, 8))
assert (kernel(t.ones(4, 8), t.ones(4, 8))[0] == 2).all()
"""
    assert run_python(text) == (0, "")


def test_a_module_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"FastCall": object, "TensorCall": int, "TensorState": str, "MAX_BUFFERS": 8, "MAX_WORKSPACE": 0}
    module = SimpleNamespace(INTERFACE=fast_call._INTERFACE, OPENMP_PARALLEL_FOR=16, **names)
    monkeypatch.setitem(sys.modules, "kcache_grpc.runtime._fastcall", module)
    monkeypatch.setattr("kcache_grpc.runtime._fastcall", module, raising=False)
    find = fast_call.extension.__wrapped__
    assert find() == (object, 8, 0, int, str, 16)
    module.INTERFACE += 1
    assert find() is None


def run_python(text: str) -> tuple[int, str]:
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stderr


class Calls:
    """Arguments of ``FastCall`` for ``ADD``, and objects that it must keep alive and let go."""

    def __init__(self, call_type: Callable[..., Any]) -> None:
        self.library = load_library(shared_object(ADD), "add", 1)
        self.memory = aligned_copy(bytes(128))
        self.call_type = call_type

    def make(self, **changed: Any) -> Any:
        dtype = np.dtype(np.float32)
        settings: dict[str, Any] = {
            "run": int(ffi.cast("uintptr_t", self.library.kcache_run)),
            "dims": 0,
            "host": 0,
            "workspace": 0,
            "strict": False,
            "array_class": np.ndarray,
            "inputs": ((dtype, 4, (4, 8)),) * 2,
            "constants": (),
            "outputs": 1,
            "allocate": self.allocate,
            "keep": None,
        }
        return self.call_type(**{**settings, **changed})

    def allocate(self) -> Any:
        return ("the outputs",), packed([self.memory.pointer])


@pytest.mark.parametrize(
    "changed",
    [
        {"run": 0},
        {"run": "x"},
        {"run": 1 << 70},
        {"dims": None},
        {"workspace": -1},
        {"workspace": (16 << 10) + 1},
        {"array_class": 3},
        {"inputs": [1]},
        {"inputs": (1,)},
        {"inputs": ((np.dtype(np.float32), 4, (4, "x")),)},
        {"inputs": ((np.dtype(np.float32), 4, [4]),)},
        {"inputs": ((np.dtype(np.float32), 0, (4,)),)},
        {"inputs": ((np.dtype(np.float32), 4, (4,)),) * 64},
        {"constants": (1,) * 62},
        {"constants": ("x",)},
        {"constants": (1 << 70,)},
        {"outputs": -1},
        {"outputs": 1 << 62},
        {"other": 1},
    ],
    ids=str,
)
def test_arguments_that_make_no_call(extension: type[Any], changed: dict[str, Any]) -> None:
    calls, dtype = Calls(extension), np.dtype(np.float32)
    before = sys.getrefcount(dtype)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        calls.make(**changed)
    with pytest.raises(TypeError):
        extension()
    changed.clear()
    assert sys.getrefcount(dtype) <= before


@pytest.mark.parametrize(
    "returned",
    [None, (), ((),), ((), 1), ((), b""), ((), b"\0" * 16), [(), b"\0" * 8], ((), bytes(8), 1)],
    ids=str,
)
def test_what_allocate_must_not_return(extension: type[Any], returned: Any) -> None:
    call, x = Calls(extension).make(allocate=lambda: returned).call, ones(4, 8)
    before = sys.getrefcount(x)
    with contextlib.suppress(TypeError):
        call((x, x))
        pytest.fail("no error")
    assert sys.getrefcount(x) == before


def test_an_error_of_allocate_is_the_calls(extension: type[Any]) -> None:
    def fail() -> Any:
        raise kcache.ResourceExhausted("no memory", limit="memory")

    call, x = Calls(extension).make(allocate=fail).call, ones(4, 8)
    before = sys.getrefcount(x)
    with contextlib.suppress(kcache.ResourceExhausted):
        call((x, x))
        pytest.fail("no error")
    assert sys.getrefcount(x) == before
    assert [call((x, None)), call([x, x]), call(None)] == [None] * 3


def test_a_call_keeps_what_it_needs_until_it_is_gone(extension: type[Any]) -> None:
    class Kept:
        pass

    kept, calls = Kept(), Calls(extension)
    call = calls.make(keep=kept).call
    alive = weakref.ref(kept)
    del kept
    assert call((ones(4, 8), ones(4, 8))) == ("the outputs",)
    assert alive() is not None
    del call
    gc.collect()
    assert alive() is None


def test_a_cycle_through_a_call_is_collected(extension: type[Any]) -> None:
    class Kept:
        call: Any

    kept = Kept()
    kept.call = Calls(extension).make(keep=kept).call
    alive = weakref.ref(kept)
    del kept
    gc.collect()
    assert alive() is None
