"""Packages that are loaded: a module from one file, without a compiler and without a service."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from kcache_grpc.client.arguments import shape_requirements
from kcache_grpc.client.bundles.tier import BundledKernels, Trust
from kcache_grpc.client.cache.totals import Counters
from kcache_grpc.client.client import Client
from kcache_grpc.client.config import from_environment
from kcache_grpc.client.service_choice import Services
from kcache_grpc.client.transport.blocking import BlockingIo
from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.errors import ArgumentError, IntegrityError, NotFound
from kcache_grpc.integrations.torch.dynamo.aot.json_codec import InvalidRecord
from kcache_grpc.integrations.torch.dynamo.kernels import IslandKernel
from kcache_grpc.integrations.torch.dynamo.lowering.plan import Program, executable
from kcache_grpc.integrations.torch.exported.graph import (
    Graph,
    graph_from_json,
    graph_to_json,
    use_own_threads,
)
from kcache_grpc.integrations.torch.exported.inputs import decode_inputs, dtype_named, encode_inputs
from kcache_grpc.integrations.torch.exported.module import Expected, Feed, Interface, LoadedModule, Runner
from kcache_grpc.integrations.torch.exported.package_file import PackageFile
from kcache_grpc.integrations.torch.exported.state import (
    BUFFER,
    CONSTANT,
    PARAMETER,
    StateTensor,
    decode_convention,
    decode_tensors,
    encode_convention,
)
from kcache_grpc.model.options import Options
from kcache_grpc.model.program import Program as SentProgram
from kcache_grpc.model.program import ProgramFormat
from kcache_grpc.model.target import Target, compatible_targets, parse_target

torch: Any = import_module("torch")

GRAPH, WEIGHTS, KERNELS = "graph.json", "weights.safetensors", "kernels.kcb"


def load_package(
    path: Path,
    *,
    client: Client | None = None,
    target: str = "host",
    strict: bool = False,
    trust: Trust = None,
    frozen: bool = False,
) -> LoadedModule:
    """The module of a package. Nothing is compiled, and no service is asked.

    ``client``: whose trusted signers count; ``trust``: further ones; ``frozen``: whether bound weights are
    prepared once, whatever becomes of them later. Raises ``NotFound``, also for arguments or results nested
    in a class that is not registered here, as one of transformers is not before it is imported;
    ``ArgumentError`` for a package without kernels for the target, ``IntegrityError`` for a file that is
    truncated or changed, ``PermissionDenied`` for kernels of a signer that is not trusted.
    """
    with PackageFile(path) as package:
        data = _json(package)
        try:
            interface = decode_interface(data["interface"])
            graph = graph_from_json(data["graph"], len(interface.feeds))
            state = _state(data["state"], decode_tensors(package.read(WEIGHTS)))
            targets, options = list(map(str, data["targets"])), Options(**data["options"])
            runner_of = _runners(interface, graph, frozen)
        except (InvalidRecord, KeyError, TypeError, ValueError) as error:
            if isinstance(error, (IntegrityError, NotFound)):
                raise
            raise IntegrityError(f"the package {path} cannot be read: {error}", path=str(path)) from error
        kernels: Sequence[Any] = ()
        if graph.programs:
            machine = _machine(path, target, targets)
            kernels = _kernels(package, graph.programs, machine, options, client, trust, strict, frozen)
    return LoadedModule(state, runner_of(kernels))


def _runners(interface: Interface, graph: Graph, frozen: bool) -> Any:
    """From the kernels to the runner."""

    def runner(kernels: Sequence[Any]) -> Runner:
        use_own_threads(graph.plan, kernels)
        return Runner(interface, graph, executable(graph.plan, kernels), frozen=frozen)

    names = {interface.feeds[position].name for position in (*graph.feeds, *graph.updates)}
    leaves = {feed.name for feed in interface.feeds if feed.leaf is not None}
    unknown = sorted(names - leaves - set(interface.expected))
    if unknown:
        raise ValueError(f"nothing is said of the tensor {unknown[0]}")
    return runner


def _json(package: PackageFile) -> Any:
    try:
        return json.loads(bytes(package.read(GRAPH)))
    except ValueError as error:
        raise IntegrityError(f"the graph of {package.path} is no JSON: {error}") from error


def _machine(path: Path, name: str, targets: Sequence[str]) -> Target:
    """The target of the package that suits best."""
    wanted = parse_target(name)
    for candidate in (wanted, *compatible_targets(wanted)):
        if str(candidate) in targets:
            return candidate
    raise ArgumentError(
        f"{path} has kernels for {', '.join(targets)}, and none of them runs on {wanted}: package the model "
        f"with targets=({str(wanted)!r},)",
        path=str(path),
    )


def _kernels(
    package: PackageFile,
    programs: Sequence[Program],
    target: Target,
    options: Options,
    client: Client | None,
    trust: Trust,
    strict: bool,
    frozen: bool,
) -> list[IslandKernel]:
    bundled = _bundled(package, target, client, trust)
    kernels: list[IslandKernel] = []
    for program in programs:
        shapes = shape_requirements(None, None, program.dynamic)
        sent = SentProgram(ProgramFormat.TORCH, program.text)
        kernel = bundled.find(KernelRequest(sent, target, replace(options, bound=program.bound), shapes))
        if kernel is None:
            raise IntegrityError(
                f"{package.path} has no kernel for {target} of its program {sent.digest.hex()}",
                path=str(package.path),
            )
        kernels.append(IslandKernel.of(program, kernel.kernel(lambda: None), strict, frozen))
    return kernels


def _bundled(package: PackageFile, target: Target, client: Client | None, trust: Trust) -> BundledKernels:
    config = from_environment(cache_dir=None if client is None else client.cache_dir)
    counters = Counters()
    bundled = BundledKernels(config, Services(config, BlockingIo(), counters), counters)
    with tempfile.TemporaryDirectory(prefix="kcache-") as directory:
        # Stays open after it was removed.
        file = Path(directory) / KERNELS
        file.write_bytes(package.read(KERNELS))
        bundled.preload(file, trust, str(target))
    return bundled


# JSON.


def encode_package(
    interface: Interface,
    graph: Graph,
    state: Sequence[StateTensor],
    tensors: Mapping[int, str],
    targets: Sequence[str],
    options: Options,
) -> bytes:
    """The description in a package, in addition to weights and kernels.

    ``tensors``: id of a tensor -> its name in the weights. Raises ``ArgumentError`` or ``NotRecordable`` for
    what another process could not do.
    """
    fields = {name: getattr(options, name) for name in ("numerics", "opt_level", "tuning", "schedule")}
    data = {
        "interface": _encode_interface(interface),
        "graph": graph_to_json(graph),
        "state": [
            [each.name, each.kind, each.persistent, each.value.requires_grad, tensors[id(each.value)]]
            for each in state
        ],
        "targets": list(targets),
        "options": fields,
    }
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def _encode_interface(interface: Interface) -> dict[str, Any]:
    return {
        "convention": encode_convention(interface.convention),
        "inputs": encode_inputs(interface.inputs),
        "feeds": [list(feed) for feed in interface.feeds],
        "expected": {
            name: [str(each.dtype), str(each.device), list(each.shape)]
            for name, each in interface.expected.items()
        },
    }


def decode_interface(data: Any) -> Interface:
    """Raises ``ValueError``, ``KeyError`` or ``TypeError`` for other JSON values."""
    inputs = decode_inputs(data["inputs"])
    feeds: list[Feed] = []
    for name, leaf in cast("Sequence[Any]", data["feeds"]):
        if leaf is not None and (type(leaf) is not int or not 0 <= leaf < len(inputs.inputs)):
            raise ValueError("an input is no leaf of the arguments")
        feeds.append(Feed(str(name), leaf))
    expected = {
        str(name): Expected(dtype_named(dtype), torch.device(device), tuple(map(int, shape)))
        for name, (dtype, device, shape) in data["expected"].items()
    }
    return Interface(decode_convention(data["convention"]), inputs, tuple(feeds), expected)


def _state(data: Any, tensors: Mapping[str, Any]) -> list[StateTensor]:
    """Tensors of the module; a tensor with several names stays one."""
    state: list[StateTensor] = []
    parameters: dict[tuple[str, bool], Any] = {}
    for name, kind, persistent, requires_grad, key in cast("Sequence[Any]", data):
        value = tensors[key]
        if kind == PARAMETER:
            shared = (key, bool(requires_grad))
            value = parameters.setdefault(
                shared, torch.nn.Parameter(value, requires_grad=bool(requires_grad))
            )
        elif kind not in (BUFFER, CONSTANT):
            raise ValueError(f"{kind!r} is no kind of tensor")
        state.append(StateTensor(str(name), str(kind), bool(persistent), value))
    return state
