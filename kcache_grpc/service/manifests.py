"""From what the compiler says to what is stored (bindings, manifests, identities), and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from kcache_compiler.types import (
    ArgSpec,
    BoundInterface,
    Canonical,
    CompiledKernel,
    CompileOptions,
    GpuLaunch,
    Quantization,
    Symbol,
    TensorType,
)
from kcache_grpc.errors import ArgumentError, KcacheError
from kcache_grpc.model.evidence import dynamic_shape
from kcache_grpc.model.gpu.launch import GpuLaunchSpec, GpuResources
from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.identity import Ingredients, KernelIdentity, Toolchains, ingredients_digest
from kcache_grpc.model.manifest import (
    ArtifactRef,
    Binding,
    ConstantBinding,
    CountedOutput,
    LaunchSpec,
    Manifest,
    Preparation,
    SymbolSpec,
    TensorSpec,
    is_preloaded,
    parsed_binding,
)
from kcache_grpc.model.options import Options
from kcache_grpc.model.program import Program
from kcache_grpc.model.quantized import QuantizedBuffer
from kcache_grpc.model.signing import Signed
from kcache_grpc.model.sizes.modes import DYNAMIC
from kcache_grpc.model.variants import (
    Shape,
    exact_arg_spec,
    exact_shape,
    parse_arg_spec,
    spec_sizes,
)
from kcache_grpc.service.kernel_interface import interface_of
from kcache_grpc.service.values import KernelRequirements, KnownGraph, KnownKernel
from kcache_grpc.storage.records import Blob, MappingRecord, Namespace, SignedBytes, StoredKernel


def shape(graph: KnownGraph, requirements: KernelRequirements) -> Shape:
    """Of the kernel for exactly these sizes, or for all that are requested and have evidence.

    Raises ``ArgumentError`` for sizes that cannot change, or that have no evidence.
    """
    _require_bindable(graph, requirements)
    if requirements.shapes.mode == DYNAMIC:
        parsed = Binding.from_bytes(graph.binding.payload)
        result = dynamic_shape(parsed, requirements.shapes, requirements.witnesses)
        _require_static(result, requirements.options.bound)
        return result
    return Shape(graph.arg_spec)


def _require_static(shape: Shape, bound: tuple[int, ...]) -> None:
    """Raises ``ArgumentError`` for bound arguments with dynamic dimensions."""
    kinds = parse_arg_spec(shape.arg_spec) if bound else ()
    for index in bound:
        if not all(size.isdecimal() for size in map(str, kinds[index].dims)):
            raise ArgumentError(f"argument {index} is to be bound, and has dynamic sizes: {kinds[index]}")


def _require_bindable(graph: KnownGraph, requirements: KernelRequirements) -> None:
    """Raises ``ArgumentError`` for bound arguments that a kernel cannot have."""
    bound = requirements.options.bound
    if not bound:
        return
    count = len(parse_arg_spec(graph.arg_spec))
    if bound[-1] >= count:
        raise ArgumentError(f"argument {bound[-1]} is to be bound, and the program has {count} inputs")
    if isinstance(requirements.target, GpuTarget):
        raise ArgumentError(f"a kernel for {requirements.target} has no bound arguments: they are for CPUs")


def identity(
    graph: KnownGraph, shape: Shape, requirements: KernelRequirements, toolchains: Toolchains
) -> KernelIdentity:
    """What the kernel of a graph is named by."""
    return KernelIdentity(
        spec_digest=graph.spec_digest,
        arg_spec=shape.arg_spec,
        guard=shape.guard,
        target=str(requirements.target),
        options=str(requirements.options),
        toolchain_digest=toolchains.of(requirements.target).digest,
    )


def unreadable(program_digest: bytes, numerics: str, toolchains: Toolchains) -> bytes:
    """The name under which a program that broke its parser is remembered, among kernels that failed."""
    toolchain = toolchains.of(None).digest.hex()
    pairs = (("program", program_digest.hex()), ("numerics", numerics), ("toolchain", toolchain))
    return ingredients_digest("kcache.unreadable.v1", pairs)


def parsing(namespace: Namespace, program_digest: bytes, numerics: str, canonicalizer: int) -> bytes:
    """What a server claims that is about to parse and store a program."""
    pairs = (
        ("namespace", f"{namespace.name}.{namespace.epoch}"),
        ("program", program_digest.hex()),
        ("numerics", numerics),
        ("canonicalizer", str(canonicalizer)),
    )
    return ingredients_digest("kcache.parsing.v1", pairs)


def binding(
    canonical: Canonical,
    program: Program,
    numerics: str,
    namespace: Namespace,
    key: int,
    canonicalizer: int,
) -> Binding:
    """How ``program`` uses the spec under ``key``."""
    result = Binding(
        program_digest=program.digest,
        numerics=numerics,
        namespace=namespace.name,
        epoch=namespace.epoch,
        key=key,
        spec_digest=canonical.spec_digest,
        inputs=_tensors(canonical.arg_spec.args),
        arg_names=canonical.arg_names,
        outputs=_tensors(canonical.results),
        symbols=_symbols(canonical.symbols),
        symbol_values=canonical.symbol_values,
        constants=tuple(
            ConstantBinding(_tensor(c.type), c.digest, len(c.content)) for c in canonical.constants
        ),
        symbolic_inputs=_tensors(canonical.symbolic_args),
        canonicalizer=canonicalizer,
        quantized=(
            *_quantized(canonical.quantized_args, output=False),
            *_quantized(canonical.quantized_results, output=True),
        ),
        size_arguments=canonical.size_arguments,
        counted=tuple(CountedOutput(*entry) for entry in canonical.counted_results),
    )
    _require_same_sizes(result)
    return result


def _quantized(buffers: Sequence[Quantization | None], output: bool) -> Iterator[QuantizedBuffer]:
    for index, buffer in enumerate(buffers):
        if buffer is not None:
            yield QuantizedBuffer(
                index=index,
                output=output,
                expressed=buffer.expressed,
                storage_min=buffer.low,
                storage_max=buffer.high,
                scales=buffer.scales,
                zero_points=buffer.zero_points,
                axis=buffer.axis,
            )


def _require_same_sizes(binding: Binding) -> None:
    """A spec's symbols give back the program's sizes, or the canonicalizer is wrong: nothing is stored."""
    sizes = spec_sizes(binding)
    exact = exact_shape(sizes).arg_spec
    if exact != binding.arg_spec and len(sizes.known) == len(sizes.symbols):
        raise KcacheError(
            f"the canonical form of this program is for {exact}, the program for {binding.arg_spec}: "
            "this is a bug in kcache"
        )


def constants(canonical: Canonical) -> tuple[Blob, ...]:
    """The lifted constants, in the order of the binding."""
    return tuple(Blob(c.digest, c.content) for c in canonical.constants)


def manifest(
    kernel: CompiledKernel,
    identity: KernelIdentity,
    graph: KnownGraph,
    requirements: KernelRequirements,
    namespace: Namespace,
    toolchain: Ingredients,
    artifacts: Sequence[ArtifactRef],
    server_version: str,
    compile_time: datetime,
    compile_seconds: float,
) -> Manifest:
    """What a caller must know to run ``kernel``."""
    interface = interface_of(kernel.interface, identity.arg_spec)
    return Manifest(
        kernel_digest=identity.digest,
        spec_digest=graph.spec_digest,
        key=graph.key,
        namespace=namespace.name,
        epoch=namespace.epoch,
        target=requirements.target,
        options=requirements.options,
        toolchain_digest=identity.toolchain_digest,
        guard=identity.guard,
        arg_spec=identity.arg_spec,
        abi=interface.abi,
        inputs=parse_arg_spec(identity.arg_spec),
        constants=_tensors(interface.constants),
        outputs=_tensors(interface.outputs),
        symbols=_symbols(interface.symbols),
        workspace_bytes=interface.workspace,
        launches=tuple(
            LaunchSpec(x.name, x.ops, x.extent, x.grain, x.flops, x.bytes) for x in interface.launches
        ),
        required_isa=interface.required_isa,
        error_codes=tuple(interface.error_codes.items()),
        artifacts=tuple(artifacts),
        server_version=server_version,
        compile_time=compile_time,
        compile_seconds=compile_seconds,
        toolchain=toolchain,
        gpu_launches=tuple(map(_gpu_launch, interface.gpu_launches)),
        checks=interface.checks,
        preparation=_preparation(interface.bound),
    )


def _preparation(bound: BoundInterface | None) -> Preparation | None:
    if bound is None:
        return None
    return Preparation(bound.arguments, bound.prepared_bytes, bound.alignment, bound.workspace)


def known_graph(record: MappingRecord, key_id: bytes) -> KnownGraph:
    """A stored mapping as the service keeps it in memory."""
    parsed = parsed_binding(record.binding.payload)
    return KnownGraph(
        program_digest=record.program_digest,
        key=record.key,
        spec_digest=parsed.spec_digest,
        arg_spec=exact_arg_spec(parsed),
        binding=signed(record.binding, key_id),
        canonicalizer=parsed.canonicalizer or 1,
    )


def known_kernel(record: StoredKernel, key_id: bytes) -> KnownKernel:
    """A stored kernel as the service keeps it in memory."""
    return KnownKernel(
        digest=record.kernel.kernel_digest,
        manifest=signed(record.manifest, key_id),
        artifacts=tuple(ArtifactRef(ref.kind, ref.digest, ref.size) for ref in record.artifacts),
        compile_us=record.compile_us,
        preloaded=is_preloaded(record.manifest.payload),
    )


def signed(stored: SignedBytes, key_id: bytes) -> Signed:
    """Stored bytes as they are sent."""
    return Signed(stored.payload, stored.signature, key_id)


def compiler_arg_spec(text: str) -> ArgSpec:
    """An arg spec as the compiler takes it: static dimensions are integers."""
    return ArgSpec(
        tuple(
            TensorType(tensor.dtype, tuple(int(dim) if dim.isdigit() else dim for dim in tensor.dims))
            for tensor in parse_arg_spec(text)
        )
    )


def compiler_options(options: Options) -> CompileOptions:
    """The options as the compiler takes them."""
    return CompileOptions(
        options.numerics, options.opt_level, options.tuning, options.schedule, options.bound
    )


def _gpu_launch(launch: GpuLaunch) -> GpuLaunchSpec:
    reported = launch.resources
    resources = reported and GpuResources(reported.registers, reported.spill_bytes, reported.static_shared)
    return GpuLaunchSpec(
        launch.name,
        launch.ops,
        launch.entry,
        launch.when,
        launch.grid,
        launch.block,
        launch.shared_bytes,
        launch.params,
        resources,
    )


def _tensor(tensor: TensorType) -> TensorSpec:
    return TensorSpec(tensor.dtype, tuple(map(str, tensor.dims)))


def _tensors(tensors: Sequence[TensorType]) -> tuple[TensorSpec, ...]:
    return tuple(map(_tensor, tensors))


def _symbols(symbols: Sequence[Symbol]) -> tuple[SymbolSpec, ...]:
    return tuple(SymbolSpec(symbol.name, symbol.arg, symbol.axis) for symbol in symbols)
