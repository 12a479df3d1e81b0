"""Passes, and the values that they exchange.

A pass is a frozen value: a name, a function, and a text. The parameters of the function name the values that
it reads, and ``output`` the value that its result becomes; ``missing_inputs`` checks a pipeline for values
that no earlier pass makes. A pipeline is a tuple of passes. The texts of all its passes are an ingredient of
the toolchain, so the text of a pass states everything that may change bytes and is not in the declared code
version.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace

from kcache_compiler.errors import CompileFailed, CompilerError, UnsupportedOp
from kcache_compiler.llvm.ptxas import Assembly
from kcache_compiler.llvm.target import Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.schedule.gemm_tiles import Form
from kcache_compiler.schedule.loop_nest import Check
from kcache_compiler.schedule.prepared import PreparedBuffer, PrepareTargets
from kcache_compiler.schedule.subkernel import Subkernel
from kcache_compiler.shapes.formula import Formula
from kcache_compiler.shapes.recovery import RecoveredSizes
from kcache_compiler.types import CompileOptions, GpuLaunch, Launch, LibraryCache, Symbol, TensorType

#: The sizes of the arguments of ``main``; none where each dynamic dimension is a separate symbol.
Sizes = tuple[tuple[Formula, ...], ...]
#: For each pair of sizes that ``main`` returns for a check at run time: equal, or first at most second.
SizeChecks = tuple[bool, ...]


@dataclass(frozen=True)
class Signature:
    """The types of the caller's buffers, and the symbols of dynamic dimensions."""

    inputs: tuple[TensorType, ...] = ()
    constants: tuple[TensorType, ...] = ()
    outputs: tuple[TensorType, ...] = ()
    symbols: tuple[Symbol, ...] = ()


@dataclass(frozen=True)
class NarrowBuffers:
    """Element types of 8 bits and fewer that bytes hold, by position among arguments, and among results."""

    inputs: dict[int, str] = field(default_factory=dict[int, str])
    outputs: dict[int, str] = field(default_factory=dict[int, str])


@dataclass
class Unit:
    """The values of one compilation: its request, and what its passes made so far.

    Only ``run`` and the passes of ``lower`` hold a unit; other passes get the values that they name.
    """

    # The request: known before the first pass.
    source: str
    n_inputs: int
    target: Target
    options: CompileOptions
    #: Where compiled libraries are kept between processes; can change no byte.
    libraries: LibraryCache | None = None
    #: Compiles objects that the kernel is linked with while the passes run; can change no byte.
    threads: Executor | None = None
    #: Sizes of the arguments of ``main`` where some are dynamic.
    given: Sizes = ()
    #: Whether modules are verified: not those of further samples, which differ from the first in constants.
    verifies: bool = True
    #: What sizes of the module stand for, when it is lowered at samples of its dynamic sizes.
    codes: RecoveredSizes = field(default_factory=RecoveredSizes)
    #: Values of the last arguments of ``main``: i64 scalars that no caller passes.
    extents: tuple[Formula, ...] = ()
    #: What must hold of the dynamic sizes.
    bounds: tuple[Check, ...] = ()
    #: Of the run program of a kernel with bound arguments: the buffer whose values are its constants.
    prepared: PreparedBuffer | None = None
    #: Of a prepare program: where its results go.
    targets: PrepareTargets | None = None

    # What passes make.
    module: mlir.Module = field(init=False, repr=False, compare=False)
    narrow_buffers: NarrowBuffers = field(default_factory=NarrowBuffers)
    signature: Signature = field(default_factory=Signature)
    size_checks: SizeChecks = ()
    launches: list[Launch] = field(default_factory=list[Launch])
    workspace: Formula = 0
    #: Of the workspace, the bytes of each worker.
    scratch: Formula = 0
    #: Of a kernel for a GPU: its launches, and comparisons that must hold before the first.
    gpu_launches: list[GpuLaunch] = field(default_factory=list[GpuLaunch])
    checks: tuple[str, ...] = ()
    #: It waits for the PTX.
    assembler: Assembly | None = None
    #: Configurations of contractions whose libraries are linked with the kernel.
    gemm_forms: list[Form] = field(default_factory=list[Form])
    #: Names of constant tables of the module, by their words.
    tables: dict[tuple[int, ...], str] = field(default_factory=dict[tuple[int, ...], str])
    #: Subkernels, by name.
    subkernels: dict[str, Subkernel] = field(default_factory=dict[str, Subkernel])
    llvm_ir: str = ""
    bitcode: bytes = b""
    object_code: bytes = b""
    assembly: str = ""
    #: Assembly and object code of the second half of a long module, which a thread emits.
    second_half: Future[tuple[str, bytes]] | None = None
    further_objects: list[bytes] = field(default_factory=list[bytes])
    shared_object: bytes = b""
    #: Units that are linked with this one: the prepare program of a run program.
    linked: list[Unit] = field(default_factory=list["Unit"])

    @property
    def unit(self) -> Unit:
        """The unit itself, for passes of ``lower`` that read many values."""
        return self

    @property
    def argument_sizes(self) -> Sizes:
        return self.given

    @property
    def size_arguments(self) -> tuple[Formula, ...]:
        return self.extents

    @property
    def inputs(self) -> tuple[TensorType, ...]:
        return self.signature.inputs

    @property
    def constants(self) -> tuple[TensorType, ...]:
        return self.signature.constants

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        return self.signature.symbols

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        return self.signature.outputs

    @outputs.setter
    def outputs(self, types: tuple[TensorType, ...]) -> None:
        self.signature = replace(self.signature, outputs=types)


