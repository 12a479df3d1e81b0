"""The shared object of a CPU kernel: links and checks its objects, and describes its interface."""

from __future__ import annotations

from kcache_compiler.llvm import elf
from kcache_compiler.llvm.isa import required_features
from kcache_compiler.llvm.link import link
from kcache_compiler.lower.cpu.entry_frame import SIZES_DISAGREE
from kcache_compiler.lower.cpu.thread_pool import may_use_threads, pool_object, pool_text_digest
from kcache_compiler.lower.gemm.objects import compiled_library
from kcache_compiler.passes.stage import Unit
from kcache_compiler.shapes.formula import text
from kcache_compiler.types import CompiledKernel, KernelInterface

ERROR_CODES = {SIZES_DISAGREE: "sizes of the arguments do not fit each other or the program"}


def link_objects(unit: Unit) -> None:
    """Link the kernel with its subkernels, the libraries of its contractions and the thread pool."""
    if unit.threads is not None:
        unit.threads.shutdown()  # what they compiled is memoized
    units = [unit, *unit.linked]
    objects = [code for each in units for code in (each.object_code, *each.further_objects)]
    exports = elf.EXPORTED | elf.PREPARE_EXPORTED if unit.linked else elf.EXPORTED
    subkernels = list(
        {name: subkernel for each in units for name, subkernel in each.subkernels.items()}.values()
    )
    forms = dict.fromkeys(
        [form for each in units for form in each.gemm_forms]
        + [form for subkernel in subkernels for form in subkernel.forms]
    )
    linked = [*(compiled_library(form, unit.target, unit.libraries) for form in forms), *subkernels]
    objects += [library.object_code for library in linked]
    unit.assembly = "\n".join([each.assembly for each in units] + [library.assembly for library in linked])
    if may_use_threads([launch for each in units for launch in each.launches]):
        objects.append(pool_object(unit.target))
        exports |= elf.POOL_EXPORTED
    unit.shared_object = link(objects, unit.target, exports)
    elf.check(unit.shared_object, unit.target)


def linked_objects() -> str:
    """The digests of objects that are linked with every kernel: text of the ``link`` stage."""
    return f"thread pool {pool_text_digest()}"


def cpu_kernel(unit: Unit, seconds: dict[str, float]) -> CompiledKernel:
    """The artifacts and the interface of a unit after the pipeline."""
    interface = KernelInterface(
        inputs=unit.inputs,
        constants=unit.constants,
        outputs=unit.outputs,
        symbols=unit.symbols,
        workspace=text(unit.workspace),
        launches=tuple(unit.launches),
        triple=unit.target.triple,
        required_isa=required_features(unit.assembly, unit.target),
        error_codes=dict(ERROR_CODES),
    )
    artifacts = {
        "so": unit.shared_object,
        "mlir": unit.source.encode(),
        "llvm": "\n".join(each.llvm_ir for each in (unit, *unit.linked)).encode(),
        "asm": unit.assembly.encode(),
    }
    return CompiledKernel(artifacts, interface, seconds)
