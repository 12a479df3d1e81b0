"""The compiler's values as frames, both ways. Imports no MLIR: the parent decodes with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from kcache_compiler.difference import Difference, Neighbor
from kcache_compiler.types import (
    ArgSpec,
    BoundInterface,
    Canonical,
    CompiledKernel,
    CompileOptions,
    GpuLaunch,
    GpuResources,
    KernelInterface,
    Launch,
    LiftedConstant,
    Quantization,
    Symbol,
    TensorType,
)
from kcache_grpc.worker.frames import Frame

Json = Mapping[str, Any]


def canonicalize_job(
    body: bytes, format: str, numerics: str, limits: Mapping[str, int], seconds: float
) -> Frame:
    """Asks for the canonical form of a program. ``limits`` replace those of the frontend, by name.

    ``seconds`` of processor time are what it may take.
    """
    header = {
        "type": "canonicalize",
        "format": format,
        "numerics": numerics,
        "limits": dict(limits),
        "seconds": seconds,
    }
    return Frame(header, (body,))


def support_job(
    body: bytes, format: str, target: str, numerics: str, limits: Mapping[str, int], seconds: float
) -> Frame:
    """Asks which operations of a program do not compile; as ``canonicalize_job``."""
    header = {
        "type": "support",
        "format": format,
        "target": target,
        "numerics": numerics,
        "limits": dict(limits),
        "seconds": seconds,
    }
    return Frame(header, (body,))


def compile_job(spec_text: str, arg_spec: ArgSpec, target: str, options: CompileOptions) -> Frame:
    """Asks for the kernel of a spec."""
    header = {
        "type": "compile",
        "arg_spec": _tensors(arg_spec.args),
        "target": target,
        "options": {
            "numerics": options.numerics,
            "opt_level": options.opt_level,
            "tuning": options.tuning,
            "schedule": options.schedule,
            "bound": options.bound,
        },
    }
    return Frame(header, (spec_text.encode(),))


def decode_compile_job(frame: Frame) -> tuple[str, ArgSpec, str, CompileOptions]:
    """The arguments of ``compile_spec``."""
    header = frame.header
    fields: dict[str, Any] = {**header["options"], "bound": tuple(header["options"]["bound"])}
    options = CompileOptions(**fields)
    return frame.blobs[0].decode(), ArgSpec(_to_tensors(header["arg_spec"])), header["target"], options


def encode_canonical(canonical: Canonical) -> Frame:
    """The reply to a ``canonicalize`` job."""
    header = {
        "type": "result",
        "spec_digest": canonical.spec_digest.hex(),
        "arg_spec": _tensors(canonical.arg_spec.args),
        "results": _tensors(canonical.results),
        "symbols": _symbols(canonical.symbols),
        "constants": [
            {"position": c.position, "type": _tensor(c.type), "digest": c.digest.hex()}
            for c in canonical.constants
        ],
        "arg_names": list(canonical.arg_names),
        "operations": canonical.operations,
        "symbol_values": list(canonical.symbol_values),
        "symbolic_args": _tensors(canonical.symbolic_args),
        "quantized_args": _quantized(canonical.quantized_args),
        "quantized_results": _quantized(canonical.quantized_results),
        "size_arguments": list(canonical.size_arguments),
        "counted_results": [list(entry) for entry in canonical.counted_results],
    }
    return Frame(header, (canonical.spec_text.encode(), *(c.content for c in canonical.constants)))


def decode_canonical(frame: Frame) -> Canonical:
    """The value of ``encode_canonical``."""
    header = frame.header
    text, *contents = frame.blobs
    constants = tuple(
        LiftedConstant(c["position"], _to_tensor(c["type"]), bytes.fromhex(c["digest"]), content)
        for c, content in zip(header["constants"], contents, strict=True)
    )
    return Canonical(
        spec_text=text.decode(),
        spec_digest=bytes.fromhex(header["spec_digest"]),
        arg_spec=ArgSpec(_to_tensors(header["arg_spec"])),
        results=_to_tensors(header["results"]),
        symbols=_to_symbols(header["symbols"]),
        constants=constants,
        arg_names=tuple(header["arg_names"]),
        operations=header["operations"],
        symbol_values=tuple(header["symbol_values"]),
        symbolic_args=_to_tensors(header["symbolic_args"]),
        quantized_args=_to_quantized(header["quantized_args"]),
        quantized_results=_to_quantized(header["quantized_results"]),
        size_arguments=tuple(header["size_arguments"]),
        counted_results=tuple((result, axis, count) for result, axis, count in header["counted_results"]),
    )


def _quantized(buffers: Sequence[Quantization | None]) -> list[Json | None]:
    return [buffer and dataclasses.asdict(buffer) for buffer in buffers]


def _to_quantized(buffers: Sequence[Json | None]) -> tuple[Quantization | None, ...]:
    return tuple(
        Quantization(
            expressed=buffer["expressed"],
            low=buffer["low"],
            high=buffer["high"],
            scales=tuple(buffer["scales"]),
            zero_points=tuple(buffer["zero_points"]),
            axis=buffer["axis"],
        )
        if buffer is not None
        else None
        for buffer in buffers
    )


def encode_kernel(kernel: CompiledKernel) -> Frame:
    """The reply to a ``compile`` job."""
    interface = kernel.interface
    header = {
        "type": "result",
        "kinds": list(kernel.artifacts),
        "stage_seconds": kernel.stage_seconds,
        "interface": {
            "inputs": _tensors(interface.inputs),
            "constants": _tensors(interface.constants),
            "outputs": _tensors(interface.outputs),
            "symbols": _symbols(interface.symbols),
            "workspace": interface.workspace,
            "launches": [dataclasses.astuple(launch) for launch in interface.launches],
            "triple": interface.triple,
            "required_isa": list(interface.required_isa),
            "error_codes": [[code, meaning] for code, meaning in interface.error_codes.items()],
            "abi": interface.abi,
            "gpu_launches": [dataclasses.asdict(launch) for launch in interface.gpu_launches],
            "checks": list(interface.checks),
            "bound": interface.bound and dataclasses.asdict(interface.bound),
        },
    }
    return Frame(header, tuple(kernel.artifacts.values()))


def decode_kernel(frame: Frame) -> CompiledKernel:
    """The value of ``encode_kernel``."""
    fields = frame.header["interface"]
    interface = KernelInterface(
        inputs=_to_tensors(fields["inputs"]),
        constants=_to_tensors(fields["constants"]),
        outputs=_to_tensors(fields["outputs"]),
        symbols=_to_symbols(fields["symbols"]),
        workspace=fields["workspace"],
        launches=tuple(Launch(name, tuple(ops), *rest) for name, ops, *rest in fields["launches"]),
        triple=fields["triple"],
        required_isa=tuple(fields["required_isa"]),
        error_codes=dict(fields["error_codes"]),
        abi=fields["abi"],
        gpu_launches=tuple(map(_to_gpu_launch, fields["gpu_launches"])),
        checks=tuple(fields["checks"]),
        bound=_to_bound(fields["bound"]),
    )
    artifacts = dict(zip(frame.header["kinds"], frame.blobs, strict=True))
    return CompiledKernel(artifacts, interface, frame.header["stage_seconds"])


def _to_bound(fields: Json | None) -> BoundInterface | None:
    if fields is None:
        return None
    values: dict[str, Any] = {**fields, "arguments": tuple(fields["arguments"])}
    return BoundInterface(**values)


def precompile_job(target: str) -> Frame:
    """Asks for the libraries that most kernels for ``target`` are linked with.

    The reply's ``compiled`` is the number of those that were missing.
    """
    return Frame({"type": "precompile", "target": target})


def warm_up_job(target: str) -> Frame:
    """Asks a worker to compile a small program, so that its first kernel takes no longer than the next."""
    return Frame({"type": "warm_up", "target": target})


def compare_job(spec_text: str, candidates: Sequence[str], most: int) -> Frame:
    """Asks which candidates are nearest to a spec, and what differs."""
    texts = (spec_text, *candidates)
    return Frame({"type": "compare", "most": most}, tuple(text.encode() for text in texts))


def encode_neighbors(neighbors: Sequence[Neighbor]) -> Frame:
    """The reply to a ``compare`` job."""
    described = [
        [each.index, each.distance, [[d.name, d.yours, d.theirs, d.sentence] for d in each.differences]]
        for each in neighbors
    ]
    return Frame({"type": "result", "neighbors": described})


def decode_neighbors(frame: Frame) -> tuple[Neighbor, ...]:
    """The value of ``encode_neighbors``."""
    return tuple(
        Neighbor(index, distance, tuple(Difference(*texts) for texts in differences))
        for index, distance, differences in frame.header["neighbors"]
    )


def _tensor(tensor: TensorType) -> list[Any]:
    return [tensor.dtype, list(tensor.dims)]


def _tensors(tensors: Sequence[TensorType]) -> list[list[Any]]:
    return [_tensor(tensor) for tensor in tensors]


def _to_tensor(pair: Sequence[Any]) -> TensorType:
    dtype, dims = pair
    return TensorType(dtype, tuple(dims))


def _to_tensors(pairs: Sequence[Sequence[Any]]) -> tuple[TensorType, ...]:
    return tuple(_to_tensor(pair) for pair in pairs)


def _symbols(symbols: Sequence[Symbol]) -> list[list[Any]]:
    return [[symbol.name, symbol.arg, symbol.axis] for symbol in symbols]


def _to_symbols(triples: Sequence[Sequence[Any]]) -> tuple[Symbol, ...]:
    return tuple(Symbol(name, arg, axis) for name, arg, axis in triples)


def _to_gpu_launch(fields: Json) -> GpuLaunch:
    """Lists are tuples again."""
    resources = fields["resources"]
    again = {name: tuple(fields[name]) for name in ("ops", "grid", "block", "params")}
    values: dict[str, Any] = {**fields, **again, "resources": resources and GpuResources(**resources)}
    return GpuLaunch(**values)
