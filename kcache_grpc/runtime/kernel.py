"""A kernel as the user holds it: loads itself, checks arguments, runs."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcache_grpc.errors import ArgumentError, IntegrityError, KcacheError, NotFound
from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.manifest import ArtifactRef, Binding, Manifest, TensorSpec
from kcache_grpc.model.sizes.expression import FormulaDivision, FormulaOverflow, evaluate, symbols_of
from kcache_grpc.model.sizes.guard import parse_guard
from kcache_grpc.runtime import repeated_call, results
from kcache_grpc.runtime.arrays import Buffer, Framework, RejectedArgument, framework_of, read
from kcache_grpc.runtime.cpu._abi import Library
from kcache_grpc.runtime.cpu.library import load_library, require_runnable, require_understood
from kcache_grpc.runtime.cpu.memory import AlignedBytes, aligned_copy, shared_workspaces
from kcache_grpc.runtime.cpu.native_pool import process_threads
from kcache_grpc.runtime.cpu.plan import Plan, Short
from kcache_grpc.runtime.cpu.threads import HostThreads
from kcache_grpc.runtime.prepared.prepared_kernel import PreparedKernel, require_unbound, without_bound
from kcache_grpc.runtime.prepared.shared_values import MappedBytes, values_of
from kcache_grpc.runtime.results import cut
from kcache_grpc.runtime.size_arguments import as_axes, require_sizes

if TYPE_CHECKING:
    from kcache_grpc.runtime.gpu.arrays import DeviceBuffer
    from kcache_grpc.runtime.gpu.caller import GpuCaller
    from kcache_grpc.runtime.gpu.launch_graph import Prepared
    from kcache_grpc.runtime.gpu.plan import Plan as GpuPlan

#: Sizes of a dynamic kernel whose plans are kept.
_MAX_PLANS = 256


def in_order(arrays: Sequence[Any], named: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """Arguments by position and by name, in the order of ``names``.

    Raises ``ArgumentError`` for a name that there is not, or for one that was passed twice or not at all.
    """
    unknown = [name for name in named if name not in names]
    if unknown:
        known = ", ".join(names) or "none"
        raise ArgumentError(f"the kernel has no input {unknown[0]!r}; it has {known}", argument=unknown[0])
    if len(arrays) > len(names):
        raise ArgumentError(f"the kernel takes {len(names)} arguments, got {len(arrays) + len(named)}")
    for name in names[: len(arrays)]:
        if name in named:
            raise ArgumentError(f"input {name!r} was passed by position and by name", argument=name)
    missing = [name for name in names[len(arrays) :] if name not in named]
    if missing:
        raise ArgumentError(f"input {missing[0]!r} was not passed", argument=missing[0])
    return (*arrays, *(named[name] for name in names[len(arrays) :]))


class Kernel:
    """A compiled kernel. Call it with arrays; a tuple of arrays comes back.

    Arguments are passed in the program's order, or by the names that ONNX, a ``kcache.Graph``, PyTorch or JAX
    gives the inputs (``arg0``, ``arg1`` and so on in MLIR). They are NumPy arrays, PyTorch tensors, or
    anything with ``__dlpack__`` on the CPU; Python numbers do for rank 0, and for sizes that are arguments.
    They are read in place, so they must be row-major contiguous and of exactly the kernel's dtype: nothing is
    converted or copied behind your back.
    A kernel for a GPU takes arrays in that GPU's memory instead and runs on their framework's current stream.
    Outputs are new, aligned to 64 bytes, the caller's own, and of the framework of the first array. Those
    whose sizes depend on data are copied out of buffers of the greatest size; on a GPU a call waits for that.
    Raises ``ArgumentError`` naming the argument.

    ``origin`` is "memory", "preloaded", "disk", "remote" or "compiled". ``service`` is the address of the
    service whose store ``key`` belongs to, or "embedded"; ``server_id`` is that service's identity. Both are
    empty for a kernel that no client made; of a kernel of a bundle ``service`` is empty, and ``server_id`` is
    the identity that signed it. ``seconds_saved`` is the time of the compile that the cache spared the
    caller: what the manifest says that it took, or 0.0 where this request compiled it.
    The shared object is verified and loaded at the first call, or by ``load``. Safe from many threads at
    once.
    """

    def __init__(
        self,
        manifest: Manifest,
        binding: Binding,
        origin: str,
        artifacts: dict[str, bytes],
        fetch: Callable[[ArtifactRef], bytes],
        constants: Sequence[bytes],
        *,
        threads: HostThreads | None = None,
        service: str = "",
        server_id: str = "",
        seconds_saved: float = 0.0,
    ) -> None:
        """``artifacts`` are those at hand, by kind; ``fetch`` gets the others.

        ``constants`` are the bytes of ``binding.constants``, in that order; ``threads`` defaults to the
        process's own pool.
        """
        self.manifest = manifest
        self.binding = binding
        self.origin = origin
        self.service = service
        self.server_id = server_id
        self.seconds_saved = seconds_saved
        self._artifacts = dict(artifacts)
        self._fetch = fetch
        self._names = binding.arg_names
        self._constant_bytes: Sequence[bytes] = constants
        self._constants: list[AlignedBytes | MappedBytes] = []
        self._threads = threads
        self._lock = threading.Lock()
        self._library: Library | None = None
        self._plans: dict[tuple[tuple[str, tuple[int, ...]], ...], Plan] = {}
        self._short: Short = repeated_call.nothing
        self._fixed_sizes: Callable[[], Mapping[str, int]] | None = None
        self._gpu: GpuCaller | None = None
        if isinstance(manifest.target, GpuTarget):
            from kcache_grpc.runtime.gpu.caller import GpuCaller

            self._gpu = GpuCaller(manifest, manifest.target, self.artifact, self._verified_constants)

    @property
    def key(self) -> int:
        """The spec's key in its namespace of the store of ``service``."""
        return self.manifest.key

    @property
    def spec_digest(self) -> bytes:
        """SHA-256 of the spec's text."""
        return self.manifest.spec_digest

    def artifact(self, kind: str) -> bytes:
        """The bytes of an artifact: "so", "mlir", "llvm", "asm", of a GPU "ptx", "cubin". Also where it
        cannot run.

        Raises ``NotFound`` when the kernel has none of that kind, ``IntegrityError`` when the bytes are not
        those that the manifest names.
        """
        ref = self.manifest.artifact(kind)
        if ref is None:
            kinds = ", ".join(ref.kind for ref in self.manifest.artifacts)
            raise NotFound(f"the kernel has no artifact {kind!r}; it has {kinds}")
        content = self._artifacts.get(kind)
        if content is None:
            content = self._fetch(ref)
        _require_digest(f"artifact {kind!r}", content, ref.size, ref.sha256)
        self._artifacts[kind] = content
        return content

    def load(self) -> None:
        """Verify and load now what the first call would; a kernel for a GPU on the first one.

        Raises ``ArgumentError`` when this machine cannot run the kernel, ``IntegrityError`` when bytes are
        not what the manifest says.
        """
        if self._gpu is not None:
            self._gpu.load()
            return
        with self._lock:
            if self._library is None:
                require_runnable(self.manifest)
                self._constants = self._aligned_constants()
                name = self.manifest.kernel_digest.hex()[:16]
                self._library = load_library(self.artifact("so"), name, self.manifest.abi)

    def __call__(self, *arrays: Any, **named: Any) -> tuple[Any, ...]:
        if named:
            arrays = in_order(arrays, named, self.input_names())
        outputs = self._short(arrays)
        if outputs is None:
            outputs = self._call(arrays)
        return cut(outputs, self.binding.counted) if self.binding.counted else outputs

    def bind(
        self, values: Mapping[int | str, Any], *, keep: bool = True, share: str | Path | None = None
    ) -> PreparedKernel[Kernel]:
        """The kernel of the other arguments, with values for those that it was compiled to have bound.

        ``values``: index or name -> array, for each of ``manifest.options.bound``; they are prepared now, on
        this thread. With ``keep=False`` no reference to the arrays is held, so that their memory can be
        freed; ``rebind`` then takes all values. ``share``: a directory, only for this user; processes that
        bind equal values read the prepared ones from a file there, so that they have one copy.

        Raises ``ArgumentError`` for other arguments, for a wrong dtype or shape, for a kernel that was
        compiled without bound arguments, and for a directory open to others; then nothing is computed.
        """
        if self.manifest.preparation is None:
            raise ArgumentError(
                "the kernel was compiled without bound arguments: use compile(..., bound=[...])"
            )
        return PreparedKernel(self, values, keep=keep, share=None if share is None else Path(share))

    def prepare(self, values: Mapping[int, Any], share: Path | None = None) -> Kernel:
        """The kernel of the other arguments, with ``values`` of all bound inputs; see ``bind``."""
        buffers = [self._read_bound(index, values[index]) for index in self.manifest.options.bound]
        self.load()
        assert self._library is not None
        others = [index for index in range(len(self.manifest.inputs)) if index not in values]
        twin = self.apart()
        twin.manifest = without_bound(self.manifest)
        twin._names = tuple(map(self._name, others))
        sizes = [others.index(index) for index in self.binding.size_arguments if index in others]
        twin.binding = replace(self.binding, arg_names=twin._names, size_arguments=tuple(sizes), constants=())
        constants = [constant.pointer for constant in self._constants]
        twin._constants = [values_of(self.manifest, self.binding, self._library, buffers, constants, share)]
        return twin

    def _read_bound(self, index: int, value: Any) -> Buffer:
        spec = self.manifest.inputs[index]
        buffer = self._read_one(index, value, spec)
        if buffer.dtype != spec.dtype:
            raise self._wrong(index, spec, f"got dtype {buffer.dtype}; {_conversion(buffer, spec)}")
        if tuple(map(str, buffer.shape)) != spec.dims:
            raise self._wrong(index, spec, f"got shape {buffer.shape}")
        return buffer

    def named(self, names: Sequence[str]) -> Kernel:
        """The same kernel with these names of its inputs, which keyword arguments are passed by."""
        # Loaded before it is copied, so that both share what was loaded. A kernel for another machine cannot
        # be, and says so when it is called.
        with contextlib.suppress(KcacheError):
            self.load()
        twin = copy.copy(self)
        twin._names = tuple(names)
        return twin

    def __repr__(self) -> str:
        outputs = ";".join(map(str, self.manifest.outputs))
        sizes = " if ".join(filter(None, (self.manifest.arg_spec, self.manifest.guard)))
        service = f" {self.service}" if self.service else ""
        return f"<Kernel {self.key} {sizes} -> {outputs} {self.manifest.target} {self.origin}{service}>"

    def _call(self, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        """The long way: any framework, and every check with its text."""
        require_unbound(self.manifest, self.input_names())
        if self._gpu is not None:
            return self._call_gpu(self._gpu, arrays)
        buffers = self.read(arrays)
        plan = self._plan(buffers)
        pointers = [buffer.pointer for buffer in buffers]
        like, framework = _followed(arrays)
        if framework is Framework.TORCH:
            self._short = plan.short(framework.value, repeated_call.for_torch)
            tensors = [make() for make in results.torch_makers(self.manifest.outputs, plan.output_shapes)]
            plan.call([*pointers, *plan.constants, *(pointer for _, pointer in tensors)])
            return tuple(tensor for tensor, _ in tensors)
        self._short = plan.short(Framework.NUMPY.value, repeated_call.for_numpy)
        outputs, tail = plan.outputs.take()
        plan.call([*pointers, *tail])
        return results.in_namespace_of(like, outputs) if framework is Framework.NAMESPACE else outputs

    def _call_gpu(self, gpu: GpuCaller, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        self.require_count(arrays)
        for index in self.binding.size_arguments:
            if not getattr(arrays[index], "shape", ()) or arrays[index].shape[-1]:
                reason = "on a GPU a size is the length of an axis: pass an array there without elements"
                raise self.argument_error(index, f"{reason}, as torch.empty((n, 0), dtype=..., device=...)")
            try:
                require_sizes(tuple(arrays[index].shape))
            except RejectedArgument as error:
                raise self.argument_error(index, str(error)) from error
        try:
            outputs = gpu(arrays, self.argument_error, self._check_gpu)
            self._short = gpu.short
            return outputs
        except (FormulaOverflow, FormulaDivision) as error:
            raise _without_value(error) from error

    def prepared(self, *arrays: Any) -> Prepared:
        """A call of a kernel for a GPU to be timed by that GPU's clock: see ``Prepared``."""
        assert self._gpu is not None
        self(*arrays)
        return self._gpu.prepare(arrays, self.argument_error, self._check_gpu)

    def argument_error(self, index: int, reason: str) -> ArgumentError:
        """The error for an input: its position, name and type, and ``reason``."""
        return self._wrong(index, self.manifest.inputs[index], reason)

    def _check_gpu(self, buffers: list[DeviceBuffer]) -> None:
        require_understood(self.manifest)
        self._check(buffers)
        self._check_guard(buffers)

    def require_count(self, arrays: Sequence[Any]) -> None:
        """Raise ``ArgumentError`` unless there are as many arrays as inputs."""
        inputs = self.manifest.inputs
        if len(arrays) != len(inputs):
            expected = ", ".join(f"{self._name(i)}: {self._expected(i)}" for i in range(len(inputs)))
            raise ArgumentError(f"the kernel takes {len(inputs)} arguments ({expected}), got {len(arrays)}")

    def read(self, arrays: Sequence[Any]) -> list[Buffer]:
        """The memory of arguments, whose shapes are not checked; raises ``ArgumentError``."""
        self.require_count(arrays)
        pairs = zip(arrays, self.manifest.inputs, strict=True)
        return [self._read_one(index, value, spec) for index, (value, spec) in enumerate(pairs)]

    def _read_one(self, index: int, value: Any, spec: TensorSpec) -> Buffer:
        try:
            buffer = read(value, spec.dtype)
            return as_axes(buffer, spec) if index in self.binding.size_arguments else buffer
        except RejectedArgument as error:
            raise self._wrong(index, spec, str(error)) from error

    def _check(self, buffers: Sequence[Buffer | DeviceBuffer]) -> None:
        """Raise ``ArgumentError`` unless dtypes, ranks and sizes of the arguments match the arg spec."""
        inputs = self.manifest.inputs
        for index, (buffer, spec) in enumerate(zip(buffers, inputs, strict=True)):
            if buffer.dtype != spec.dtype:
                raise self._wrong(index, spec, f"got dtype {buffer.dtype}; {_conversion(buffer, spec)}")
            if len(buffer.shape) != len(spec.dims):
                raise self._wrong(index, spec, f"got rank {len(buffer.shape)}, shape {buffer.shape}")
        symbols = {symbol.name: buffers[symbol.arg].shape[symbol.axis] for symbol in self.manifest.symbols}
        for index, (buffer, spec) in enumerate(zip(buffers, inputs, strict=True)):
            for axis, (size, dim) in enumerate(zip(buffer.shape, spec.dims, strict=True)):
                if size != evaluate(dim, symbols):
                    raise self._wrong(index, spec, self._wrong_size(buffer, axis, dim, symbols))

    def _check_guard(self, buffers: Sequence[Buffer | DeviceBuffer]) -> None:
        """Raise ``ArgumentError`` for sizes that the guard excludes, or that no evidence supports."""
        symbols = {symbol.name: buffers[symbol.arg].shape[symbol.axis] for symbol in self.manifest.symbols}
        broken = parse_guard(self.manifest.guard).broken(symbols)
        if broken is not None:
            raise self._outside(*broken, symbols)
        for name, size in self._fixed_sizes().items() if self._fixed_sizes is not None else ():
            if symbols[name] != size:
                raise self._without_evidence(name, size, symbols[name])

    def restrict_sizes(self, fixed: Callable[[], Mapping[str, int]]) -> None:
        """Reject other sizes than those that ``fixed`` returns, symbol -> size: called for each new tuple of
        shapes. For kernels that were not called yet.
        """
        self._fixed_sizes = fixed

    def apart(self) -> Kernel:
        """The same kernel, which remembers no call; code and constants are shared."""
        twin = copy.copy(self)
        twin._plans, twin._short = {}, repeated_call.nothing
        if self._gpu is not None:
            twin._gpu = self._gpu.apart()
        return twin

    def _without_evidence(self, name: str, size: int, actual: int) -> ArgumentError:
        source = next(symbol for symbol in self.manifest.symbols if symbol.name == name)
        return ArgumentError(
            f"argument {source.arg} ({self._name(source.arg)}): axis {source.axis} ({name}) is {actual}, and "
            f"nothing shows that the program, which is for {size}, computes no constant from this size: the "
            "kernel of automatic mode takes other sizes once this client has compiled the program at others, "
            "too; or compile [program, another], or one with dynamic dimensions, with dynamic=True",
            argument=str(source.arg),
            name=self._name(source.arg),
            axis=str(source.axis),
        )

    def _outside(self, symbol: str, atom: str, symbols: dict[str, int]) -> ArgumentError:
        source = next(candidate for candidate in self.manifest.symbols if candidate.name == symbol)
        guard = self.manifest.guard
        whole = "" if guard == atom else f" (its guard: {guard})"
        return ArgumentError(
            f"argument {source.arg} ({self._name(source.arg)}): axis {source.axis} ({symbol}) is "
            f"{symbols[symbol]}, and this kernel is for {atom} only{whole}; compile another one with wider "
            "bounds in symbols",
            argument=str(source.arg),
            name=self._name(source.arg),
            axis=str(source.axis),
            guard=guard,
        )

    def _wrong_size(self, buffer: Buffer | DeviceBuffer, axis: int, dim: str, symbols: dict[str, int]) -> str:
        wanted = evaluate(dim, symbols)
        text = f"got shape {buffer.shape}: axis {axis} is {buffer.shape[axis]} instead of {wanted}"
        sources = [
            f"{symbol.name} = {symbols[symbol.name]} from axis {symbol.axis} of argument {symbol.arg}"
            for symbol in self.manifest.symbols
            if symbol.name in symbols_of(dim)
        ]
        return f"{text} ({', '.join(sources)})" if sources else text

    def _wrong(self, index: int, spec: TensorSpec, reason: str) -> ArgumentError:
        name = self._name(index)
        return ArgumentError(
            f"argument {index} ({name}) must be {self._expected(index)}: {reason}",
            argument=str(index),
            name=name,
            expected=str(spec),
        )

    def _expected(self, index: int) -> str:
        """What an argument is, as its caller gives it."""
        spec = self.manifest.inputs[index]
        if index not in self.binding.size_arguments:
            return str(spec)
        count = len(spec.dims) - 1
        return f"a size, {spec.dtype}[]" if count == 1 else f"{count} sizes, {spec.dtype}[{count}]"

    def _name(self, index: int) -> str:
        names = self._names
        return names[index] if index < len(names) and names[index] else f"arg{index}"

    def input_names(self) -> tuple[str, ...]:
        """The names that keyword arguments are passed by."""
        return tuple(self._name(index) for index in range(len(self.manifest.inputs)))

    def _plan(self, buffers: list[Buffer]) -> Plan:
        """The plan for these sizes; arguments that have one were checked before."""
        known = tuple([(buffer.dtype, buffer.shape) for buffer in buffers])
        plan = self._plans.get(known)
        if plan is None:
            try:
                plan = self._new_plan(buffers)
            except (FormulaOverflow, FormulaDivision) as error:
                raise _without_value(error) from error
            if len(self._plans) >= _MAX_PLANS:
                self._plans = {}
            self._plans[known] = plan
        return plan

    def plan(self, buffers: list[Buffer], threads: Callable[[HostThreads], HostThreads]) -> Plan:
        """A plan for the dtypes and shapes of ``buffers``, whose pointers are not read.

        ``threads`` returns the threads of the plan for those of the kernel. Loads the kernel. Raises
        ``ArgumentError`` for dtypes, sizes and machines that the kernel is not for.
        """
        try:
            return self._new_plan(buffers, threads)
        except (FormulaOverflow, FormulaDivision) as error:
            raise _without_value(error) from error

    def gpu_plan(self, buffers: list[DeviceBuffer], ordinal: int, stream: int) -> GpuPlan:
        """The plan on GPU ``ordinal`` for the dtypes and shapes of ``buffers``, whose pointers are not read.

        Raises ``ArgumentError`` as ``plan`` does, and where the kernel would be loaded while ``stream`` is
        captured into a CUDA graph.
        """
        assert self._gpu is not None
        try:
            return self._gpu.plan(buffers, ordinal, stream, self._check_gpu)
        except (FormulaOverflow, FormulaDivision) as error:
            raise _without_value(error) from error

    def _new_plan(
        self, buffers: list[Buffer], threads_for: Callable[[HostThreads], HostThreads] | None = None
    ) -> Plan:
        require_unbound(self.manifest, self.input_names())
        self._check(buffers)
        self.load()
        self._check_guard(buffers)
        library = self._library
        assert library is not None
        threads = self._threads or process_threads().of(library)
        threads = threads_for(threads) if threads_for else threads
        constants = [constant.pointer for constant in self._constants]
        shapes = tuple(buffer.shape for buffer in buffers)
        return Plan(self.manifest, library, shapes, constants, threads, shared_workspaces())

    def _aligned_constants(self) -> list[AlignedBytes | MappedBytes]:
        copies: list[AlignedBytes | MappedBytes] = [
            aligned_copy(content) for content in self._verified_constants()
        ]
        self._constant_bytes = ()
        return copies

    def _verified_constants(self) -> Sequence[bytes]:
        expected = self.binding.constants
        if len(expected) != len(self._constant_bytes) or len(expected) != len(self.manifest.constants):
            counts = f"{len(self.manifest.constants)}, {len(expected)} and {len(self._constant_bytes)}"
            raise IntegrityError(f"manifest, binding and caller name {counts} constants")
        for index, (constant, content) in enumerate(zip(expected, self._constant_bytes, strict=True)):
            _require_digest(f"constant {index}", content, constant.size, constant.sha256)
        return self._constant_bytes


def _followed(arrays: tuple[Any, ...]) -> tuple[Any, Framework]:
    """The first array, whose framework the outputs follow."""
    for value in arrays:
        framework = framework_of(value)
        if framework is not None:
            return value, framework
    return None, Framework.NUMPY


def _without_value(error: FormulaOverflow | FormulaDivision) -> ArgumentError:
    """Sizes of a call at which a formula of the manifest has no value."""
    if isinstance(error, FormulaOverflow):
        return ArgumentError(f"these sizes are too large: {error}")
    return ArgumentError(f"the kernel is not for these sizes: {error}")


def _conversion(buffer: Buffer | DeviceBuffer, spec: TensorSpec) -> str:
    return f"convert it to {spec.dtype} first" if buffer.dtype else ""


def _require_digest(subject: str, content: bytes, size: int, sha256: bytes) -> None:
    if len(content) != size:
        raise IntegrityError(f"{subject} has {len(content)} bytes instead of {size}")
    if hashlib.sha256(content).digest() != sha256:
        raise IntegrityError(f"the bytes of {subject} do not match their digest {sha256.hex()[:12]}...")
