"""A pipeline is a tuple of stages, a stage a small frozen value with a name and a text.

A ``Unit`` is what is being compiled: the module that the stages rewrite, and what they learn
about it on the way. The texts of all stages together are an ingredient of the toolchain, so a
stage says in its text everything that may change bytes and is not in the declared code version.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kcache_compiler.errors import CompileFailed, CompilerError, UnsupportedOp
from kcache_compiler.llvm.ptxas import Assembly
from kcache_compiler.llvm.target import Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.schedule.gemm_tiles import Form
from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.schedule.subkernel import Part
from kcache_compiler.shapes.formula import Formula
from kcache_compiler.shapes.recovery import RecoveredSizes
from kcache_compiler.types import CompileOptions, GpuLaunch, Launch, LibraryCache, Symbol, TensorType


@dataclass
class Unit:
    """One kernel on its way from a module text to bytes; stages fill it in, in pipeline order."""

    source: str
    n_inputs: int
    target: Target
    options: CompileOptions
    #: Where compiled libraries are kept between processes; can change no byte.
    libraries: LibraryCache | None = None
    module: mlir.Module = field(init=False, repr=False, compare=False)
    inputs: tuple[TensorType, ...] = ()
    constants: tuple[TensorType, ...] = ()
    outputs: tuple[TensorType, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    #: Of inputs and constants, and of outputs, by position: elements of 8 bits and fewer that bytes hold.
    small_inputs: dict[int, str] = field(default_factory=dict[int, str])
    small_outputs: dict[int, str] = field(default_factory=dict[int, str])
    size_checks: list[bool] = field(default_factory=list[bool])
    #: Sizes of the arguments of ``main`` where some are open; without, each open axis is a symbol.
    given: tuple[tuple[Formula, ...], ...] = ()
    #: Modules are verified: not those of a program's further samples, which differ from the first in numbers.
    verifies: bool = True
    #: What sizes of the module stand for, when it is lowered at samples of its open sizes.
    codes: RecoveredSizes = field(default_factory=RecoveredSizes)
    #: Values of the last arguments of ``main``, i64 scalars that no caller passes.
    extents: tuple[Formula, ...] = ()
    #: What must hold of the open sizes.
    bounds: tuple[Check, ...] = ()
    #: Calls of math functions are left in the module.
    calls_math: bool = False
    launches: list[Launch] = field(default_factory=list[Launch])
    workspace: Formula = 0
    #: Of the workspace, the bytes of each worker.
    scratch: Formula = 0
    #: Of a kernel for a GPU: its launches, and comparisons that must hold before the first.
    gpu_launches: list[GpuLaunch] = field(default_factory=list[GpuLaunch])
    checks: tuple[str, ...] = ()
    #: It waits for the PTX.
    assembler: Assembly | None = None
    #: Forms of contractions whose libraries are linked beside the kernel.
    gemm_forms: list[Form] = field(default_factory=list[Form])
    #: Kernels inside of it, by name.
    parts: dict[str, Part] = field(default_factory=dict[str, Part])
    llvm_ir: str = ""
    bitcode: bytes = b""
    object_code: bytes = b""
    assembly: str = ""
    shared_object: bytes = b""


@dataclass(frozen=True)
class Passes:
    """A stage that is a pass pipeline of the toolchain.

    When ``refuses``, what the toolchain does not manage is an operation without a lowering, not a
    failure of the stage: the program is valid. Where not ``between``, it is verified at its end only.
    """

    name: str
    pipeline: str
    refuses: bool = False
    between: bool = True

    @property
    def text(self) -> str:
        return self.pipeline

    def apply(self, unit: Unit) -> None:
        try:
            mlir.run_passes(unit.module, f"builtin.module({self.pipeline})", self.between, unit.verifies)
        except mlir.MLIRError as error:
            raise (_refusal(unit, error) if self.refuses else None) or error from None


def _refusal(unit: Unit, error: Exception) -> UnsupportedOp | None:
    """The operation of the program that a diagnostic of the toolchain stands at, refused."""
    source = mlir.parse(unit.source)  # operations that are walked do not keep their module
    for where, message in mlir.diagnostics_of(error):
        for operation in mlir.walk(source):
            name = mlir.name_of(operation)
            if name.startswith(("stablehlo.", "chlo.")) and mlir.location_of(operation) == where:
                return UnsupportedOp(name, f"its lowering fails: {message}", where)
    return None


@dataclass(frozen=True)
class Rewrite:
    """A stage of our own code; ``text`` states its parameters, its code is under ``CODE_VERSION``.

    What it makes is verified before a stage of another kind gets it, where it may be: ``verify``.
    """

    name: str
    function: Callable[[Unit], None]
    text: str = ""
    verify: bool = True

    def apply(self, unit: Unit) -> None:
        self.function(unit)


Stage = Passes | Rewrite


def describe(pipeline: tuple[Stage, ...]) -> str:
    """The pipeline as text: a line a stage."""
    return "".join(f"{stage.name}: {stage.text}\n" for stage in pipeline)


def verified_after(pipeline: tuple[Stage, ...]) -> set[str]:
    """The rewrites whose module is verified: the last of those between two pass pipelines.

    Verifying a long module takes as long as a rewrite, and what is wrong is still wrong some rewrites on.
    """
    following = [isinstance(stage, Rewrite) and stage.verify for stage in pipeline[1:]]
    return {
        stage.name
        for stage, goes_on in zip(pipeline, [*following, False], strict=True)
        if isinstance(stage, Rewrite) and stage.verify and not goes_on
    }


def run(pipeline: tuple[Stage, ...], unit: Unit, on_stage: Callable[[str], None]) -> dict[str, float]:
    """Apply every stage; returns seconds by stage. Raises ``CompileFailed`` with the stage's name."""
    seconds: dict[str, float] = {}
    verified = verified_after(pipeline)
    for stage in pipeline:
        on_stage(stage.name)
        start = time.perf_counter()
        try:
            stage.apply(unit)
            if unit.verifies and stage.name in verified:
                unit.module.operation.verify()
        except Exception as error:
            if unit.assembler is not None:
                unit.assembler.close()
            if isinstance(error, CompilerError):
                raise
            raise CompileFailed(stage.name, f"{type(error).__name__}: {error}") from error
        seconds[stage.name] = time.perf_counter() - start
    return seconds
