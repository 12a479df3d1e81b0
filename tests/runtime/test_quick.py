"""``kcache_cpython_call``: takes exactly the arrays that a kernel is for, and leaves all others to Python."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc.runtime.cpu.cpython_call import DONE, REFUSED, layouts_are_known
from kcache_grpc.runtime.cpu.output_ring import COUNTS_ARE_EXACT
from tests.repository.sources import ROOT
from tests.runtime.c_kernels import ADD, make

pytest.importorskip("kcache_compiler")
pytestmark = pytest.mark.skipif(not COUNTS_ARE_EXACT, reason="an interpreter without the lock")

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


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def adding() -> Any:
    """A kernel that was called, so that its next call is the quick one."""
    kernel = make(ADD, ["f32[4,8]"] * 2, ["f32[4,8]"], caller=True)
    kernel(ones(4, 8), ones(4, 8))
    return kernel


def test_this_interpreter_has_the_layout_that_the_function_reads() -> None:
    assert layouts_are_known()


def test_a_quick_call_runs_the_kernel() -> None:
    kernel = adding()
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    [found] = kernel._short((x, ones(4, 8)))
    assert np.array_equal(found, x + 1)
    [other] = kernel(x, x)
    assert np.array_equal(other, x + x)
    assert np.array_equal(found, x + 1)


@pytest.mark.parametrize(
    "wrong",
    [
        ones(4, 7),
        ones(32),
        ones(2, 4, 8)[0, :, :4],
        np.ones((4, 8), np.float64),
        np.ones((4, 8), ">f4"),
        ones(8, 4).T,
        ones(4, 16)[:, ::2],
        np.frombuffer(b"\0" * 129, np.uint8)[1:].view(np.float32).reshape(4, 8),
        np.ma.masked_array(ones(4, 8)),
        [[1.0] * 8] * 4,
        None,
        1.0,
        np.float32(1),
    ],
    ids=lambda each: f"{type(each).__name__} {getattr(each, 'dtype', '')}{getattr(each, 'shape', '')}",
)
@pytest.mark.parametrize("place", [0, 1])
def test_what_is_not_exactly_right_is_refused_with_its_reason(wrong: Any, place: int) -> None:
    kernel, arrays = adding(), [ones(4, 8), ones(4, 8)]
    arrays[place] = wrong
    assert kernel._short(tuple(arrays)) is None
    with pytest.raises(kcache.ArgumentError, match=f"argument {place} "):
        kernel(*arrays)


@pytest.mark.parametrize("count", [0, 1, 3, 70])
def test_a_wrong_number_is_refused(count: int) -> None:
    kernel = adding()
    assert kernel._short((ones(4, 8),) * count) is None
    with pytest.raises(kcache.ArgumentError, match="takes 2 arguments"):
        kernel(*(ones(4, 8),) * count)


def test_other_kinds_of_arrays_take_the_long_way() -> None:
    class Own(np.ndarray[Any, Any]):
        pass

    kernel = adding()
    assert kernel._short((ones(4, 8).view(Own), ones(4, 8))) is None
    [found] = kernel(ones(4, 8).view(Own), ones(4, 8))
    assert np.array_equal(found, 2 * ones(4, 8))


def test_an_array_that_is_changed_in_place_is_looked_at_again() -> None:
    kernel, x = adding(), ones(4, 8)
    kernel(x, x)
    x.resize((4, 9), refcheck=False)
    with pytest.raises(kcache.ArgumentError, match="got shape"):
        kernel(x, x)


def test_symbols_constants_scalars_and_several_outputs() -> None:
    constants = [("f32[1]", np.array([2], np.float32).tobytes())]
    kernel = make(
        TWO,
        ["f32[s0]", "f64[]"],
        ["f32[s0]", "f64[]"],
        symbols=[("s0", 0, 0)],
        constants=constants,
        caller=True,
    )
    for size in (5, 0, 7, 7):
        for _ in range(2):
            sums, less = kernel(np.arange(size, dtype=np.float32), np.float64(5) * np.ones(()))
            assert np.array_equal(sums, np.arange(size) + 2)
            assert (less, less.shape) == (3, ())
    assert kernel._short((np.zeros(7, np.float32), np.ones(()))) is not None


def test_a_code_of_the_kernel_is_its_error() -> None:
    constants = [("f32[1]", np.array([2], np.float32).tobytes())]
    kernel = make(
        TWO,
        ["f32[s0]", "f64[]"],
        ["f32[s0]", "f64[]"],
        symbols=[("s0", 0, 0)],
        constants=constants,
        caller=True,
    )
    x = np.ones(4, np.float32)
    kernel(x, np.ones(()))
    with pytest.raises(kcache.KcacheError, match="index out of range"):
        kernel(x, np.full((), 3.0))


WORKSPACE = """
RUN { const float *x = buffers[0]; float *out = buffers[1], *place = workspace;
      if ((intptr_t)workspace % 64) return 3;
      for (int i = 0; i < 1024; i++) place[i] = x[0] + i;
      out[0] = 0; for (int i = 0; i < 1024; i++) out[0] += place[i] - x[0];
      return 0; }
"""


@pytest.mark.parametrize("size", [4096, 1 << 20], ids=["on the stack", "apart"])
def test_a_workspace(size: int) -> None:
    kernel = make(WORKSPACE, ["f32[1]"], ["f32[1]"], workspace=str(size), caller=True)
    for _ in range(3):
        [found] = kernel(ones(1))
        assert found[0] == 1023 * 512
    assert kernel._short((ones(1),)) is not None
    [plan] = kernel._plans.values()
    assert (plan.quick() is not None) == (size == 4096)


def test_a_strict_kernel_is_refused_where_subnormal_numbers_are_flushed() -> None:
    torch: Any = pytest.importorskip("torch")
    kernel = make(ADD, ["f32[4,8]"] * 2, ["f32[4,8]"], numerics="strict", caller=True)
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


def test_references_are_given_back() -> None:
    kernel, x = adding(), ones(4, 8)
    kernel(x, x)
    before = [sys.getrefcount(each) for each in (x, DONE, REFUSED)]
    for _ in range(1000):
        kernel(x, x)
        kernel._short((x,))
    assert [sys.getrefcount(each) for each in (x, DONE, REFUSED)] == before


def test_other_threads_run_meanwhile() -> None:
    kernel = make(WAITS, ["f32[1]"] * 2, ["f32[1]"], caller=True)
    kernel(ones(1), ones(1))
    flag, begun = np.zeros(1, np.float32), np.zeros(1, np.float32)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(kernel(flag, begun)[0][0]))
    thread.start()
    while not begun[0] and thread.is_alive():
        pass
    flag[0] = 7
    thread.join()
    assert found == [7]


def test_a_process_ends_while_a_daemon_is_in_a_call() -> None:
    text = """
import threading
from tests.runtime import test_quick as t
kernel = t.make(t.WAITS, ["f32[1]"] * 2, ["f32[1]"], caller=True)
kernel(t.ones(1), t.ones(1))
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
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
