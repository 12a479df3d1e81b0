"""The kcache compiler: a program becomes a canonical spec, a spec becomes a shared object. A pure library.

    canonicalize(program, format)  ->  Canonical      frontends/, canonical/
    compile_spec(spec_text, ...)   ->  CompiledKernel schedule/, codegen/, package/
    toolchain(), gpu_toolchain()   ->  the compiler fingerprints

Importing this module loads neither MLIR nor LLVM: both are loaded by the first call that needs them.
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
    """The caller does not follow stages."""


def canonicalize(
    program: bytes | GraphProgram,
    format: str,
    numerics: str = "default",
    limits: Limits = _DEFAULT_LIMITS,
    on_stage: Callable[[str], None] = _ignore,
) -> Canonical:
    """Return the canonical form of a program of ``format``, one of ``frontends.FORMATS``.

    A program is bytes; of format ``graph`` it is the ``GraphProgram`` that its message was decoded into.

    A pure function of its arguments. ``on_stage`` is told when native code begins to read bytes ("read") and
    when it has ("canonicalize"). Raises ``InvalidProgram``, ``UnsupportedOp`` or ``LimitExceeded``.
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
    """Compile a spec for ``target``; ``on_stage`` hears the name of each stage as it begins.

    ``libraries`` keeps what kernels share, the code of contractions, between processes; it changes no byte.

    Raises ``UnsupportedOp`` or ``CompileFailed``.
    """
    from kcache_compiler.compile import compile_spec as implementation

    return implementation(spec_text, arg_spec, target, options, on_stage, libraries)


def toolchain() -> tuple[tuple[str, str], ...]:
    """Return the ordered (ingredient, value) pairs of the compiler fingerprint for CPU targets."""
    from kcache_compiler.fingerprint import toolchain as implementation

    return implementation()


def gpu_toolchain() -> tuple[tuple[str, str], ...]:
    """Return the same for GPU targets."""
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
    "toolchain",
]
