"""kcache: a graph goes in, a signed kernel comes out, and nothing is compiled twice.

    import kcache_grpc as kcache

    client = kcache.Client("host:port")
    kernel = client.compile(program)
    outputs = kernel(*arrays)

Everything but the errors is imported when it is first used, so that parts of this package, and the
server's processes among them, load nothing that they do not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kcache_grpc.errors import (
    ArgumentError,
    CacheError,
    CompileFailed,
    CompileTimeout,
    Conflict,
    IntegrityError,
    InvalidProgram,
    KcacheError,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unavailable,
    UnsupportedOp,
)

if TYPE_CHECKING:
    from kcache_grpc import aio
    from kcache_grpc.client.bundles.reports import BundleItem, ImportReport, PreloadReport
    from kcache_grpc.client.client import Client
    from kcache_grpc.client.progress import Stage
    from kcache_grpc.client.requests.assertions import PutAssertionResult, SourceAssertion
    from kcache_grpc.client.requests.audit import AuditEvent
    from kcache_grpc.client.requests.support import Support
    from kcache_grpc.client.tuning.timings import ScheduleTiming
    from kcache_grpc.client.tuning.tuner import Tuning
    from kcache_grpc.client.values import CanonicalGraph, KernelSummary, Saving, Spec, Stats
    from kcache_grpc.graph import Graph
    from kcache_grpc.local_files import KcacheWarning
    from kcache_grpc.model.bypass import BypassReason
    from kcache_grpc.model.explanation import Explanation
    from kcache_grpc.model.manifest import Manifest
    from kcache_grpc.model.options import Options
    from kcache_grpc.model.sizes.modes import Dim
    from kcache_grpc.runtime import Kernel
    from kcache_grpc.runtime.prepared.prepared_kernel import PreparedKernel

    __version__: str

__all__ = [
    "ArgumentError",
    "AuditEvent",
    "BundleItem",
    "BypassReason",
    "CacheError",
    "CanonicalGraph",
    "Client",
    "CompileFailed",
    "CompileTimeout",
    "Conflict",
    "Dim",
    "Explanation",
    "Graph",
    "ImportReport",
    "IntegrityError",
    "InvalidProgram",
    "KcacheError",
    "KcacheWarning",
    "Kernel",
    "KernelSummary",
    "Manifest",
    "NotFound",
    "Options",
    "PermissionDenied",
    "PreloadReport",
    "PreparedKernel",
    "PutAssertionResult",
    "ResourceExhausted",
    "Saving",
    "ScheduleTiming",
    "SourceAssertion",
    "Spec",
    "Stage",
    "Stats",
    "Support",
    "Tuning",
    "Unavailable",
    "UnsupportedOp",
    "__version__",
    "aio",
]

_HOMES = {
    "AuditEvent": "kcache_grpc.client.requests.audit",
    "BundleItem": "kcache_grpc.client.bundles.reports",
    "BypassReason": "kcache_grpc.model.bypass",
    "CanonicalGraph": "kcache_grpc.client.values",
    "Client": "kcache_grpc.client.client",
    "Dim": "kcache_grpc.model.sizes.modes",
    "Explanation": "kcache_grpc.model.explanation",
    "Support": "kcache_grpc.client.requests.support",
    "KcacheWarning": "kcache_grpc.local_files",
    "Graph": "kcache_grpc.graph",
    "ImportReport": "kcache_grpc.client.bundles.reports",
    "Kernel": "kcache_grpc.runtime",
    "KernelSummary": "kcache_grpc.client.values",
    "Manifest": "kcache_grpc.model.manifest",
    "Options": "kcache_grpc.model.options",
    "PreloadReport": "kcache_grpc.client.bundles.reports",
    "PreparedKernel": "kcache_grpc.runtime.prepared.prepared_kernel",
    "ScheduleTiming": "kcache_grpc.client.tuning.timings",
    "PutAssertionResult": "kcache_grpc.client.requests.assertions",
    "SourceAssertion": "kcache_grpc.client.requests.assertions",
    "Saving": "kcache_grpc.client.values",
    "Spec": "kcache_grpc.client.values",
    "Stage": "kcache_grpc.client.progress",
    "Stats": "kcache_grpc.client.values",
    "Tuning": "kcache_grpc.client.tuning.tuner",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name == "aio":
        value = import_module("kcache_grpc.aio")
    elif name == "__version__":
        value = import_module("kcache_grpc.client.config").package_version()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
