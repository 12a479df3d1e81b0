"""``kcache_grpc.torch.package``: a model in one file, with graph, weights and kernels."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from kcache_grpc.bundle import open_bundle
from kcache_grpc.client.client import Client
from kcache_grpc.errors import ArgumentError
from kcache_grpc.integrations.torch.dynamo.aot.json_codec import NotRecordable
from kcache_grpc.integrations.torch.dynamo.kernels import KernelSource
from kcache_grpc.integrations.torch.dynamo.lowering.plan import Program
from kcache_grpc.integrations.torch.exported.graph import Graph, lower
from kcache_grpc.integrations.torch.exported.load import interface_of, settings_of
from kcache_grpc.integrations.torch.exported.package_file import write_package
from kcache_grpc.integrations.torch.exported.packaged import GRAPH, KERNELS, WEIGHTS, encode_package
from kcache_grpc.integrations.torch.exported.state import StateTensor, encode_tensors, state_of
from kcache_grpc.model.options import Options
from kcache_grpc.model.target import parse_target

torch: Any = import_module("torch")


@dataclass(frozen=True)
class Packaged:
    """The file that ``package`` wrote."""

    path: str
    #: Bytes of the file.
    size: int
    #: SHA-256 of the header, which has the digests of all parts: it names the package. In hex.
    digest: str
    #: Identity that signed the kernels: the ``trust`` of ``load``. Empty without kernels.
    signer: str
    targets: tuple[str, ...]
    #: Programs of the graph that became kernels.
    programs: int


def package(
    model: Any,
    path: str | os.PathLike[str],
    example_inputs: Sequence[Any] = (),
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    targets: Sequence[str] = ("host",),
    client: Client | None = None,
    options: Options | None = None,
    bound: Literal["weights"] | None = None,
) -> Packaged:
    """Write a model to one file that ``load`` runs elsewhere, without a compiler and without a service.

    ``model``: a ``torch.export.ExportedProgram``, or a ``torch.nn.Module``, which is exported with the
    example arguments and ``dynamic_shapes`` as ``torch.export.export`` takes them. ``targets``: machines that
    the file has kernels for. ``bound``: as for ``load``. The file appears whole, in place of one that was
    there.

    Raises ``ArgumentError`` for a graph that has no form in a file, and what ``Client.compile`` and
    ``Client.export_bundle`` raise.
    """
    if isinstance(targets, str) or not targets:
        raise ArgumentError(f"targets is {targets!r}; use a tuple of names, such as ('x86-64-v3',)")
    exported = _exported(model, example_inputs, example_kwargs, dynamic_shapes)
    options = replace(options or Options(), compatible_targets=False)
    names = tuple(dict.fromkeys(str(parse_target(name)) for name in targets))
    settings = [replace(settings_of(name, options, True, bound), warm_start=False) for name in names]
    sources = [KernelSource(each, client) for each in settings]
    compile = _for_all(sources[0].client, names, options)
    graph, _ = lower(exported, compile, sources[0].rejected, settings[0])
    interface, state = interface_of(exported), state_of(exported)
    tensors, keys = _tensors(state)
    try:
        body = encode_package(interface, graph, state, keys, names, options)
    except NotRecordable as error:
        raise ArgumentError(f"the exported program has no form in a file: {error}") from error
    kernels, signer = _bundle(sources[0].client, graph, names) if graph.programs else (b"", "")
    file = Path(path)
    parts = [(GRAPH, [body]), (WEIGHTS, encode_tensors(tensors)), (KERNELS, [kernels])]
    digest = write_package(file, parts).hex()
    return Packaged(str(file), file.stat().st_size, digest, signer, names, len(graph.programs))


def _exported(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any) -> Any:
    if isinstance(model, torch.export.ExportedProgram):
        if args or kwargs or dynamic_shapes:
            raise ArgumentError("an exported program has its arguments already: pass none")
        return model
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(
            f"package takes a torch.nn.Module or a torch.export.ExportedProgram, not a {type(model).__name__}"
        )
    return torch.export.export(model, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes)


def _for_all(client: Client, targets: Sequence[str], options: Options) -> Callable[[Sequence[Program]], Any]:
    """Compiles programs for all targets. The kernels are not called here: targets may be other machines."""

    def compile(programs: Sequence[Program]) -> list[Callable[[list[Any]], Sequence[Any]]]:
        for target in targets:
            for program in programs:
                exact = replace(options, bound=program.bound)
                client.compile(program.text, "torch", target, dynamic=program.dynamic, options=exact)
        return [_not_called] * len(programs)

    return compile


def _not_called(_: list[Any]) -> Sequence[Any]:
    raise ArgumentError("a kernel of a package is called after the package was loaded")


def _tensors(state: Sequence[StateTensor]) -> tuple[dict[str, Any], dict[int, str]]:
    """Each tensor once, by the first of its names."""
    keys: dict[int, str] = {}
    for each in state:
        keys.setdefault(id(each.value), each.name)
    return {keys[id(each.value)]: each.value for each in state}, keys


def _bundle(client: Client, graph: Graph, targets: Sequence[str]) -> tuple[bytes, str]:
    """A bundle of the kernels of the graph's programs, and who signed it."""
    with tempfile.TemporaryDirectory(prefix="kcache-") as directory:
        file = Path(directory) / KERNELS
        client.export_bundle(file, programs=graph.program_digests, targets=targets)
        with open_bundle(file) as bundle:
            return file.read_bytes(), bundle.signer
