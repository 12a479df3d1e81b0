"""Manifests and bindings as frozen values, and their exact bytes on the wire.

``to_bytes`` is what the service stores and signs; ``from_bytes`` is used only after the signature held.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from google.protobuf.message import DecodeError

from kcache_grpc._proto.kcache.v1 import common_pb2, manifest_pb2
from kcache_grpc.errors import ArgumentError, IntegrityError
from kcache_grpc.model.gpu.launch import GpuLaunchSpec, require_checks, require_valid
from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.gpu.wire import gpu_launch_from_proto, gpu_launch_to_proto
from kcache_grpc.model.identity import Ingredients, KernelIdentity
from kcache_grpc.model.options import Options
from kcache_grpc.model.quantized import QuantizedBuffer, quantized_from_proto, quantized_to_proto
from kcache_grpc.model.sizes.expression import evaluate
from kcache_grpc.model.target import Target, code_kind
from kcache_grpc.model.wire import (
    artifact_kind_from_proto,
    artifact_kind_to_proto,
    dtype_from_proto,
    dtype_to_proto,
    numerics_from_proto,
    numerics_to_proto,
    options_from_proto,
    options_to_proto,
    target_from_proto,
    target_to_proto,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class TensorSpec:
    """Dtype and shape of a row-major contiguous tensor; every dimension is a formula in elements."""

    dtype: str
    dims: tuple[str, ...]

    def shape(self, symbols: dict[str, int]) -> tuple[int, ...]:
        """The dimensions for these sizes."""
        return tuple(evaluate(dim, symbols) for dim in self.dims)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(self.dims)}]"


@dataclass(frozen=True)
class SymbolSpec:
    """A size read from ``axis`` of input ``arg``."""

    name: str
    arg: int
    axis: int


@dataclass(frozen=True)
class ArtifactRef:
    """Immutable bytes; ``kind`` is one of ``kcache_grpc.model.wire.ARTIFACT_KINDS``."""

    kind: str
    sha256: bytes
    size: int


@dataclass(frozen=True)
class LaunchSpec:
    """One launch inside ``kcache_run``; ``extent`` and ``grain`` are formulas.

    ``flops`` and ``bytes`` are formulas too; empty unless the schedule reports launches.
    """

    name: str
    ops: tuple[str, ...]
    extent: str
    grain: str
    flops: str = ""
    bytes: str = ""


@dataclass(frozen=True)
class Preparation:
    """What ``kcache_prepare`` takes and writes: the bound arguments, by index among inputs and constants.

    ``prepared_bytes`` is the size of the prepared buffer, ``alignment`` is in bytes, ``workspace_bytes`` a
    formula over ``workers``.
    """

    arguments: tuple[int, ...]
    prepared_bytes: int
    alignment: int
    workspace_bytes: str


@dataclass(frozen=True)
class Manifest:
    """What a caller must know to run a kernel. Fields as in protos/kcache/v1/manifest.proto."""

    kernel_digest: bytes
    spec_digest: bytes
    key: int
    namespace: str
    epoch: int
    target: Target
    options: Options
    toolchain_digest: bytes
    guard: str
    arg_spec: str
    abi: int
    inputs: tuple[TensorSpec, ...]
    constants: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    symbols: tuple[SymbolSpec, ...]
    workspace_bytes: str
    launches: tuple[LaunchSpec, ...]
    required_isa: tuple[str, ...]
    error_codes: tuple[tuple[int, str], ...]
    artifacts: tuple[ArtifactRef, ...]
    server_version: str
    compile_time: datetime
    compile_seconds: float
    toolchain: Ingredients = field(repr=False)
    gpu_launches: tuple[GpuLaunchSpec, ...] = ()
    checks: tuple[str, ...] = ()
    #: Digest of the bundle that brought the kernel to the server that signed this; empty: it compiled it.
    bundle_digest: bytes = b""
    #: ``None``: no argument is bound.
    preparation: Preparation | None = None

    def artifact(self, kind: str) -> ArtifactRef | None:
        """The artifact of this kind, if the kernel has one."""
        return next((ref for ref in self.artifacts if ref.kind == kind), None)

    @property
    def code(self) -> ArtifactRef | None:
        """The artifact that is run: the shared object, on a GPU the PTX."""
        return self.artifact(code_kind(self.target))

    @property
    def identity(self) -> KernelIdentity:
        """The six ingredients of the kernel, as the manifest has them."""
        return KernelIdentity(
            spec_digest=self.spec_digest,
            arg_spec=self.arg_spec,
            guard=self.guard,
            target=str(self.target),
            options=str(self.options),
            toolchain_digest=self.toolchain_digest,
        )

    def to_bytes(self) -> bytes:
        """The bytes that are stored, signed and sent."""
        message = manifest_pb2.Manifest(
            kernel_digest=self.kernel_digest,
            spec_digest=self.spec_digest,
            key=self.key,
            namespace=self.namespace,
            epoch=self.epoch,
            target=target_to_proto(self.target),
            options=options_to_proto(self.options),
            toolchain_digest=self.toolchain_digest,
            guard=self.guard,
            arg_spec=self.arg_spec,
            abi=self.abi,
            inputs=_tensors_to_proto(self.inputs),
            constants=_tensors_to_proto(self.constants),
            outputs=_tensors_to_proto(self.outputs),
            symbols=_symbols_to_proto(self.symbols),
            workspace_bytes=self.workspace_bytes,
            launches=[
                manifest_pb2.LaunchSpec(
                    name=x.name, ops=x.ops, extent=x.extent, grain=x.grain, flops=x.flops, bytes=x.bytes
                )
                for x in self.launches
            ],
            required_isa=self.required_isa,
            error_codes=[manifest_pb2.ErrorCode(code=code, meaning=text) for code, text in self.error_codes],
            artifacts=[artifact_ref_to_proto(ref) for ref in self.artifacts],
            provenance=manifest_pb2.Provenance(
                server_version=self.server_version,
                toolchain=[manifest_pb2.Ingredient(name=name, value=value) for name, value in self.toolchain],
                bundle_digest=self.bundle_digest,
            ),
            gpu_launches=[gpu_launch_to_proto(launch) for launch in self.gpu_launches],
            checks=self.checks,
            preparation=_preparation_to_proto(self.preparation),
        )
        since_epoch = self.compile_time - _EPOCH
        message.provenance.compile_time.seconds = since_epoch.days * 86400 + since_epoch.seconds
        message.provenance.compile_time.nanos = since_epoch.microseconds * 1000
        seconds, nanos = divmod(round(self.compile_seconds * 1_000_000_000), 1_000_000_000)
        message.provenance.compile_duration.seconds, message.provenance.compile_duration.nanos = (
            seconds,
            nanos,
        )
        return message.SerializeToString(deterministic=True)

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Raises ``IntegrityError`` when the bytes are not a manifest that this version understands."""
        message = manifest_pb2.Manifest()
        try:
            message.ParseFromString(data)
        except DecodeError as error:
            raise IntegrityError(f"not a manifest: {error}") from error
        try:
            return cls._from_message(message)
        except (ArgumentError, OverflowError) as error:
            raise IntegrityError(f"not a manifest that this version understands: {error}") from error

    @classmethod
    def _from_message(cls, message: manifest_pb2.Manifest) -> Manifest:
        """Convert a message.

        Raises ``ArgumentError``, ``OverflowError``, and ``IntegrityError`` if fields contradict each other.
        """
        duration = message.provenance.compile_time
        lasted = message.provenance.compile_duration
        manifest = cls(
            kernel_digest=message.kernel_digest,
            spec_digest=message.spec_digest,
            key=message.key,
            namespace=message.namespace,
            epoch=message.epoch,
            target=target_from_proto(message.target),
            options=options_from_proto(message.options),
            toolchain_digest=message.toolchain_digest,
            guard=message.guard,
            arg_spec=message.arg_spec,
            abi=message.abi,
            inputs=_tensors_from_proto(message.inputs),
            constants=_tensors_from_proto(message.constants),
            outputs=_tensors_from_proto(message.outputs),
            symbols=_symbols_from_proto(message.symbols),
            workspace_bytes=message.workspace_bytes,
            launches=tuple(
                LaunchSpec(x.name, tuple(x.ops), x.extent, x.grain, x.flops, x.bytes)
                for x in message.launches
            ),
            required_isa=tuple(message.required_isa),
            error_codes=tuple((x.code, x.meaning) for x in message.error_codes),
            artifacts=tuple(artifact_ref_from_proto(ref) for ref in message.artifacts),
            server_version=message.provenance.server_version,
            compile_time=_EPOCH + timedelta(seconds=duration.seconds, microseconds=duration.nanos // 1000),
            compile_seconds=(lasted.seconds * 1_000_000_000 + lasted.nanos) / 1_000_000_000,
            toolchain=tuple((x.name, x.value) for x in message.provenance.toolchain),
            gpu_launches=tuple(gpu_launch_from_proto(launch) for launch in message.gpu_launches),
            checks=tuple(message.checks),
            bundle_digest=message.provenance.bundle_digest,
            preparation=_preparation_from_proto(message),
        )
        manifest._require_its_target()
        manifest._require_its_bound()
        return manifest

    def _require_its_bound(self) -> None:
        """What is prepared is what the options bind, and all constants. Raises ``IntegrityError``."""
        expected: tuple[int, ...] = ()
        if self.options.bound:
            inputs = len(self.inputs)
            expected = (*self.options.bound, *range(inputs, inputs + len(self.constants)))
        arguments = self.preparation.arguments if self.preparation is not None else ()
        if arguments != expected or (self.options.bound and self.options.bound[-1] >= len(self.inputs)):
            raise IntegrityError(
                f"a manifest prepares arguments {arguments}, and its options bind {expected}"
            )

    def _require_its_target(self) -> None:
        """Launches are those of the target's kind, and can be evaluated. Raises ``IntegrityError``."""
        if not isinstance(self.target, GpuTarget):
            if self.gpu_launches or self.checks:
                raise IntegrityError(f"a manifest for {self.target} has launches or checks of a GPU")
            return
        if self.launches:
            raise IntegrityError(f"a manifest for {self.target} has launches of a CPU")
        known = {symbol.name for symbol in self.symbols}
        require_checks(self.checks, known)
        buffers = len(self.inputs) + len(self.constants) + len(self.outputs)
        require_valid(self.gpu_launches, known, buffers)


@dataclass(frozen=True)
class ConstantBinding:
    """A large constant that became a buffer: its type, and the digest under which its bytes are read."""

    type: TensorSpec
    sha256: bytes
    size: int


@dataclass(frozen=True)
class CountedOutput:
    """An output of which data says how many elements there are along an axis: output ``count``, ``i64[]``."""

    output: int
    axis: int
    count: int


@dataclass(frozen=True)
class Binding:
    """All that a repeat of a program needs without parsing it; see ``protos/kcache/v1/manifest.proto``."""

    program_digest: bytes
    numerics: str
    namespace: str
    epoch: int
    key: int
    spec_digest: bytes
    inputs: tuple[TensorSpec, ...]
    arg_names: tuple[str, ...]
    outputs: tuple[TensorSpec, ...]
    symbols: tuple[SymbolSpec, ...]
    symbol_values: tuple[int, ...]
    constants: tuple[ConstantBinding, ...]
    symbolic_inputs: tuple[TensorSpec, ...] = ()
    canonicalizer: int = 1
    quantized: tuple[QuantizedBuffer, ...] = ()
    size_arguments: tuple[int, ...] = ()
    counted: tuple[CountedOutput, ...] = ()

    @property
    def arg_spec(self) -> str:
        """Text of the inputs, with the program's own sizes."""
        return ";".join(map(str, self.inputs))

    def to_bytes(self) -> bytes:
        """The bytes that are stored, signed and sent."""
        return manifest_pb2.Binding(
            program_digest=self.program_digest,
            numerics=numerics_to_proto(self.numerics),
            namespace=self.namespace,
            epoch=self.epoch,
            key=self.key,
            spec_digest=self.spec_digest,
            inputs=_tensors_to_proto(self.inputs),
            arg_names=self.arg_names,
            outputs=_tensors_to_proto(self.outputs),
            symbols=_symbols_to_proto(self.symbols),
            symbol_values=self.symbol_values,
            constants=[constant_to_proto(constant) for constant in self.constants],
            symbolic_inputs=_tensors_to_proto(self.symbolic_inputs),
            canonicalizer=self.canonicalizer,
            quantized=map(quantized_to_proto, self.quantized),
            size_arguments=self.size_arguments,
            counted=[
                manifest_pb2.CountedOutput(output=c.output, axis=c.axis, count=c.count) for c in self.counted
            ],
        ).SerializeToString(deterministic=True)

    @classmethod
    def from_bytes(cls, data: bytes) -> Binding:
        """Raises ``IntegrityError`` when the bytes are not a binding that this version understands."""
        message = parsed_binding(data)
        try:
            return cls._from_message(message)
        except ArgumentError as error:
            raise IntegrityError(f"not a binding that this version understands: {error}") from error

    @classmethod
    def _from_message(cls, message: manifest_pb2.Binding) -> Binding:
        return cls(
            program_digest=message.program_digest,
            numerics=numerics_from_proto(message.numerics),
            namespace=message.namespace,
            epoch=message.epoch,
            key=message.key,
            spec_digest=message.spec_digest,
            inputs=_tensors_from_proto(message.inputs),
            arg_names=tuple(message.arg_names),
            outputs=_tensors_from_proto(message.outputs),
            symbols=_symbols_from_proto(message.symbols),
            symbol_values=tuple(message.symbol_values),
            constants=tuple(constant_from_proto(constant) for constant in message.constants),
            symbolic_inputs=_tensors_from_proto(message.symbolic_inputs),
            canonicalizer=message.canonicalizer or 1,
            quantized=tuple(map(quantized_from_proto, message.quantized)),
            size_arguments=tuple(message.size_arguments),
            counted=tuple(CountedOutput(c.output, c.axis, c.count) for c in message.counted),
        )

    def __post_init__(self) -> None:
        """Raises ``ArgumentError`` for counts of outputs that are none."""
        for entry in self.counted:
            fits = entry.output < len(self.outputs) and entry.axis < len(self.outputs[entry.output].dims)
            if not fits or entry.count >= len(self.outputs) or str(self.outputs[entry.count]) != "i64[]":
                raise ArgumentError(
                    f"output {entry.count} counts no axis {entry.axis} of output {entry.output}"
                )


def _preparation_to_proto(preparation: Preparation | None) -> manifest_pb2.Preparation | None:
    if preparation is None:
        return None
    return manifest_pb2.Preparation(
        arguments=preparation.arguments,
        prepared_bytes=preparation.prepared_bytes,
        alignment=preparation.alignment,
        workspace_bytes=preparation.workspace_bytes,
    )


def _preparation_from_proto(message: manifest_pb2.Manifest) -> Preparation | None:
    if not message.HasField("preparation"):
        return None
    preparation = message.preparation
    return Preparation(
        tuple(preparation.arguments),
        preparation.prepared_bytes,
        preparation.alignment,
        preparation.workspace_bytes,
    )


def is_preloaded(data: bytes) -> bool:
    """Whether the kernel of a manifest came to its server in a bundle. Raises ``IntegrityError``."""
    try:
        return bool(manifest_pb2.Manifest.FromString(data).provenance.bundle_digest)
    except DecodeError as error:
        raise IntegrityError(f"not a manifest: {error}") from error


def parsed_binding(data: bytes) -> manifest_pb2.Binding:
    """The message. Raises ``IntegrityError``."""
    message = manifest_pb2.Binding()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise IntegrityError(f"not a binding: {error}") from error
    return message


def tensor_to_proto(tensor: TensorSpec) -> common_pb2.TensorSpec:
    """To the wire."""
    return common_pb2.TensorSpec(dtype=dtype_to_proto(tensor.dtype), dims=tensor.dims)


def tensor_from_proto(message: common_pb2.TensorSpec) -> TensorSpec:
    """From the wire."""
    return TensorSpec(dtype_from_proto(message.dtype), tuple(message.dims))


def symbol_to_proto(symbol: SymbolSpec) -> common_pb2.SymbolSpec:
    """To the wire."""
    return common_pb2.SymbolSpec(name=symbol.name, arg=symbol.arg, axis=symbol.axis)


def symbol_from_proto(message: common_pb2.SymbolSpec) -> SymbolSpec:
    """From the wire."""
    return SymbolSpec(message.name, message.arg, message.axis)


def artifact_ref_to_proto(ref: ArtifactRef) -> manifest_pb2.ArtifactRef:
    """To the wire."""
    return manifest_pb2.ArtifactRef(
        kind=artifact_kind_to_proto(ref.kind), sha256=ref.sha256, size_bytes=ref.size
    )


def artifact_ref_from_proto(message: manifest_pb2.ArtifactRef) -> ArtifactRef:
    """From the wire."""
    return ArtifactRef(artifact_kind_from_proto(message.kind), message.sha256, message.size_bytes)


def constant_to_proto(constant: ConstantBinding) -> manifest_pb2.ConstantBinding:
    """To the wire."""
    return manifest_pb2.ConstantBinding(
        type=tensor_to_proto(constant.type), sha256=constant.sha256, size_bytes=constant.size
    )


def constant_from_proto(message: manifest_pb2.ConstantBinding) -> ConstantBinding:
    """From the wire."""
    return ConstantBinding(tensor_from_proto(message.type), message.sha256, message.size_bytes)


def _tensors_to_proto(tensors: tuple[TensorSpec, ...]) -> list[common_pb2.TensorSpec]:
    return [tensor_to_proto(tensor) for tensor in tensors]


def _tensors_from_proto(messages: Iterable[common_pb2.TensorSpec]) -> tuple[TensorSpec, ...]:
    return tuple(tensor_from_proto(message) for message in messages)


def _symbols_to_proto(symbols: tuple[SymbolSpec, ...]) -> list[common_pb2.SymbolSpec]:
    return [symbol_to_proto(symbol) for symbol in symbols]


def _symbols_from_proto(messages: Iterable[common_pb2.SymbolSpec]) -> tuple[SymbolSpec, ...]:
    return tuple(symbol_from_proto(message) for message in messages)
