"""Products of bf16: the target with the instructions of this machine, and Linux's permission for AMX."""

from __future__ import annotations

import ctypes
import platform
from functools import lru_cache

from kcache_grpc.model.target import host_flags, host_target

#: Number of ``arch_prctl`` on x86-64, its request, and the component of the state that holds tile data.
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
#: Flags of /proc/cpuinfo that the named CPUs add to x86-64-v4.
_ZNVER4 = frozenset(
    {
        *("avx512_bf16", "avx512_bitalg", "avx512_vbmi2", "avx512_vnni", "avx512_vpopcntdq", "avx512ifma"),
        *("avx512vbmi", "gfni", "vaes", "vpclmulqdq"),
    }
)
_SAPPHIRE_RAPIDS = _ZNVER4 | {"amx_bf16", "amx_tile", "avx512_fp16", "avx_vnni"}


def bf16_target() -> str:
    """The target for programs with products of bf16 on this machine: "host" if no other one is faster.

    "sapphirerapids" where AMX may be used, "znver4" on later AMD processors. Intel's processors without AMX
    multiply pairs of bf16 no faster than f32. Raises ``ArgumentError`` as ``host_target``.
    """
    if str(host_target()) != "x86-64-v4":
        return "host"
    flags = host_flags()
    if flags >= _SAPPHIRE_RAPIDS and may_use_tiles():
        return "sapphirerapids"
    return "znver4" if flags >= _ZNVER4 and "amx_bf16" not in flags else "host"


@lru_cache(maxsize=1)
def may_use_tiles() -> bool:
    """Whether this process may use the tile registers of AMX: asks Linux once.

    Without permission the first tile instruction of a process raises SIGILL. It holds for all threads, and
    forked children inherit it. https://docs.kernel.org/arch/x86/xstate.html
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        syscall = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return False
    syscall.restype = ctypes.c_long
    arguments = (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return syscall(*(ctypes.c_long(argument) for argument in arguments)) == 0
