"""``kcache_grpc.torch.load``: a module that runs an exported program with kernels."""

from __future__ import annotations

import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from kcache_grpc.client.bundles.tier import Trust
from kcache_grpc.client.client import Client
from kcache_grpc.errors import ArgumentError, KcacheError, NotFound
from kcache_grpc.integrations.torch.dynamo.aot.json_codec import InvalidRecord, NotRecordable
from kcache_grpc.integrations.torch.dynamo.digest.source_digest import NotDigestible
from kcache_grpc.integrations.torch.dynamo.kernels import KernelSource
from kcache_grpc.integrations.torch.dynamo.lowering import decisions
from kcache_grpc.integrations.torch.dynamo.lowering.decisions import Decision, log
from kcache_grpc.integrations.torch.dynamo.lowering.plan import KernelStep, executable
from kcache_grpc.integrations.torch.dynamo.record import RecordStore
from kcache_grpc.integrations.torch.dynamo.settings import Settings
from kcache_grpc.integrations.torch.exported.graph import (
    Graph,
    Kernels,
    decode_record,
    encode_record,
    exported_digest,
    lower,
    use_own_threads,
)
from kcache_grpc.integrations.torch.exported.inputs import inputs_of
from kcache_grpc.integrations.torch.exported.module import Expected, Feed, Interface, LoadedModule, Runner
from kcache_grpc.integrations.torch.exported.package_file import is_package
from kcache_grpc.integrations.torch.exported.packaged import load_package
from kcache_grpc.integrations.torch.exported.state import convention_of, state_of
from kcache_grpc.model.options import Options

torch: Any = import_module("torch")


def load(
    exported: Any,
    *,
    client: Client | None = None,
    target: str = "host",
    options: Options | None = None,
    strict: bool = False,
    trust: Trust = None,
    bound: Literal["weights", "frozen"] | None = None,
) -> LoadedModule:
    """A module that computes what an exported program does, with kernels for what they can compute.

    ``exported``: a ``torch.export.ExportedProgram``, the path of one (``.pt2``), or the path of a file that
    ``package`` wrote. The module shares the program's parameters, buffers and constants, and takes the
    arguments of the export. Operators without kernels are run by PyTorch.

    ``client``: in place of one for ``$KCACHE_ADDR``; ``target`` and ``options`` as in ``Client.compile``.
    ``strict``: raise where compiling or a kernel's call fails, in place of running PyTorch's operators.
    ``trust``: identities of signers whose kernels a package may bring, in addition to those that the client
    trusts. ``bound``: "weights" to prepare parameters, buffers and constants once, and again when they
    change, as ``torch.compile`` does with this option; "frozen" to prepare them once, at the first call:
    calls compare nothing, and the tensors must not change later. A package says itself whether weights are
    bound; "frozen" counts for those that are.

    What was found out about a program is kept on disk and at the service, by a digest of its graph: a later
    process does not decompose it again.

    Raises ``ArgumentError`` for programs that are called otherwise than with tensors, integers and constants;
    ``NotFound`` for a path without a file; for a package also what ``load_package`` raises.
    """
    if isinstance(exported, (str, os.PathLike)):
        path = Path(exported)  # pyright: ignore[reportUnknownArgumentType]
        if is_package(path):
            frozen = bound == "frozen"
            return load_package(path, client=client, target=target, strict=strict, trust=trust, frozen=frozen)
        exported = _read(path)
    if not isinstance(exported, torch.export.ExportedProgram):
        raise ArgumentError(
            f"load takes a torch.export.ExportedProgram or a path, not a {type(exported).__name__}: "
            "use torch.export.export(model, args)"
        )
    interface = interface_of(exported)
    settings = settings_of(target, options, strict, bound)
    graph, kernels = _graph(exported, settings, KernelSource(settings, client))
    use_own_threads(graph.plan, kernels)
    runner = Runner(interface, graph, executable(graph.plan, kernels), frozen=bound == "frozen")
    return LoadedModule(state_of(exported), runner)


def settings_of(target: str, options: Options | None, strict: bool, bound: str | None = None) -> Settings:
    """Those of the backend for the arguments of ``load``."""
    options = options or Options()
    choices = (options.numerics, options.opt_level, options.tuning, options.schedule)
    return Settings(*choices, target=target, strict=strict, bound=bound)


def interface_of(exported: Any) -> Interface:
    """How an exported program is called."""
    placeholders = [node for node in exported.graph.nodes if node.op == "placeholder"]
    feeds: list[Feed] = []
    leaves: list[Any] = []
    constants: dict[str, Any] = {}
    expected: dict[str, Expected] = {}
    for spec, node in zip(exported.graph_signature.input_specs, placeholders, strict=True):
        value = node.meta.get("val")
        if spec.kind.name == "USER_INPUT":
            feeds.append(Feed(node.name, len(leaves)))
            leaves.append(node)
            if type(spec.arg).__name__ == "ConstantArgument":
                constants[node.name] = spec.arg.value
        else:
            feeds.append(Feed(spec.target or spec.arg.name, None))
            if isinstance(value, torch.Tensor):
                expected[spec.target] = Expected(value.dtype, value.device, tuple(value.shape))
    inputs = inputs_of(leaves, constants, exported.range_constraints)
    return Interface(convention_of(exported), inputs, tuple(feeds), expected)


def _read(path: Path) -> Any:
    if not path.exists():
        raise NotFound(f"there is no file {path}", path=str(path))
    try:
        return torch.export.load(path)
    except Exception as error:
        raise ArgumentError(f"{path} is no exported program: {error}", path=str(path)) from error


def _graph(exported: Any, settings: Settings, source: KernelSource) -> tuple[Graph, Kernels]:
    """From the record of the program, else by decomposing it."""
    digest = _digest(exported, settings)
    if digest is None:
        return lower(exported, source.compile, source.rejected, settings)
    store = RecordStore(source.client)
    recorded = store.find(digest)
    warm = None if recorded is None else _warm(recorded.body, recorded.origin, exported, source)
    if warm is not None:
        return warm
    graph, kernels = lower(exported, source.compile, source.rejected, settings)
    if graph.programs:
        _keep(store, digest, graph)
    return graph, kernels


def _digest(exported: Any, settings: Settings) -> bytes | None:
    try:
        return exported_digest(exported, settings.ingredients)
    except NotDigestible as error:
        log.info("no warm start: %s", error)
        return None


def _warm(body: bytes, origin: str, exported: Any, source: KernelSource) -> tuple[Graph, Kernels] | None:
    begin = time.perf_counter()
    try:
        graph = decode_record(body, len(exported.graph_signature.input_specs))
        kernels = source.compile(graph.programs)
    except (InvalidRecord, KcacheError) as error:
        log.info("a record of the exported program is not used: %s", error)
        return None
    sizes = [len(step.fallback) for step in graph.plan.steps if isinstance(step, KernelStep)]
    seconds = {origin: time.perf_counter() - begin}
    bound = graph.plan.bound
    decisions.record(Decision("inference", sizes, [], seconds=seconds, origin="warm", bound=bound))
    return graph, kernels


def _keep(store: RecordStore, digest: bytes, graph: Graph) -> None:
    try:
        body = encode_record(graph)
    except NotRecordable as error:
        log.info("no record of the exported program: %s", error)
        return
    store.add(digest, body, graph.program_digests)