#: Values that no pass makes.
REQUEST = frozenset(
    {
        *("source", "n_inputs", "target", "options", "libraries", "argument_sizes", "size_arguments"),
        *("codes", "bounds", "unit"),
    }
)


@dataclass(frozen=True)
class UpstreamPasses:
    """A pipeline of passes of MLIR and StableHLO.

    If ``rejects``, a failure means that an operation of the program is unsupported, not that the pass
    failed. The module is verified after each of the passes if ``between``, else after the last one.
    """

    name: str
    pipeline: str
    rejects: bool = False
    between: bool = True

    @property
    def text(self) -> str:
        return self.pipeline

    def apply(self, unit: Unit) -> None:
        try:
            mlir.run_passes(unit.module, f"builtin.module({self.pipeline})", self.between, unit.verifies)
        except mlir.MLIRError as error:
            raise (_rejection(unit, error) if self.rejects else None) or error from None


def _rejection(unit: Unit, error: Exception) -> UnsupportedOp | None:
    """The unsupported operation of the program at the location of a diagnostic; None if there is none."""
    source = mlir.parse(unit.source)  # operations that are walked do not keep their module
    for where, message in mlir.diagnostics_of(error):
        for operation in mlir.walk(source):
            name = mlir.name_of(operation)
            if name.startswith(("stablehlo.", "chlo.")) and mlir.location_of(operation) == where:
                return UnsupportedOp(name, f"its lowering fails: {message}", where)
    return None


@dataclass(frozen=True)
class Pass:
    """A pass of our own; ``text`` states its parameters, its code is under ``CODE_VERSION``.

    It transforms the module in place where it reads ``module``. The module is verified before a pass of
    another kind gets it, unless ``verify`` is off. A pass without ``output`` returns nothing.
    """

    name: str
    function: Callable[..., object]
    text: str = ""
    verify: bool = True
    output: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the values that the pass reads."""
        return _parameters(self.function)

    def apply(self, unit: Unit) -> None:
        result = self.function(*[getattr(unit, name) for name in self.inputs])
        if self.output:
            setattr(unit, self.output, result)


@functools.cache
def _parameters(function: Callable[..., object]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


Stage = UpstreamPasses | Pass


def missing_inputs(pipeline: tuple[Stage, ...]) -> list[str]:
    """Inputs of passes that neither the request nor an earlier pass provides, as ``pass: input``."""
    known = set(REQUEST)
    missing: list[str] = []
    for stage in pipeline:
        if isinstance(stage, Pass):
            missing += [f"{stage.name}: {name}" for name in stage.inputs if name not in known]
            known.add(stage.output)
        elif "module" not in known:
            missing.append(f"{stage.name}: module")
    return missing


def describe(pipeline: tuple[Stage, ...]) -> str:
    """The pipeline as text: a line for each pass."""
    return "".join(f"{stage.name}: {stage.text}\n" for stage in pipeline)


def verified_after(pipeline: tuple[Stage, ...]) -> set[str]:
    """The passes of our own after which the module is verified: the last one before each upstream pipeline.

    Verification of a long module takes as long as a pass, and invalid IR is still invalid some passes later.
    """
    following = [isinstance(stage, Pass) and stage.verify for stage in pipeline[1:]]
    return {
        stage.name
        for stage, next_is_own in zip(pipeline, [*following, False], strict=True)
        if isinstance(stage, Pass) and stage.verify and not next_is_own
    }


def run(pipeline: tuple[Stage, ...], unit: Unit, on_stage: Callable[[str], None]) -> dict[str, float]:
    """Apply every pass; returns seconds by pass. Raises ``CompileFailed`` with the name of the pass."""
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
