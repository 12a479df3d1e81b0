"""The declared code version rises when the code of kernels changes.

Object code before linking is compared, so that the linker does not matter; programs that call the
math library are left out, as that has a version of its own.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from kcache_compiler.fingerprint import gpu_toolchain, toolchain
from kcache_compiler.llvm import emission as llvmir
from kcache_compiler.llvm.cpus import tuning_for
from kcache_compiler.llvm.ptxas import Ptxas
from kcache_compiler.llvm.target import target_named
from kcache_compiler.lower.gemm.objects import compiled_library
from kcache_compiler.lower.gpu import cubin
from kcache_compiler.schedule.gemm_tiles import form_for
from kcache_compiler.versions import CODE_VERSION
from tests.compiler.codegen_harness import compile_text
from tests.compiler.programs import PROGRAMS

GOLDEN = Path(__file__).with_name("golden.json")
TARGETS = ("x86-64-v2", "x86-64-v4", "aarch64")
NAMES = ("arithmetic-f32", "arithmetic-bf16", "contraction-f64")


def digests() -> dict[str, str]:
    """SHA-256 of the object code of each golden program, by name and target."""
    digests_by_name: dict[str, str] = {}
    for program in PROGRAMS:
        for name in TARGETS if program.name in NAMES else ():
            target = target_named(name)
            text = (
                compile_text(program.text, "x86-64-v2" if name == "aarch64" else name)
                .artifacts["llvm"]
                .decode()
            )
            code = llvmir.emit_object(llvmir.optimize(text, target, 3, unroll=False), target, 3)
            digests_by_name[f"{program.name} {name}"] = hashlib.sha256(code).hexdigest()
    for name in TARGETS:
        target, tuning = target_named(name), tuning_for(name, "generic")
        for kind in ("f32", "bf16"):
            form = form_for(target, tuning, (kind, kind, kind), "f32", exact=False)
            code = compiled_library(form, target).object_code
            digests_by_name[f"{form.name} {name}"] = hashlib.sha256(code).hexdigest()
    return digests_by_name


def test_the_code_version_rises_with_the_code() -> None:
    ingredients = {name: value for name, value in toolchain() if name in ("torch-mlir", "llvmlite", "llvm")}
    stored = json.loads(GOLDEN.read_text())
    current = {"code": CODE_VERSION, "toolchain": ingredients, "digests": digests()}
    if stored == current:
        return
    same_keys = stored["code"] == CODE_VERSION and stored["toolchain"] == ingredients
    advice = (
        "raise CODE_VERSION in compiler/kcache_compiler/versions.py, then " if same_keys else ""
    ) + "run: python -m tests.compiler.lower.test_golden"
    changed = [key for key, digest in current["digests"].items() if stored["digests"].get(key) != digest]
    raise AssertionError(f"the code of {changed or 'no program'} changed; {advice}")


def test_the_fingerprint_is_ordered_and_complete() -> None:
    assert [name for name, _ in toolchain()] == [
        "torch-mlir",
        "llvmlite",
        "llvm",
        "math",
        "linker",
        "pipeline",
        "code",
    ]
    names = ["torch-mlir", "llvmlite", "llvm", "math", "ptxas", "pipeline", "code", "gpu-code"]
    assert [name for name, _ in gpu_toolchain()] == names
    assert all(value for _, value in (*toolchain(), *gpu_toolchain()))


def test_an_assembler_for_gpus_is_no_ingredient_of_cpu_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def fingerprints(ptxas: Ptxas | None) -> tuple[object, object]:
        monkeypatch.setattr(cubin, "find_ptxas", lambda: ptxas)
        toolchain.cache_clear()
        gpu_toolchain.cache_clear()
        return toolchain(), gpu_toolchain()

    pairs = [fingerprints(each) for each in (None, Ptxas(Path("ptxas"), "12.9.86", (12, 9)))]
    monkeypatch.undo()
    toolchain.cache_clear()
    gpu_toolchain.cache_clear()
    assert pairs[0][0] == pairs[1][0]
    assert pairs[0][1] != pairs[1][1]


if __name__ == "__main__":
    kept = {name: value for name, value in toolchain() if name in ("torch-mlir", "llvmlite", "llvm")}
    content = {"code": CODE_VERSION, "toolchain": kept, "digests": digests()}
    GOLDEN.write_text(json.dumps(content, indent=2) + "\n")
