"""``torch._dynamo.config.caching_precompile``: graphs in the files that PyTorch writes of Dynamo's work."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kcache_grpc.integrations.torch.dynamo.artifact import CompiledGraph, encode_graph
from kcache_grpc.integrations.torch.dynamo.settings import Settings

_context: Any = import_module("torch._dynamo.precompile_context")


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
