"""Calls of a kernel with tensors that the caller has checked: ``torch.compile`` guards them itself.

``Kernel.__call__`` takes any array and checks every attribute of it. Here dtype, device, rank, layout and
the relations between sizes are the caller's promise; a call reads addresses and the sizes of symbols.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.runtime.arrays import Buffer, RejectedArgument
from kcache_grpc.runtime.cpu._abi import ffi
from kcache_grpc.runtime.cpu.native_pool import is_of_process
from kcache_grpc.runtime.cpu.openmp import OpenMpThreads, openmp_of_torch
from kcache_grpc.runtime.cpu.threads import HostThreads, LimitedThreads
from kcache_grpc.runtime.cpu.torch_run import Run, run_on_cpu
from kcache_grpc.runtime.dtypes import names_of_torch, torch_dtypes
from kcache_grpc.runtime.kernel import Kernel

if TYPE_CHECKING:
    import torch

_LAZY = "it is a lazy conjugate or negative; pass x.resolve_conj().resolve_neg()"
#: Tuples of sizes, numbers of threads and devices whose plans are kept.
_MAX_RUNS = 256


class TorchCall:
    """Calls a kernel with a list of PyTorch tensors whose dtypes, ranks and layouts its caller has checked.

    The caller promises of each call: plain strided tensors of the kernel's dtypes and ranks, row-major
    contiguous, on the CPU or, for a kernel for a GPU, on one GPU; sizes that fit each other; no gradient is
    recorded. This is checked once for each new tuple of sizes of symbols, not in each call.

    Each call reads the addresses of the tensors, so that ``parameter.data = other`` is noticed, and copies
    tensors whose elements are not aligned. A kernel of numerics ``strict`` raises in threads that flush
    subnormal numbers, as ``Kernel`` does. The interpreter's lock is released while the kernel runs. Safe from
    many threads at once.

    Outputs are new tensors of PyTorch's allocator, and no views. On the CPU those of 1 MiB and more are in
    memory that earlier outputs had; ``resize_`` cannot enlarge them.

    On the CPU as many threads work at most as ``torch.get_num_threads()`` says when the call begins, and as
    the kernel has. They are those of PyTorch's own operations (``cpu/openmp.py``). Where PyTorch has no
    OpenMP runtime, without the extension module, and without ``share_threads`` they are the kernel's own
    pool, whose threads spin for up to 100 us after a launch and then sleep.

    On a GPU the launches are put on PyTorch's current stream, also while it is captured into a CUDA graph,
    and nothing waits for them. Tests run that part with a recording driver, with tensors on the CPU.
    """

    def __init__(self, kernel: Kernel, *, share_threads: bool = True) -> None:
        """With ``share_threads`` launches run on the threads of PyTorch's OpenMP runtime, if it has one.

        Raises ``ArgumentError`` for a kernel whose outputs are counted, that takes sizes as arguments, or
        that has a dtype which this PyTorch lacks.
        """
        require_callable(kernel)
        self.kernel = kernel
        self._share_threads = share_threads
        manifest = kernel.manifest
        on_gpu = isinstance(manifest.target, GpuTarget)
        self._count = len(manifest.inputs)
        self._sizes = tuple((symbol.arg, symbol.axis) for symbol in manifest.symbols)
        self._complex = tuple(i for i, spec in enumerate(manifest.inputs) if spec.dtype.startswith("c"))
        self._place: Callable[[Sequence[Any]], int] = _gpu_of if on_gpu else _threads_of_torch()
        self._prepare = self._prepare_on_gpu if on_gpu else self._prepare_on_cpu
        self._runs: dict[tuple[int, ...], Run] = {}

    def __call__(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The outputs for one tensor for each input, in order.

        Raises what ``Kernel`` raises.
        """
        if len(tensors) != self._count:
            self.kernel.require_count(tensors)
        for index in self._complex:
            if tensors[index].is_conj():
                raise self.kernel.argument_error(index, _LAZY)
        sizes = (self._place(tensors), *[tensors[arg].shape[axis] for arg, axis in self._sizes])
        run = self._runs.get(sizes) or self._new_run(tensors, sizes)
        return run(tensors)

    def use_own_threads(self) -> None:
        """Run later launches on the kernel's own pool, as without ``share_threads``."""
        self._share_threads = False
        self._runs = {}

    def _new_run(self, tensors: Sequence[Any], sizes: tuple[int, ...]) -> Run:
        """Checks the tensors, and keeps the plan for their sizes."""
        for index, tensor in enumerate(tensors):
            _require_plain(self.kernel, index, tensor)
        run = self._prepare(tensors, sizes[0])
        if len(self._runs) >= _MAX_RUNS:
            self._runs = {}
        self._runs[sizes] = run
        return run

    def _prepare_on_cpu(self, tensors: Sequence[Any], threads: int) -> Run:
        def threads_for(own: HostThreads) -> HostThreads:
            shared = openmp_of_torch() if self._share_threads and is_of_process(own) else None
            if shared is None:
                return LimitedThreads(own, threads)
            return OpenMpThreads(shared, min(threads, own.workers))

        for index, tensor in enumerate(tensors):
            if not tensor.is_cpu:
                raise self.kernel.argument_error(index, f"it is on {tensor.device}; pass x.cpu()")
        buffers = [Buffer(ffi.NULL, _dtype(tensor), tuple(tensor.shape), None) for tensor in tensors]
        return run_on_cpu(self.kernel.plan(buffers, threads_for))

    def _prepare_on_gpu(self, tensors: Sequence[Any], ordinal: int) -> Run:
        from kcache_grpc.runtime.gpu.arrays import DeviceBuffer, device_of
        from kcache_grpc.runtime.gpu.repeated_call import run_on_gpu, stream_of

        for index, tensor in enumerate(tensors):
            try:
                other = device_of(tensor)
            except RejectedArgument as error:
                raise self.kernel.argument_error(index, str(error)) from error
            if other != ordinal:
                reason = f"it is on cuda:{other}, and argument 0 is on cuda:{ordinal}"
                raise self.kernel.argument_error(index, reason)
        buffers = [DeviceBuffer(0, _dtype(tensor), tuple(tensor.shape), None) for tensor in tensors]
        stream = stream_of(ordinal)
        plan = self.kernel.gpu_plan(buffers, ordinal, stream())
        return run_on_gpu(plan, sys.modules["torch"].device("cuda", ordinal), stream)


