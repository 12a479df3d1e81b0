"""The emulator in the place of a GPU: every order of threads, results that processes share, promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.gpu.kit.runtime.devices import Execution
from benchmarks.gpu.kit.runtime.reading import PackedKernel
from kcache_grpc.errors import KcacheError
from kcache_grpc.model.gpu.launch import GpuCall, Param
from tests.gpu.harness import emulated_device
from tests.gpu.harness.emulate import ORDERS
from tests.gpu.harness.emulated_device import EmulatedDevice

#: 64 threads write 4 bytes each, and exchange those of the first.
_IR = """
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()

define ptx_kernel void @fill(ptr noalias align 16 %y) #0 {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %at = getelementptr i32, ptr %y, i32 %t
  store i32 %t, ptr %at, align 4
  ret void
}

define ptx_kernel void @exchange(ptr noalias align 16 %y) #0 {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %before = atomicrmw xchg ptr %y, i32 %t seq_cst, align 4
  ret void
}

attributes #0 = { "nvvm.reqntid"="64,1,1" }
"""


class _Kernel:
    def artifact(self, kind: str) -> bytes:
        assert kind == "llvm"
        return _IR.encode()


def _execution(*entries: str, threads: int = 64) -> Execution:
    calls = tuple(
        GpuCall(entry, entry, (1, 1, 1), (threads, 1, 1), 0, (Param("buffer", 0),)) for entry in entries
    )
    return Execution(cast(PackedKernel, _Kernel()), calls, [], [], [256], [b"\xff" * 4], 0)


def test_results_that_depend_on_the_order_of_threads_are_an_error() -> None:
    (output,) = EmulatedDevice().execute(_execution("fill"))
    assert output == b"".join(number.to_bytes(4, "little") for number in range(64))
    with pytest.raises(
        KcacheError, match=r"results of threads in .*reverse.* order are not those of forward"
    ):
        EmulatedDevice().execute(_execution("fill", "exchange"))


def test_what_processes_share_runs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched, launch = list[str](), emulated_device.launch

    def counted(ir: str, buffers: Any, runs: Any, order: str, timeout: float) -> None:
        launched.append(order)
        launch(ir, buffers, runs, order, timeout=timeout)

    monkeypatch.setattr(emulated_device, "launch", counted)
    monkeypatch.setenv("KCACHE_EMULATOR_FOLDER", str(tmp_path))
    first = EmulatedDevice().execute(_execution("fill"))
    monkeypatch.setenv("KCACHE_EMULATED_CAPABILITY", "12.0")
    device = EmulatedDevice()
    assert device.capability == (12, 0)
    assert device.execute(_execution("fill")) == first
    assert launched == [*ORDERS]
    device.execute(_execution("fill", "fill"))
    assert launched == [*ORDERS, *ORDERS]


def test_a_launch_keeps_what_the_ir_promises() -> None:
    with pytest.raises(KcacheError, match=r"fill: blocks of .* for a kernel of blocks of \(64, 1, 1\)"):
        EmulatedDevice().execute(_execution("fill", threads=32))
