"""What runs beside the recording driver: each function is a case, its result is printed as JSON."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from kcache_grpc.errors import KcacheError
from kcache_grpc.model.gpu.launch import GpuLaunchSpec
from kcache_grpc.model.manifest import ArtifactRef, Binding, ConstantBinding, Manifest, SymbolSpec, TensorSpec
from kcache_grpc.model.options import Options
from kcache_grpc.model.target import parse_target
from kcache_grpc.runtime import Kernel

PTX = """.version 7.8
.target sm_90
.entry scale(.param .u64 scale_param_0, .param .u64 scale_param_1, .param .u64 scale_param_2) { ret; }
.entry add(.param .u64 add_param_0, .param .u64 add_param_1, .param .u64 add_param_2,
           .param .u64 add_param_3) { ret; }
"""
CONSTANT = bytes(range(16))
SCALE = GpuLaunchSpec(
    name="scale",
    ops=("mul",),
    entry="scale",
    when="s0 % 4 == 0",
    grid=("ceildiv(s0, 128)", "1", "1"),
    block=(128, 1, 1),
    shared_bytes="0",
    params=("buffer:0", "workspace:0", "i64:s0"),
)
ADD = GpuLaunchSpec(
    name="add",
    ops=("add",),
    entry="add",
    when="",
    grid=("s0", "2", "1"),
    block=(32, 4, 1),
    shared_bytes="s0 * 64",
    params=("workspace:s0 * 4", "buffer:1", "buffer:2", "i64:-s0"),
)


def kernel(target: str = "sm_90", ptx: str = PTX, **changes: Any) -> Kernel:
    """Of ``f32[s0] -> f32[s0]`` with one lifted constant, in two launches."""
    code = ptx.encode()
    digest = hashlib.sha256(code).digest()
    fields: dict[str, Any] = {
        "kernel_digest": b"k" * 32,
        "spec_digest": b"s" * 32,
        "key": 1,
        "namespace": "default",
        "epoch": 1,
        "target": parse_target(target),
        "options": Options(),
        "toolchain_digest": b"t" * 32,
        "guard": "",
        "arg_spec": "f32[s0]",
        "abi": 1,
        "inputs": (TensorSpec("f32", ("s0",)),),
        "constants": (TensorSpec("f32", ("4",)),),
        "outputs": (TensorSpec("f32", ("s0",)),),
        "symbols": (SymbolSpec("s0", 0, 0),),
        "workspace_bytes": "s0 * 8",
        "launches": (),
        "required_isa": (),
        "error_codes": (),
        "artifacts": (ArtifactRef("ptx", digest, len(code)),),
        "server_version": "0",
        "compile_time": datetime(2026, 1, 1, tzinfo=timezone.utc),
        "compile_seconds": 0.0,
        "toolchain": (),
        "gpu_launches": (SCALE, ADD),
        "checks": ("s0 <= 1000000",),
    }
    manifest = Manifest.from_bytes(Manifest(**fields | changes).to_bytes())
    constant = ConstantBinding(TensorSpec("f32", ("4",)), hashlib.sha256(CONSTANT).digest(), len(CONSTANT))
    binding = Binding(
        program_digest=b"p" * 32,
        numerics="default",
        namespace="default",
        epoch=1,
        key=1,
        spec_digest=b"s" * 32,
        inputs=manifest.inputs,
        arg_names=("x",),
        outputs=manifest.outputs,
        symbols=manifest.symbols,
        symbol_values=(-1,),
        constants=(constant,),
    )
    return Kernel(manifest, binding, "compiled", {"ptx": code}, lambda _: b"", [CONSTANT])


def array(*shape: int, dtype: str = "f32", device: int = 0) -> Any:
    """An array in the memory of a recorded GPU, as other frameworks would export one."""
    from kcache_grpc.runtime.gpu.device import device_numbered
    from kcache_grpc.runtime.gpu.device_memory import DeviceArray

    place = device_numbered(device)
    with place.driver.within(place.context):
        return DeviceArray(place.driver, device, 0, dtype, shape)


def error_of(call: Callable[[], object]) -> list[str]:
    """Type and text of the error."""
    try:
        call()
    except KcacheError as error:
        return [type(error).__name__, str(error)]
    return ["none", ""]


def two_calls() -> Any:
    loaded, x = kernel(), array(256)
    first = loaded(x)
    second = loaded(x)
    assert type(first[0]).__name__ == "DeviceArray"
    return {
        "x": x.pointer,
        "outputs": [first[0].pointer, second[0].pointer],
        "shape": first[0].shape,
        "device": first[0].__dlpack_device__(),
        "interface": first[0].__cuda_array_interface__["typestr"],
    }


def other_sizes() -> Any:
    loaded = kernel()
    return [loaded(array(size))[0].shape for size in (8, 7, 0, 1024, 2048, 1024)]


def errors() -> Any:
    import numpy as np

    loaded = kernel()
    loaded(array(8))
    return {
        "numpy": error_of(lambda: loaded(np.zeros(8, np.float32))),
        "list": error_of(lambda: loaded([1.0])),
        "count": error_of(lambda: loaded()),
        "cpu": error_of(lambda: loaded(_OnCpu())),
        "tracer": error_of(lambda: loaded(_Tracer())),
        "abi": error_of(lambda: kernel(abi=3)(array(8))),
        "guard": error_of(lambda: kernel(guard="s0 <= 4")(array(8))),
        "dtype": error_of(lambda: loaded(array(8, dtype="f64"))),
        "rank": error_of(lambda: loaded(array(8, 2))),
        "view": error_of(lambda: loaded(View(array(8), 4))),
        "check": error_of(lambda: loaded(array(1000001))),
        "shared": error_of(lambda: loaded(array(4000))),
        "grid": error_of(lambda: kernel(gpu_launches=(_grid("1", "s0", "1"),))(array(70000))),
        "large": error_of(
            lambda: kernel(gpu_launches=(_grid("s0 * 4611686018427387904", "1", "1"),))(array(8))
        ),
        "negative": error_of(lambda: kernel(gpu_launches=(_grid("0 - s0", "1", "1"),))(array(8))),
        "workspace": error_of(lambda: kernel(workspace_bytes="s0 * 8 - 100")(array(8))),
        "entry": error_of(lambda: kernel(gpu_launches=(dataclasses.replace(SCALE, entry="gone"),))(array(8))),
        "ptx": error_of(lambda: kernel(ptx="REJECTED")(array(8))),
        "damaged": error_of(lambda: _damaged()(array(8))),
    }


def _damaged() -> Kernel:
    loaded = kernel()
    return kernel(artifacts=(dataclasses.replace(loaded.manifest.artifacts[0], sha256=b"x" * 32),))


def _grid(x: str, y: str, z: str) -> GpuLaunchSpec:
    return dataclasses.replace(SCALE, when="", grid=(x, y, z))


class _OnCpu:
    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class _Tracer:
    def __dlpack_device__(self) -> tuple[int, int]:
        raise ValueError("an abstract array is nowhere")


class View:
    """An exporter whose elements begin some bytes after those of another."""

    def __init__(self, base: Any, offset: int) -> None:
        self._base, self._offset = base, offset

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._base.__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> object:
        self._base.pointer += self._offset
        try:
            return self._base.__dlpack__(**keywords)
        finally:
            self._base.pointer -= self._offset


def two_devices() -> Any:
    loaded = kernel(
        inputs=(TensorSpec("f32", ("s0",)), TensorSpec("f32", ("s0",))), arg_spec="f32[s0];f32[s0]"
    )
    mixed = error_of(lambda: loaded(array(8), array(8, device=1)))
    (there,) = loaded(array(8, device=1), array(8, device=1))
    return {"mixed": mixed, "there": there.__dlpack_device__()}


def torch_short_way() -> Any:
    """PyTorch's CPU tensors stand for those of a GPU, as no CUDA is here."""
    import torch

    from kcache_grpc.runtime.gpu.device import device_numbered
    from kcache_grpc.runtime.gpu.repeated_call import for_torch

    loaded, x = kernel(), torch.zeros(256)
    loaded(array(256))
    assert loaded._gpu is not None
    (plan,) = loaded._gpu._plans.values()
    run = for_torch(plan, torch.device("cpu"), lambda: 77)
    assert run((x,)) is None, "no context is current"
    device = device_numbered(0)
    with device.driver.within(device.context):
        other = {
            "count": (x, x),
            "array": (array(256),),
            "dtype": (x.double(),),
            "shape": (torch.zeros(255),),
            "gradient": (torch.zeros(256, requires_grad=True),),
            "strided": (torch.zeros(256, 2)[:, 0],),
            "view": (torch.zeros(257)[1:],),
            "meta": (torch.zeros(256, device="meta"),),
            "subclass": (torch.nn.Parameter(x, requires_grad=False),),
        }
        rejected = [name for name, arguments in other.items() if run(arguments) is None]
        outputs = run((x,))
        assert outputs is not None
        (y,) = outputs
    return {"rejected": rejected, "all": list(other), "x": x.data_ptr(), "y": y.data_ptr(), "like": y.shape}