def require_callable(kernel: Kernel) -> None:
    """Raise ``ArgumentError`` for a kernel that no ``TorchCall`` can call."""
    manifest, dtypes = kernel.manifest, torch_dtypes()
    if kernel.binding.counted:
        raise ArgumentError("the kernel has outputs whose sizes depend on data; call the kernel itself")
    if kernel.binding.size_arguments:
        raise ArgumentError("the kernel takes sizes as arguments; call the kernel itself")
    for spec in (*manifest.inputs, *manifest.outputs):
        if spec.dtype not in dtypes:
            raise ArgumentError(f"this PyTorch has no dtype for {spec}; call the kernel with NumPy arrays")


def _require_plain(kernel: Kernel, index: int, tensor: Any) -> None:
    """Raise ``ArgumentError`` for a tensor whose memory does not hold its elements in row-major order."""
    torch: Any = sys.modules["torch"]
    if not isinstance(tensor, torch.Tensor):
        raise kernel.argument_error(index, f"got a {type(tensor).__name__}; pass a PyTorch tensor")
    kind: Any = type(tensor)  # pyright: ignore[reportUnknownVariableType]
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise kernel.argument_error(index, f"a {type(tensor).__name__} has no memory; pass a plain tensor")
    if tensor.layout is not torch.strided:
        raise kernel.argument_error(index, f"its layout is {tensor.layout}; pass x.to_dense()")
    if tensor.is_conj() or tensor.is_neg():
        raise kernel.argument_error(index, _LAZY)
    if not tensor.is_contiguous():
        raise kernel.argument_error(index, "it is not row-major contiguous; pass x.contiguous()")


def _dtype(tensor: Any) -> str:
    return names_of_torch().get(tensor.dtype, str(tensor.dtype))


def _threads_of_torch() -> Callable[[Sequence[Any]], int]:
    """A function that returns how many threads PyTorch's own operations may use."""
    count: Callable[[], int] = sys.modules["torch"].get_num_threads
    return lambda _: count()


def _gpu_of(tensors: Sequence[Any]) -> int:
    """The GPU of the first tensor, else PyTorch's current one; -1 for tensors on the CPU."""
    if tensors:
        return tensors[0].get_device()
    return int(sys.modules["torch"].cuda.current_device())
