"""From a module text to a kernel: the whole pipeline, stage by stage."""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.codegen import mlir
from kcache_compiler.codegen.pipeline import BUFFERIZE, EMIT, LOWER, launches
from kcache_compiler.codegen.signature import read_signature
from kcache_compiler.codegen.stage import Passes, Rewrite, Stage, Unit, run
from kcache_compiler.errors import InvalidProgram
from kcache_compiler.package.link import link
from kcache_compiler.package.target import target_named
from kcache_compiler.schedule import plain
from kcache_compiler.types import CompiledKernel, CompileOptions, KernelInterface

ERROR_CODES = {0: "success"}


def _parse(unit: Unit) -> None:
    try:
        unit.module = mlir.parse(unit.source)
    except mlir.MLIRError as error:
        raise InvalidProgram(str(error)) from None


def _link(unit: Unit) -> None:
    unit.shared_object = link(unit.object_code, unit.target)


PIPELINE: tuple[Stage, ...] = (
    Rewrite("parse", _parse),
    Passes("inline", "inline,symbol-dce"),
    Rewrite("signature", read_signature),
    Passes("chlo", "func.func(chlo-legalize-to-stablehlo)"),
    Passes("linalg", "stablehlo-legalize-to-linalg"),
    *BUFFERIZE,
    launches(plain.schedule),
    *LOWER,
    *EMIT,
    Rewrite("link", _link, verify=False),
)


def lower_module(
    module_text: str,
    n_inputs: int,
    target: str,
    options: CompileOptions,
    on_stage: Callable[[str], None],
) -> CompiledKernel:
    """Compile a module whose ``main`` takes ``n_inputs`` inputs, then lifted constants."""
    unit = Unit(module_text, n_inputs, target_named(target), options)
    with mlir.new_context(), mlir.unknown_location():
        seconds = run(PIPELINE, unit, on_stage)
    interface = KernelInterface(
        inputs=unit.inputs,
        constants=unit.constants,
        outputs=unit.outputs,
        symbols=unit.symbols,
        workspace=str(unit.workspace),
        launches=tuple(unit.launches),
        triple=unit.target.triple,
        required_isa=unit.target.features,
        error_codes=dict(ERROR_CODES),
    )
    artifacts = {
        "so": unit.shared_object,
        "mlir": unit.source.encode(),
        "llvm": unit.llvm_ir.encode(),
        "asm": unit.assembly.encode(),
    }
    return CompiledKernel(artifacts, interface, seconds)
