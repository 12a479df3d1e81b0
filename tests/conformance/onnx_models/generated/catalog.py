"""Which models there are: operators by the opsets that changed them, a model of a seed and a number."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Collection

import numpy as np
import onnx

from kcache_compiler.frontends.onnx.checks import OLDEST_OPSET
from tests.conformance.onnx_models.generated.draw import DRAWERS, Draw, Made, Undrawn
from tests.conformance.onnx_models.generated.nodes import (
    attending,
    choosing,
    contracted,
    control,
    elementwise,
    quantized,
    recurrent,
    reducing,
    resizing,
    shaping,
    signals,
    windows,
)

__all__ = ["Undrawn", "model", "spans"]

#: Modules that register what they draw.
MODULES = (
    *(attending, choosing, contracted, control, elementwise, quantized, recurrent, reducing, shaping),
    *(resizing, signals, windows),
)


def spans(ops: Collection[str] = ()) -> list[tuple[str, str]]:
    """Operator and range of opsets, ``7-12``, in which one version of it holds."""
    newest = onnx.defs.onnx_opset_version()
    pairs: list[tuple[str, str]] = []
    for op in sorted(ops or DRAWERS):
        since = sorted(version for version, deprecated in _versions().get(op, ()) if not deprecated)
        last = min((version for version in _gone(op) if version > since[-1]), default=newest + 1) - 1
        for start, end in zip(since, [*(version - 1 for version in since[1:]), last], strict=True):
            if end >= OLDEST_OPSET:
                pairs.append((op, f"{max(start, OLDEST_OPSET)}-{end}"))
    return pairs


def _gone(op: str) -> list[int]:
    """Opsets from which on there is no such operator."""
    return [version for version, deprecated in _versions().get(op, ()) if deprecated]


@functools.cache
def _versions() -> dict[str, list[tuple[int, bool]]]:
    """Of each operator, the first opsets of its versions, and whether each is deprecated.

    ONNX copies all its schemas for each question.
    """
    versions: dict[str, list[tuple[int, bool]]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            versions.setdefault(schema.name, []).append((schema.since_version, schema.deprecated))
    return versions


def model(op: str, span: str, seed: int, number: int) -> Made:
    """The model; raises ``Undrawn`` where this version has no types that are drawn."""
    random = np.random.default_rng([zlib.crc32(f"{op} {span}".encode()), seed, number])
    first, last = map(int, span.split("-"))
    draw = Draw(op, int(random.integers(first, last + 1)), random)
    DRAWERS[op](draw)
    return draw.model()
