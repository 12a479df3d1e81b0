"""The kcache compiler: a program becomes a canonical spec, a spec becomes a shared object. A pure library.

    canonicalize(program, format)  ->  Canonical        frontends/, spec/
    compile_spec(spec_text, ...)   ->  CompiledKernel   shapes/, passes/, schedule/, lower/, llvm/
    precompile_libraries(target, ...) ->  int              lower/, llvm/
    toolchain(), gpu_toolchain()   ->  the toolchain fingerprints

Importing this module loads neither MLIR nor LLVM: the first call that needs them does.
"""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.errors import CompileFailed, CompilerError, InvalidProgram, LimitExceeded, UnsupportedOp
from kcache_compiler.frontends.graph.program import GraphProgram
from kcache_compiler.frontends.limits import Limits
from kcache_compiler.types import (
    ArgSpec,
    Canonical,
    CompiledKernel,
    CompileOptions,
    KernelInterface,
    Launch,
    LibraryCache,
    LiftedConstant,
    Symbol,
    TensorType,
)

_DEFAULT_LIMITS = Limits()


def _ignore(stage: str) -> None:
    """The default of ``on_stage``: do nothing."""


def canonicalize(
    program: bytes | GraphProgram,
    format: str,
    numerics: str = "default",
    limits: Limits = _DEFAULT_LIMITS,
    on_stage: Callable[[str], None] = _ignore,
) -> Canonical:
    """Return the canonical form of a program of ``format``, one of ``frontends.program.FORMATS``.

    A program is bytes; of format ``graph``, it is a decoded ``GraphProgram``. The result depends on the
    arguments only. ``on_stage`` is called when native code begins to parse ("read"), and after that
    ("canonicalize").

    Raises ``InvalidProgram``, ``UnsupportedOp`` or ``LimitExceeded``.
    """
    from kcache_compiler.spec.canonicalize import canonicalize as implementation

    return implementation(program, format, numerics, limits, on_stage=on_stage)


def compile_spec(
    spec_text: str,
    arg_spec: ArgSpec,
    target: str,
    options: CompileOptions,
    on_stage: Callable[[str], None],
    libraries: LibraryCache | None = None,
) -> CompiledKernel:
    """Compile a spec for ``target``; ``on_stage`` is called with the name of each stage as it begins.

    ``libraries`` stores code that kernels share, that of contractions; it changes no byte of a kernel.

    Raises ``UnsupportedOp``, ``LimitExceeded`` or ``CompileFailed``, and ``InvalidProgram`` if ``arg_spec``
    contradicts the spec.
    """
    from kcache_compiler.compile import compile_spec as implementation

    return implementation(spec_text, arg_spec, target, options, on_stage, libraries)


def precompile_libraries(target: str, libraries: LibraryCache) -> int:
    """Compile the libraries that most kernels for ``target`` are linked with, where ``libraries`` lacks them.

    Returns how many were compiled: 0 for GPUs, whose kernels have none. Changes no byte of a kernel. Raises
    ``CompileFailed`` for an unknown target.
    """
    from kcache_compiler.llvm.target import Device, target_named
    from kcache_compiler.lower.libraries import precompile_libraries as implementation

    machine = target_named(target)
    return 0 if isinstance(machine, Device) else implementation(machine, libraries)


def toolchain() -> tuple[tuple[str, str], ...]:
    """Return the toolchain fingerprint of CPU targets: ordered (ingredient, value) pairs."""
    from kcache_compiler.fingerprint import toolchain as implementation

    return implementation()


def gpu_toolchain() -> tuple[tuple[str, str], ...]:
    """Return the toolchain fingerprint of GPU targets: ordered (ingredient, value) pairs."""
    from kcache_compiler.fingerprint import gpu_toolchain as implementation

    return implementation()


__all__ = [
    "ArgSpec",
    "Canonical",
    "CompileFailed",
    "CompileOptions",
    "CompiledKernel",
    "CompilerError",
    "GraphProgram",
    "InvalidProgram",
    "KernelInterface",
    "Launch",
    "LibraryCache",
    "LiftedConstant",
    "LimitExceeded",
    "Limits",
    "Symbol",
    "TensorType",
    "UnsupportedOp",
    "canonicalize",
    "compile_spec",
    "gpu_toolchain",
    "precompile_libraries",
    "toolchain",
]
