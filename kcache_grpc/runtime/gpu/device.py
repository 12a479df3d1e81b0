"""The GPUs of this process: their contexts, what they are and what they allow."""

from __future__ import annotations

from functools import lru_cache

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.gpu.target import GpuTarget, newest_ptx, oldest_driver, text_of
from kcache_grpc.runtime.gpu.driver import Driver, open_driver

_READABLE = "its artifacts can be read, but not run"


class Device:
    """One GPU; ``context`` is its primary context, which frameworks share."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        handle = driver.device(ordinal)
        self.driver = driver
        self.ordinal = ordinal
        self.name = driver.name(handle)
        self.context = driver.primary_context(handle)
        self.capability = (
            driver.attribute(handle, "COMPUTE_CAPABILITY_MAJOR"),
            driver.attribute(handle, "COMPUTE_CAPABILITY_MINOR"),
        )
        #: Bytes of shared memory: of a block that does not ask, and the most that one may ask for.
        self.shared_default = driver.attribute(handle, "MAX_SHARED_MEMORY_PER_BLOCK")
        self.shared_most = driver.attribute(handle, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")

    def require(self, target: GpuTarget) -> None:
        """Raises ``ArgumentError``, saying what lacks, unless kernels for ``target`` run here."""
        if not target.runs_on(self.capability):
            raise ArgumentError(
                f"a kernel for {target} needs {target.needs}; cuda:{self.ordinal} has "
                f"{text_of(self.capability)}; compile for a target that it runs, {_READABLE}",
                target=str(target),
            )

    def takes_ptx(self, target: GpuTarget) -> bool:
        """Whether the driver compiles the target's PTX version."""
        newest = newest_ptx(self.driver.version)
        return newest is not None and newest >= target.ptx

    def require_ptx(self, target: GpuTarget) -> None:
        """Raises ``ArgumentError`` for a driver that is too old."""
        if not self.takes_ptx(target):
            needed, actual = text_of(oldest_driver(target.ptx)), text_of(self.driver.version)
            raise ArgumentError(
                f"a kernel for {target} is PTX {target.ptx_version}, which drivers from CUDA {needed} on "
                f"compile; this one is of CUDA {actual}; update the driver, or compile for an older target",
                target=str(target),
            )


@lru_cache(maxsize=64)
def device_numbered(ordinal: int) -> Device:
    """The GPU of a number. Raises ``ArgumentError`` where there is none."""
    driver = open_driver()
    count = driver.device_count()
    if not 0 <= ordinal < count:
        raise ArgumentError(f"there is no GPU {ordinal}: the driver finds {count}; {_READABLE}")
    return Device(driver, ordinal)
