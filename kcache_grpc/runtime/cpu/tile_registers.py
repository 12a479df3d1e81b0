"""Linux's permission for a process to use the tile registers of AMX.

Without it the first tile instruction of a process raises SIGILL. The permission holds for all threads and is
inherited by forked children. https://docs.kernel.org/arch/x86/xstate.html
"""

from __future__ import annotations

import ctypes
import platform
from functools import lru_cache

#: Number of ``arch_prctl`` on x86-64, its request, and the component of the state that holds tile data.
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@lru_cache(maxsize=1)
def may_use_tiles() -> bool:
    """Whether this process may use tile registers: asks Linux once. False on other processors."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        syscall = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return False
    syscall.restype = ctypes.c_long
    arguments = (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return syscall(*(ctypes.c_long(argument) for argument in arguments)) == 0