def torch_call() -> Any:
    """As above; tensors on the CPU themselves are rejected."""
    import torch

    from kcache_grpc.runtime.gpu.arrays import DeviceBuffer
    from kcache_grpc.runtime.gpu.repeated_call import run_on_gpu
    from kcache_grpc.runtime.torch.call import TorchCall

    loaded, x = kernel(), torch.nn.Parameter(torch.zeros(256))
    plan = loaded.gpu_plan([DeviceBuffer(0, "f32", (256,), None)], 0, 0)
    run = run_on_gpu(plan, torch.device("cpu"), lambda: 77)
    outputs = [run([x])[0]]
    x.data = torch.ones(256)
    outputs.append(run((x,))[0])
    view = torch.zeros(257)[1:]
    outputs.append(run([view])[0])
    empty = loaded.gpu_plan([DeviceBuffer(0, "f32", (0,), None)], 0, 0)
    (nothing,) = run_on_gpu(empty, torch.device("cpu"), lambda: 77)([torch.zeros(0)])
    return {
        "x": x.data_ptr(),
        "view": view.data_ptr(),
        "outputs": [output.data_ptr() for output in outputs],
        "shapes": [tuple(output.shape) for output in (*outputs, nothing)],
        "sizes": error_of(lambda: loaded.gpu_plan([DeviceBuffer(0, "f32", (1000001,), None)], 0, 0)),
        "cpu": error_of(lambda: TorchCall(loaded)([x])),
    }


