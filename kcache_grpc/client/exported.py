"""Programs as ``jax.export.Exported``, told by their type: JAX is the caller's, never imported for him."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from kcache_grpc.client.locations import strip_locations
from kcache_grpc.client.shardings import without_shardings
from kcache_grpc.errors import ArgumentError, UnsupportedOp

#: MLIR bytecode (magic, format version) whose producer is StableHLO's portable form.
_PORTABLE = re.compile(rb"ML\xefR.StableHLO_v(\d+\.\d+\.\d+)\0", re.DOTALL)


def portable_artifact(exported: Any) -> bytes:
    """The module as a portable artifact, without locations where JAX's own MLIR can take them out.

    A kernel of it takes the module's arguments: flattened, without those that the export dropped as unused.
    Raises ``ArgumentError`` for several devices or platforms, ``UnsupportedOp`` for ops that need them.
    """
    if exported.nr_devices != 1:
        raise ArgumentError(f"the program was exported for {exported.nr_devices} devices; kernels run on one")
    if len(exported.platforms) != 1:
        names = ", ".join(exported.platforms)
        raise ArgumentError(f"the program was exported for {names}; export it for one platform")
    body = bytes(exported.mlir_module_serialized)
    version = _PORTABLE.match(body)
    return body if version is None else _without_locations(exported, version[1].decode()) or body


def _without_locations(exported: Any, version: str) -> bytes | None:
    """The same artifact from the module's text without locations; ``None`` where this JAX cannot."""
    try:
        dialect: Any = import_module("jaxlib.mlir.dialects.stablehlo")
        text = strip_locations(without_shardings(exported.mlir_module()).encode())
        return bytes(dialect.serialize_portable_artifact_str(text, version))
    except UnsupportedOp:
        raise
    except Exception:  # noqa: BLE001  (untyped code of another project; locations cost a hit, not the program)
        return None
