"""How kernels call the CUDA driver: order and arguments, against a recording driver that runs nothing.

Whether a GPU then does what it should is not shown here: ``test_on_a_gpu.py`` asks one, where there is one.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.runtime.gpu.recorded import run

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None,
    reason="no cuda-bindings: pip install 'kcache-grpc[cuda]'",
)

_MASK = (1 << 64) - 1


def test_the_first_call_loads_and_each_call_only_takes_memory_and_launches(tmp_path: Path) -> None:
    said, calls = run("two_calls", tmp_path)
    assert (said["shape"], said["device"], said["interface"]) == ([256], [2, 0], "<f4")
    assert calls[:2] == ["cuInit", "cuDevicePrimaryCtxRetain device=0"]
    start = calls.index("cuModuleLoadDataEx ptx") - 1
    first, rest = calls[start : start + 12], calls[start + 12 :]
    launched = [call.split(" params= ") for call in first if call.startswith("cuLaunchKernel")]
    assert [call for call in first if not call.startswith("cuLaunchKernel")] == [
        "cuCtxPushCurrent device=0",
        "cuModuleLoadDataEx ptx",
        "cuMemAlloc 16",
        "cuMemcpyHtoD 16",
        "cuModuleGetFunction scale",
        "cuModuleGetFunction add",
        "cuMemAllocAsync 1024 stream=0",
        "cuMemAllocAsync 2048 stream=0",
        "cuMemFreeAsync stream=0",
        "cuCtxPopCurrent",
    ]
    assert first[-4:-2] == [" params= ".join(call) for call in launched]
    assert [head for head, _ in launched] == [
        "cuLaunchKernel scale grid=2,1,1 block=128,1,1 shared=0 stream=0",
        "cuLaunchKernel add grid=256,2,1 block=32,4,1 shared=16384 stream=0",
    ]
    scale, add = ([int(value) for value in values.split()] for _, values in launched)
    x, workspace, size = scale
    assert (x, size) == (said["x"], 256)
    assert add[0] == workspace + 1024
    assert add[2:] == [said["outputs"][0], -256 & _MASK]
    second = rest[: rest.index("cuCtxPopCurrent")]
    assert [call.split()[0] for call in second] == [
        "cuCtxPushCurrent",
        "cuMemAllocAsync",
        "cuMemAllocAsync",
        "cuLaunchKernel",
        "cuLaunchKernel",
        "cuMemFreeAsync",
    ]
    freed = [call for call in rest if call.startswith("cuMemFreeAsync")]
    assert len(freed) == 1 + len(["x", *said["outputs"]])


def test_guards_and_grids_without_blocks_leave_launches_out_and_shared_memory_is_asked_for(
    tmp_path: Path,
) -> None:
    said, calls = run("other_sizes", tmp_path)
    assert said == [[8], [7], [0], [1024], [2048], [1024]]
    launches = [call.split()[1:3] for call in calls if call.startswith("cuLaunchKernel")]
    assert launches == [
        ["scale", "grid=1,1,1"],
        ["add", "grid=8,2,1"],
        ["add", "grid=7,2,1"],
        ["scale", "grid=8,1,1"],
        ["add", "grid=1024,2,1"],
        ["scale", "grid=16,1,1"],
        ["add", "grid=2048,2,1"],
        ["scale", "grid=8,1,1"],
        ["add", "grid=1024,2,1"],
    ]
    asked = [call for call in calls if call.startswith("cuFuncSetAttribute")]
    assert asked == ["cuFuncSetAttribute add 8=65536", "cuFuncSetAttribute add 8=131072"]
    assert len([call for call in calls if call.startswith("cuModuleLoadDataEx")]) == 1


def test_what_cannot_run_is_rejected_before_a_launch(tmp_path: Path) -> None:
    said, calls = run("errors", tmp_path)
    wrong = "argument 0 (x) must be f32[s0]: "
    expected = {
        "numpy": ("ArgumentError", f"{wrong}it is a NumPy array"),
        "list": ("ArgumentError", f"{wrong}got a builtins.list"),
        "count": ("ArgumentError", "takes 1 arguments"),
        "cpu": ("ArgumentError", f"{wrong}it is on CPU:0, and the kernel runs on a GPU"),
        "tracer": ("ArgumentError", f"{wrong}its __dlpack_device__ failed: an abstract array is nowhere"),
        "abi": ("ArgumentError", "version 3 of the C ABI"),
        "guard": ("ArgumentError", "axis 0 (s0) is 8, and this kernel is for s0 <= 4 only"),
        "dtype": ("ArgumentError", f"{wrong}got dtype f64"),
        "rank": ("ArgumentError", f"{wrong}got rank 2"),
        "view": ("ArgumentError", f"{wrong}it is a view that is not aligned to 16 bytes"),
        "check": ("ArgumentError", "s0 <= 1000000 (s0 = 1000001)"),
        "shared": ("ArgumentError", "takes 256000 bytes of shared memory a block, and cuda:0 has 232448"),
        "grid": ("ArgumentError", "70000 blocks in y, and a GPU has 65535 at most"),
        "large": ("ArgumentError", "these sizes are too large"),
        "negative": ("IntegrityError", "its grid in x is -8"),
        "workspace": ("IntegrityError", "the workspace has a negative size (s0 = 8)"),
        "entry": ("IntegrityError", "no entry 'gone'"),
        "ptx": ("KcacheError", "CUDA_ERROR_INVALID_PTX: ptxas error: REJECTED is not PTX"),
        "damaged": ("IntegrityError", "do not match their digest"),
    }
    assert said.keys() == expected.keys()
    for name, (kind, text) in expected.items():
        assert said[name][0] == kind, name
        assert text in said[name][1], name
    assert len([call for call in calls if call.startswith("cuLaunchKernel")]) == 2
    pushed = [call.split()[0] for call in calls if "Current" in call]
    assert pushed.count("cuCtxPushCurrent") == pushed.count("cuCtxPopCurrent")


def test_arguments_are_on_one_device_and_the_results_are_there(tmp_path: Path) -> None:
    said, calls = run("two_devices", tmp_path, devices=2)
    assert said["mixed"][0] == "ArgumentError"
    assert "it is on cuda:1, and argument 0 is on cuda:0" in said["mixed"][1]
    assert said["there"] == [2, 1]
    assert len([call for call in calls if call.startswith("cuModuleLoadDataEx")]) == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("case", "settings", "reason"),
    [
        ("loads", {"init": 100}, "finds no GPU"),
        ("loads", {"init": 999}, "does not start"),
        ("loads", {"devices": 0}, "there is no GPU 0: the driver finds 0"),
        ("loads", {"capability": 86}, "a kernel for sm_90 needs 9.0 or later; cuda:0 has 8.6"),
        ("loads", {"version": 11070}, "drivers from CUDA 11.8 on compile; this one is of CUDA 11.7"),
        ("loads", {"version": 11080}, ""),
        ("loads_sm_80", {"capability": 120}, ""),
        ("loads_sm_90a", {"capability": 100}, "needs compute capability 9.0 exactly"),
        ("calls", {"capturing": 1}, "cannot be part of a CUDA graph"),
        ("calls", {"most_threads": 64}, "takes blocks of 128 threads, and its code allows 64 here"),
        ("calls", {"static_shared": 232000}, "bytes of shared memory a block, and cuda:0 has 232448"),
        ("capture_of_a_loaded_kernel", {"capturing": 1}, ""),
    ],
)
def test_gpus_and_drivers_that_cannot_are_named(
    case: str, settings: dict[str, int], reason: str, tmp_path: Path
) -> None:
    said, calls = run(case, tmp_path, **settings)
    assert said[0] == ("ArgumentError" if reason else "none")
    assert reason in said[1]
    assert not reason or not any(call.startswith("cuLaunchKernel") for call in calls)


def test_views_with_steps_or_an_odd_start_are_rejected_before_and_after_the_short_way(tmp_path: Path) -> None:
    said, calls = run("odd_arrays", tmp_path, "foreign")
    assert ["not row-major contiguous" in text for text in said] == [True, True, False]
    assert "not aligned to 16 bytes" in said[2]
    assert len([call for call in calls if call.startswith("cuLaunchKernel add")]) == 2


def test_a_gpu_without_memory_left_says_so(tmp_path: Path) -> None:
    said, calls = run("calls", tmp_path, full=1)
    assert said[0] == "ResourceExhausted"
    assert "the GPU has no memory left" in said[1]
    assert not any(call.startswith("cuLaunchKernel") for call in calls)


def test_another_stream_waits_for_the_launches_and_nobody_else_does(tmp_path: Path) -> None:
    _, calls = run("another_stream", tmp_path)
    ordered = [call for call in calls if call.startswith(("cuEvent", "cuStreamWait"))]
    assert ordered == [
        "cuEventCreate flags=2",
        "cuEventRecord stream=0",
        "cuStreamWaitEvent stream=77",
        "cuEventDestroy",
    ]


def test_the_short_way_of_pytorch_takes_what_it_knows_and_leaves_the_rest(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    said, calls = run("torch_short_way", tmp_path)
    assert said["rejected"] == said["all"]
    assert said["like"] == [256]
    scale, add = [call.split(" params= ") for call in calls if " stream=77 " in call and "params" in call]
    x, workspace, size = map(int, scale[1].split())
    assert (x, size) == (said["x"], 256)
    values = [int(value) for value in add[1].split()]
    assert (values[0], values[2]) == (workspace + 1024, said["y"])


def test_checked_tensors_are_launched_on_the_stream_without_waiting(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    said, calls = run("torch_call", tmp_path)
    first = calls.index(next(call for call in calls if " stream=77 " in call))
    assert not any("Synchronize" in call or "cuMemcpy" in call for call in calls[first:])
    scale = [call for call in calls if call.startswith("cuLaunchKernel scale")]
    assert all(" stream=77 " in call for call in scale)
    inputs = [int(call.split(" params= ")[1].split()[0]) for call in scale]
    assert inputs[0] != inputs[1] == said["x"]
    assert inputs[2] != said["view"]
    assert inputs[2] % 16 == 0
    assert [values[2] for values in _launched(calls)][:3] == said["outputs"]
    assert said["shapes"] == [[256]] * 3 + [[0]]
    assert "s0 <= 1000000" in said["sizes"][1]
    assert "it is on cpu, and the kernel runs on a GPU" in said["cpu"][1]


def test_a_kernel_is_not_loaded_for_checked_tensors_in_a_capture(tmp_path: Path) -> None:
    said, _ = run("torch_call_in_a_capture", tmp_path, capturing=1)
    assert said[0] == "ArgumentError"
    assert "call it once before the capture" in said[1]


def _launched(calls: list[str]) -> list[list[int]]:
    return [
        [int(value) for value in call.split(" params= ")[1].split()]
        for call in calls
        if call.startswith("cuLaunchKernel add")
    ]


def test_the_short_way_of_cupy_runs_on_its_stream_and_leaves_the_rest(tmp_path: Path) -> None:
    said, calls = run("cupy_short_way", tmp_path, "foreign")
    assert said["rejected"] == said["all"]
    assert said["outside"] is None
    assert all(" stream=77 " in call for call in calls if call.startswith("cuLaunchKernel"))
    assert [values[2] for values in _launched(calls)][1:] == [said["y"]]


def test_the_short_way_through_dlpack_takes_what_it_knows_and_leaves_the_rest(tmp_path: Path) -> None:
    said, calls = run("exported_short_way", tmp_path, "foreign", devices=2)
    assert said["rejected"] == said["all"]
    assert "its __dlpack__ failed: nothing is exported today" in said["why"]
    assert "it is a view that is not aligned to 16 bytes" in said["view"]
    assert said["y"] in [values[2] for values in _launched(calls)]
    pushed = [call.split()[0] for call in calls if "Current" in call]
    assert pushed.count("cuCtxPushCurrent") == pushed.count("cuCtxPopCurrent")


def test_a_kernel_is_loaded_once_however_many_threads_call(tmp_path: Path) -> None:
    said, calls = run("threads", tmp_path)
    assert said == 160
    assert len([call for call in calls if call.startswith("cuModuleLoadDataEx")]) == 1
    assert len([call for call in calls if call.startswith("cuLaunchKernel")]) == 320


def test_without_a_driver_the_error_says_so() -> None:
    from kcache_grpc.errors import ArgumentError
    from kcache_grpc.runtime.gpu.driver import open_driver
    from tests.runtime.gpu.cases import kernel

    try:
        open_driver()
    except ArgumentError as error:
        assert "no NVIDIA driver was found" in error.message or "finds no GPU" in error.message  # noqa: PT017
        with pytest.raises(ArgumentError, match="its artifacts can be read"):
            kernel().load()
        assert b".entry add" in kernel().artifact("ptx")
        return
    pytest.skip("this machine has a GPU")
