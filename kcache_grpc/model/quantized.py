"""Buffers whose integers stand for real numbers."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_grpc._proto.kcache.v1 import manifest_pb2
from kcache_grpc.model.wire import dtype_from_proto, dtype_to_proto


@dataclass(frozen=True)
class QuantizedBuffer:
    """What the integers of a buffer stand for; see ``protos/kcache/v1/manifest.proto``.

    ``real = (integer - zero_point) * scale``, with one scale and zero point, or one of each along ``axis``.
    """

    index: int
    output: bool
    expressed: str
    storage_min: int
    storage_max: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None


def quantized_to_proto(buffer: QuantizedBuffer) -> manifest_pb2.QuantizedBuffer:
    """To the wire."""
    return manifest_pb2.QuantizedBuffer(
        index=buffer.index,
        output=buffer.output,
        expressed=dtype_to_proto(buffer.expressed),
        storage_min=buffer.storage_min,
        storage_max=buffer.storage_max,
        scales=buffer.scales,
        zero_points=buffer.zero_points,
        axis=buffer.axis,
    )


def quantized_from_proto(message: manifest_pb2.QuantizedBuffer) -> QuantizedBuffer:
    """From the wire."""
    return QuantizedBuffer(
        index=message.index,
        output=message.output,
        expressed=dtype_from_proto(message.expressed),
        storage_min=message.storage_min,
        storage_max=message.storage_max,
        scales=tuple(message.scales),
        zero_points=tuple(message.zero_points),
        axis=message.axis if message.HasField("axis") else None,
    )
