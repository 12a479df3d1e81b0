"""Loading a shared object from bytes, and what of the machine its instructions need.

``dlopen`` knows libraries by path and gives an old one back when a path comes again, so a
descriptor's path is spelled in its own way each time.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from kcache_grpc.errors import ArgumentError, IntegrityError, KcacheError
from kcache_grpc.model.gpu.target import GpuTarget
from kcache_grpc.model.manifest import Manifest
from kcache_grpc.model.sizes.guard import parse_guard
from kcache_grpc.model.target import host_flags, host_target, missing_features
from kcache_grpc.runtime.cpu._abi import Library, ffi

#: Versions of the C ABI that this runtime calls.
ABIS = (1, 2)
#: What ``kcache_run`` returns when sizes that the program has equal are not (docs/reference/c-abi.md).
SIZES_DISAGREE = 1

#: The feature, by LLVM's name, that a process may use with Linux's permission only.
TILES = "amx-tile"

_serial = itertools.count(1)
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


def require_runnable(manifest: Manifest) -> None:
    """Raises ``ArgumentError``, naming what lacks, unless this machine can run the kernel."""
    readable = "its artifacts can be read, but not run"
    if not sys.platform.startswith("linux"):
        raise ArgumentError(f"kernels run on Linux only, this is {sys.platform}; {readable}")
    require_understood(manifest)
    if isinstance(manifest.target, GpuTarget):
        raise ArgumentError(f"a kernel for {manifest.target} has no shared object")
    missing = missing_features(manifest.target.triple, manifest.required_isa)
    if missing:
        raise ArgumentError(
            f"this machine cannot run a kernel for {manifest.target}, "
            f"it lacks {', '.join(missing)}; {readable}",
            target=str(manifest.target),
            missing=" ".join(missing),
        )
    if TILES in manifest.required_isa and not may_use_tiles():
        raise ArgumentError(
            f"Linux does not permit this process to use AMX, which the kernel for {manifest.target} needs; "
            "use the target 'x86-64-v4'",
            target=str(manifest.target),
            missing=TILES,
        )


def require_understood(manifest: Manifest) -> None:
    """Raises ``ArgumentError`` for an ABI or a guard of a later version."""
    if manifest.abi not in ABIS:
        known = ", ".join(map(str, ABIS))
        raise ArgumentError(
            f"the kernel has version {manifest.abi} of the C ABI, this runtime calls {known}; "
            "install a kcache-grpc as new as the server"
        )
    unknown = _unknown_guard(manifest)
    if unknown:
        raise ArgumentError(
            f"the kernel has the guard {manifest.guard!r}, which this runtime cannot evaluate ({unknown}); "
            "install a kcache-grpc as new as the server"
        )


def _unknown_guard(manifest: Manifest) -> str:
    """Why the guard cannot be evaluated; empty when it can."""
    try:
        guard = parse_guard(manifest.guard)
    except (IntegrityError, ArgumentError) as error:
        return error.message
    unknown = guard.symbols - {symbol.name for symbol in manifest.symbols}
    return f"it names {', '.join(sorted(unknown))}" if unknown else ""


def load_library(shared_object: bytes, name: str, abi: int) -> Library:
    """``dlopen`` of bytes that were verified before; ``name`` shows up in debuggers and /proc/self/maps.

    Raises ``IntegrityError`` when they are not a kernel of this ABI.
    """
    try:
        descriptor = os.memfd_create(f"kcache-{name}")
    except OSError:
        return _load_from_file(shared_object, abi)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        _write_all(descriptor, shared_object)
        return _open(unique_path(file.fileno()), abi)


def _load_from_file(shared_object: bytes, abi: int) -> Library:
    """For systems that forbid anonymous files: a file in a directory of our own, gone once it is mapped."""
    with tempfile.TemporaryDirectory(prefix="kcache-") as directory:
        path = Path(directory) / "kernel.so"
        path.write_bytes(shared_object)
        return _open(str(path), abi)


def unique_path(descriptor: int) -> str:
    """A path of an open descriptor that no earlier call in this process has returned.

    The number of the call is spelled in the path, ``/.`` for a 0 bit and ``//.`` for a 1 bit: all spellings
    name the same directory.
    """
    bits = f"{next(_serial):b}"
    return f"/proc/self/fd{''.join('//.' if bit == '1' else '/.' for bit in bits)}/{descriptor}"


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _open(path: str, abi: int) -> Library:
    try:
        library = ffi.dlopen(path, ffi.RTLD_NOW | ffi.RTLD_LOCAL)
    except OSError as error:
        reason = str(error).replace(path, "the kernel")
        raise IntegrityError(f"the kernel's shared object cannot be loaded: {reason}") from error
    try:
        version = library.kcache_abi()
        _ = library.kcache_run
    except ffi.error as error:
        raise IntegrityError(f"the kernel's shared object has no such entry: {error}") from error
    if version != abi:
        raise IntegrityError(f"the kernel says ABI {version}, its manifest {abi}")
    return library


def error_of(manifest: Manifest, code: int, symbols: Mapping[str, int]) -> KcacheError:
    """The error for what ``kcache_run`` returned for these sizes of the symbols."""
    if code == SIZES_DISAGREE and symbols:
        sizes = ", ".join(
            f"axis {symbol.axis} of argument {symbol.arg} is {symbols[symbol.name]}"
            for symbol in manifest.symbols
        )
        return ArgumentError(
            f"the sizes of the arguments do not fit each other or the program: {sizes}", code=str(code)
        )
    meaning = dict(manifest.error_codes).get(code, "a code that its manifest does not list")
    return KcacheError(f"the kernel stopped with code {code}: {meaning}", code=str(code))


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
