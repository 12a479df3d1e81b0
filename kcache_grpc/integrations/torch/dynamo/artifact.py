"""Graphs compiled ahead of time: ``torch.compile(...).aot_compile`` saves them as records, without weights.

PyTorch pickles its own part of such a file, guards and bytecode; that of kcache is UTF-8 JSON: the settings,
a record, and the SHA-256 of both. Loading gets kernels as the settings say: from the disk, a bundle or the
service.

``torch._dynamo.config.caching_precompile`` has graphs in the files that PyTorch writes of Dynamo's work.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from kcache_grpc.errors import ArgumentError, IntegrityError
from kcache_grpc.integrations.torch.dynamo.aot.json_codec import InvalidRecord
from kcache_grpc.integrations.torch.dynamo.kernels import KernelSource
from kcache_grpc.integrations.torch.dynamo.lowering.plan import executable
from kcache_grpc.integrations.torch.dynamo.record import Record, decode_record
from kcache_grpc.integrations.torch.dynamo.settings import Settings

_types: Any = import_module("torch._dynamo.aot_compile_types")

_FORMAT = 2
_context: Any = import_module("torch._dynamo.precompile_context")


class CompiledGraph(_types.SerializableCallable):
    """A compiled graph with its record. ``body``: ``None`` where the graph has none."""

    def __init__(self, run: Callable[..., Any], body: bytes | None, settings: Settings) -> None:
        self._run = run
        self._body = body
        self._settings = settings

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the graph, for its inputs as positional arguments."""
        return self._run(*args, **kwargs)

    @classmethod
    def serialize_compile_artifacts(cls, fn: CompiledGraph) -> bytes:
        """The settings and the record. Raises ``ArgumentError`` for a graph without a record."""
        if fn._body is None:
            raise ArgumentError(
                "the graph was compiled, and cannot be saved: it has no record (TORCH_LOGS=kcache says why)"
            )
        return encode_graph(fn._body, fn._settings)

    @classmethod
    def deserialize_compile_artifacts(cls, data: bytes) -> CompiledGraph:
        """The graph with its kernels.

        Raises ``IntegrityError`` for other bytes, ``ArgumentError`` where this machine cannot run the
        kernels, and what ``Client.compile`` raises.
        """
        body, record, settings = _decode(data)
        source = KernelSource(settings)
        runners = {kind: executable(plan, source.load(plan.programs)) for kind, plan in record.plans.items()}
        # Dynamo's guards, which PyTorch saves, include those of the record.
        result = dataclasses.replace(record.result, guards=None)
        forward = runners.get("inference") or runners["forward"]
        return cls(result.wrap(forward, runners.get("backward"), ()), body, settings)


def compile_ahead_of_time(
    graph_module: Any, example_inputs: Sequence[Any], settings: Settings
) -> CompiledGraph:
    """The graph as a callable that PyTorch can save. Raises whatever fails: a saved graph has to be whole."""
    # Imports what loading does not need.
    from kcache_grpc.integrations.torch.dynamo.trace import Trace

    trace = Trace(graph_module, example_inputs, settings)
    run = trace.function()
    return CompiledGraph(run, trace.record(), settings)


def encode_graph(body: bytes, settings: Settings) -> bytes:
    """A record and the settings of its kernels, as ``CompiledGraph`` reads them. Raises ``ArgumentError``."""
    if decode_record(body).result.aot_config.num_params_buffers:
        raise ArgumentError("the graph cannot be saved: it holds parameters itself")
    graph = {"settings": dataclasses.asdict(settings), "record": base64.b64encode(body).decode()}
    return _json({"format": _FORMAT, "sha256": hashlib.sha256(_json(graph)).hexdigest(), "graph": graph})


def _decode(data: bytes) -> tuple[bytes, Record, Settings]:
    """The record, as bytes and decoded, and the settings. Raises ``IntegrityError``."""
    try:
        values = json.loads(data)
        if values["format"] != _FORMAT:
            raise ValueError(f"format {values['format']!r}")
        graph = values["graph"]
        if hashlib.sha256(_json(graph)).hexdigest() != values["sha256"]:
            raise ValueError("it does not have its digest")
        body = base64.b64decode(graph["record"], validate=True)
        return body, decode_record(body), Settings(**graph["settings"])
    except (InvalidRecord, KeyError, TypeError, ValueError) as error:
        raise IntegrityError(f"a graph compiled ahead of time cannot be read: {error}") from error


def _json(values: dict[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


class PrecompiledGraph(_context.BackendCacheArtifact):
    """A graph of which PyTorch pickles ``key``, Dynamo's name of it, and ``content``, UTF-8 JSON.

    Unpickling gets the kernels: if that fails PyTorch traces the function again, and if
    ``after_deserialization`` failed the program would.
    """

    def __getstate__(self) -> tuple[str, bytes]:
        return self.key, self.content

    def __setstate__(self, state: tuple[str, bytes]) -> None:
        self.key, self.content = state
        self._graph = CompiledGraph.deserialize_compile_artifacts(self.content)

    def __deepcopy__(self, memo: dict[int, Any]) -> PrecompiledGraph:
        """Itself: PyTorch copies what it keeps, and nothing changes here."""
        return self

    def after_deserialization(self) -> CompiledGraph:
        """The graph of an object that was unpickled."""
        return self._graph


def keep_precompiled(graph_module: Any, body: bytes, settings: Settings) -> None:
    """Hand a record to PyTorch, for ``torch.compiler.save_cache_artifacts``. Raises ``ArgumentError``."""
    # Dynamo names only graphs of functions that it keeps.
    name = getattr(graph_module, "_backend_id", None)
    if name is not None:
        _context.PrecompileContext.record_artifact(PrecompiledGraph(name, encode_graph(body, settings)))
