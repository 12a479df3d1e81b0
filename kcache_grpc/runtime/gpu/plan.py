"""What calls of a kernel at given sizes on one device have in common.

Apart from ``packed_launches``, which replay packs ship without manifests.
"""

from __future__ import annotations

from dataclasses import dataclass

from kcache_grpc.model.manifest import Manifest
from kcache_grpc.runtime.cpu.plan import Sizes
from kcache_grpc.runtime.gpu.device import Device
from kcache_grpc.runtime.gpu.driver import Handle
from kcache_grpc.runtime.gpu.packed_launches import Packed


@dataclass(frozen=True, eq=False)
class Plan:
    """A kernel at given sizes on one device: what is the same in every call."""

    device: Device
    manifest: Manifest
    packed: Packed
    #: Addresses of the lifted constants.
    constants: tuple[Handle, ...]
    input_shapes: Sizes
    output_shapes: Sizes
    workspace_bytes: int
