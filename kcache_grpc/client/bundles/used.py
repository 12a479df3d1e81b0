"""Records the programs that a client has used, which an export without names contains."""

from __future__ import annotations

from kcache_grpc.client.trust.verification import KernelRequest
from kcache_grpc.runtime import Kernel

#: Programs and kernels that are exported without being named, each.
MOST_USED = 10_000


class Used:
    """Programs and kernels that a client has used, by digest."""

    def __init__(self) -> None:
        self.programs: dict[bytes, None] = {}
        self.kernels: dict[bytes, None] = {}

    def add(self, request: KernelRequest, kernel: Kernel) -> None:
        """A kernel was handed out. Programs that were its evidence belong to it."""
        self.kernels[kernel.manifest.kernel_digest] = None
        for digest in (request.program.digest, *request.shapes.evidence):
            self.programs[digest] = None
