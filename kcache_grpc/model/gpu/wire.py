"""Launches of GPU kernels between the model and protobuf."""

from __future__ import annotations

from kcache_grpc._proto.kcache.v1 import manifest_pb2
from kcache_grpc.errors import IntegrityError
from kcache_grpc.model.gpu.launch import GpuLaunchSpec, GpuResources


def gpu_launch_to_proto(launch: GpuLaunchSpec) -> manifest_pb2.GpuLaunchSpec:
    """To the wire."""
    resources = launch.resources
    return manifest_pb2.GpuLaunchSpec(
        name=launch.name,
        ops=launch.ops,
        entry=launch.entry,
        when=launch.when,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=launch.shared_bytes,
        params=launch.params,
        resources=resources
        and manifest_pb2.GpuResources(
            registers=resources.registers,
            spill_bytes=resources.spill_bytes,
            static_shared_bytes=resources.static_shared,
        ),
    )


def gpu_launch_from_proto(message: manifest_pb2.GpuLaunchSpec) -> GpuLaunchSpec:
    """From the wire. Raises ``IntegrityError`` for a grid or block without three dimensions."""
    if len(message.grid) != 3 or len(message.block) != 3:
        raise IntegrityError(f"launch {message.name!r}: grid and block have three dimensions each")
    resources = message.resources
    grid_x, grid_y, grid_z = message.grid
    block_x, block_y, block_z = message.block
    return GpuLaunchSpec(
        name=message.name,
        ops=tuple(message.ops),
        entry=message.entry,
        when=message.when,
        grid=(grid_x, grid_y, grid_z),
        block=(block_x, block_y, block_z),
        shared_bytes=message.shared_bytes,
        params=tuple(message.params),
        resources=GpuResources(resources.registers, resources.spill_bytes, resources.static_shared_bytes)
        if message.HasField("resources")
        else None,
    )
