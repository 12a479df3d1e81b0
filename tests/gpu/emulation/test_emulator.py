"""The emulator runs kernels that are right, in any order of threads, and says what is wrong with others."""

from __future__ import annotations

import dataclasses
import resource
from typing import Any

import numpy as np
import pytest

from kcache_compiler.types import CompiledKernel, TensorType
from tests.gpu.harness.emulate import ORDERS, EmulationError
from tests.gpu.harness.reference import COLUMN_SUMS, MATMUL, REFERENCES, SOFTMAX, VECTOR_ADD, Reference
from tests.gpu.harness.run import run_gpu


@pytest.mark.sampled(3)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("reference", REFERENCES, ids=lambda reference: reference.name)
def test_a_kernel_that_is_right_runs_in_every_order(reference: Reference, order: str) -> None:
    for seed in (1, 2, 3) if order == "random" else (1,):
        arrays = reference.arrays(np.random.default_rng(seed))
        (output,) = run_gpu(reference.kernel(), arrays, order=order, seed=seed)
        reference.check(arrays, output)


@pytest.mark.parametrize("size", [1, 255, 256, 257])
def test_grids_and_shapes_are_what_the_formulas_say(size: int) -> None:
    arrays = [np.arange(size, dtype="f4"), np.ones(size, "f4")]
    (output,) = run_gpu(VECTOR_ADD.kernel(), arrays)
    np.testing.assert_array_equal(output, arrays[0] + 1)


def test_a_launch_whose_condition_does_not_hold_is_left_out() -> None:
    kernel = COLUMN_SUMS.kernel()
    clear, sums = kernel.interface.gpu_launches
    launches = (clear, dataclasses.replace(sums, when="n % 64 != 0"))
    kernel = dataclasses.replace(
        kernel, interface=dataclasses.replace(kernel.interface, gpu_launches=launches)
    )
    (output,) = run_gpu(kernel, [np.ones((9, 64), "f4")])
    np.testing.assert_array_equal(output, np.zeros(64, "f4"))


def test_empty_arrays_launch_nothing() -> None:
    (output,) = run_gpu(VECTOR_ADD.kernel(), [np.ones(0, "f4"), np.ones(0, "f4")])
    assert output.shape == (0,)


def test_a_block_of_256_threads_takes_less_than_10_ms() -> None:
    rows = np.random.default_rng(1).standard_normal((64, 1024)).astype("f4")
    run_gpu(SOFTMAX.kernel(), [rows[:1]])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run_gpu(SOFTMAX.kernel(), [rows])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert 0 < seconds < 64 * 10e-3, "64 blocks of 128 threads, 8 elements each, three passes"


def _changed(ir: str, old: str, new: str) -> str:
    assert old in ir
    return ir.replace(old, new)


def test_a_kernel_that_crashes_or_hangs_is_a_failure_with_a_message() -> None:
    arrays = VECTOR_ADD.arrays(np.random.default_rng(1))
    crash = _changed(VECTOR_ADD.ir, "br i1 %inside, label %do, label %end", "unreachable")
    crash = (
        _changed(crash, "unreachable", "call void @llvm.trap()\n  unreachable")
        + "declare void @llvm.trap()\n"
    )
    with pytest.raises(EmulationError, match="ended with status -"):
        run_gpu(VECTOR_ADD.kernel(crash), arrays)
    hang = _changed(VECTOR_ADD.ir, "do:\n", "do:\n  br label %again\nagain:\n  br label %again\nafter:\n")
    with pytest.raises(EmulationError, match="do not end within"):
        run_gpu(VECTOR_ADD.kernel(hang), arrays, timeout=0.2)


def test_what_the_emulator_does_not_know_is_named() -> None:
    unknown = _changed(VECTOR_ADD.ir, "llvm.nvvm.read.ptx.sreg.ctaid.x", "llvm.nvvm.read.ptx.sreg.smid")
    with pytest.raises(EmulationError, match="the emulator has no emu_read_ptx_sreg_smid"):
        run_gpu(VECTOR_ADD.kernel(unknown), VECTOR_ADD.arrays(np.random.default_rng(1)))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("byte", range(4))