def torch_call_in_a_capture() -> Any:
    from kcache_grpc.runtime.gpu.arrays import DeviceBuffer

    return error_of(lambda: kernel().gpu_plan([DeviceBuffer(0, "f32", (8,), None)], 0, 0))


def loads() -> Any:
    return error_of(lambda: kernel().load())


def loads_sm_80() -> Any:
    return error_of(lambda: kernel(target="sm_80").load())


def loads_sm_90a() -> Any:
    return error_of(lambda: kernel(target="sm_90a").load())


def calls() -> Any:
    return error_of(lambda: kernel()(array(8)))


def capture_of_a_loaded_kernel() -> Any:
    loaded = kernel()
    loaded.load()
    return error_of(lambda: loaded(array(8)))


def another_stream() -> Any:
    (result,) = kernel()(array(8))
    result.__dlpack__(stream=77)
    result.__dlpack__(stream=1)
    result.__dlpack__(stream=-1)
    return None


def threads() -> Any:
    loaded, arrays = kernel(), [array(64) for _ in range(8)]
    pointers: list[int] = []

    def work(x: Any) -> None:
        pointers.extend(loaded(x)[0].pointer for _ in range(20))

    running = [threading.Thread(target=work, args=(x,)) for x in arrays]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return len(pointers)


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