def test_each_byte_of_an_access_is_checked(byte: int, order: str) -> None:
    """Thread 5 writes one byte of the four that thread 0 writes."""
    also = f"""%at = getelementptr i8, ptr %c, i64 {byte}
  %fifth = icmp eq i64 %i, 5
  br i1 %fifth, label %also, label %end
also:
  store i8 0, ptr %at, align 1
  br label %end

end:"""
    ir = _changed(VECTOR_ADD.ir, "br label %end\n\nend:", also)
    with pytest.raises(
        EmulationError, match=rf"race: write of byte {byte} of output 0 .* no barrier between"
    ):
        run_gpu(VECTOR_ADD.kernel(ir), VECTOR_ADD.arrays(np.random.default_rng(1)), order=order)


def test_outputs_are_written_whole() -> None:
    kernel = VECTOR_ADD.kernel()
    longer = dataclasses.replace(kernel.interface, outputs=(TensorType("f32", ("n + 3",)),))
    with pytest.raises(
        EmulationError, match="12 bytes of output 0 were never written, the first is byte 4000"
    ):
        run_gpu(dataclasses.replace(kernel, interface=longer), VECTOR_ADD.arrays(np.random.default_rng(1)))


def _launched(reference: Reference, ir: str | None = None, **changes: Any) -> CompiledKernel:
    """The kernel with its last launch changed."""
    kernel = reference.kernel(ir)
    *before, last = kernel.interface.gpu_launches
    launches = (*before, dataclasses.replace(last, **changes))
    return dataclasses.replace(kernel, interface=dataclasses.replace(kernel.interface, gpu_launches=launches))


def test_read_only_loads_of_what_the_launch_writes_are_rejected() -> None:
    """Such a load goes through a cache that does not see writes."""
    ir = COLUMN_SUMS.ir.replace("ptr noalias %y", "ptr %y").replace("ptr noalias readonly %x", "ptr %x")
    again = ("buffer:1", "buffer:1", "i64:0")
    arrays = [np.zeros((1, 64), "f4")]
    run_gpu(_launched(COLUMN_SUMS, ir, params=again), arrays)
    ir = _changed(ir, "ptr %from, align 4", "ptr %from, align 4, !invariant.load !0") + "!0 = !{}\n"
    with pytest.raises(EmulationError, match=r"ld\.global\.nc"):
        run_gpu(_launched(COLUMN_SUMS, ir, params=again), arrays)


def test_launches_keep_what_the_kernel_promises() -> None:
    arrays = COLUMN_SUMS.arrays(np.random.default_rng(1))
    with pytest.raises(EmulationError, match="one buffer for two parameters"):
        run_gpu(_launched(COLUMN_SUMS, params=("buffer:1", "buffer:1", "i64:0")), arrays)
    with pytest.raises(EmulationError, match="2 parameters for 3"):
        run_gpu(_launched(COLUMN_SUMS, params=("buffer:0", "buffer:1")), arrays)
    arrays = VECTOR_ADD.arrays(np.random.default_rng(1))
    with pytest.raises(EmulationError, match="kernel of blocks of at most"):
        run_gpu(_launched(VECTOR_ADD, block=(512, 1, 1)), arrays)
    exact = _changed(VECTOR_ADD.ir, "nvvm.maxntid", "nvvm.reqntid")
    with pytest.raises(EmulationError, match="for a kernel of blocks of "):
        run_gpu(_launched(VECTOR_ADD, exact, block=(128, 1, 1)), arrays)


def test_a_block_that_ends_within_a_warp_has_no_whole_warp() -> None:
    kernel = _launched(MATMUL, block=(48, 1, 1))
    with pytest.raises(EmulationError, match="names lane 16, which this block does not have"):
        run_gpu(kernel, MATMUL.arrays(np.random.default_rng(1)))
