"""The LLVM IR of the thread pool: what its C source compiles to, and fit for LLVM's every architecture."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kcache_compiler import CompileOptions, canonicalize, compile_spec
from kcache_compiler.llvm import elf, emission, link
from kcache_compiler.llvm.target import target_named
from kcache_compiler.lower.cpu import thread_pool

sys.path.insert(0, str(Path(__file__).parents[4] / "scripts"))
import generate_thread_pool as script

sys.path.pop(0)


def clangs() -> list[tuple[str, ...]]:
    """Commands that may be clang."""
    named = [shutil.which(name) for name in ("clang", "clang-22")]
    return [script.CLANG, *((path,) for path in named if path)]


@pytest.mark.parametrize("architecture", script.ARCHITECTURES)
def test_the_ir_is_what_the_source_compiles_to(architecture: str) -> None:
    recorded = script.recorded_version(architecture)
    for clang in clangs():
        try:
            version = script.clang_version(clang)
        except (OSError, ValueError):
            continue
        if version == recorded:
            assert script.generate(architecture, clang) == script.path_of(architecture).read_text()
            return
    pytest.skip(f"no clang {recorded}")


def test_a_change_of_the_source_is_a_change_of_the_ir(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    try:
        script.clang_version(script.CLANG)
    except (OSError, ValueError):
        pytest.skip("no clang")
    source = tmp_path / script.SOURCE.name
    source.write_text(script.SOURCE.read_text().replace("#define SPINS 2000", "#define SPINS 2001"))
    before = script.generate("x86_64")
    monkeypatch.setattr(script, "SOURCE", source)
    assert script.generate("x86_64") != before


@pytest.mark.parametrize("name", ["x86-64-v2", "znver5", "aarch64", "aarch64-sve"])
def test_the_ir_names_no_machine(name: str) -> None:
    text = thread_pool.pool_ir(target_named(name))
    assert not re.search(r"target |source_filename|-cpu|features", text)


@pytest.mark.parametrize("name", ["x86-64-v2", "aarch64"])
def test_the_object_has_the_names_of_the_pool_alone(name: str) -> None:
    target = target_named(name)
    facts = elf.read(link.link([thread_pool.pool_object(target)], target, elf.POOL_EXPORTED))
    assert (facts.exported, facts.undefined) == (elf.POOL_EXPORTED, elf.POOL_UNDEFINED)
    assert thread_pool.pool_object(target_named("znver5")) == thread_pool.pool_object(
        target_named("x86-64-v4")
    )


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_other_compilers_have_no_warning(compiler: str, tmp_path: Path) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    flags = [
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-ffreestanding",
        "-c",
        "-o",
        tmp_path / "pool.o",
    ]
    subprocess.run([compiler, *flags, script.SOURCE], check=True, timeout=240)


def test_the_pool_is_compiled_beside_the_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    compilers: list[threading.Thread] = []

    def optimize(*arguments: Any) -> bytes:
        compilers.append(threading.current_thread())
        return emission.optimize(*arguments)

    monkeypatch.setattr(thread_pool, "optimize", optimize)
    thread_pool._object.cache_clear()
    program = b"""func.func @main(%a: tensor<1048576xf32>) -> tensor<1048576xf32> {
      %0 = stablehlo.add %a, %a : tensor<1048576xf32>
      return %0 : tensor<1048576xf32> }"""
    canonical = canonicalize(program, "stablehlo")
    compile_spec(canonical.spec_text, canonical.arg_spec, "x86-64-v3", CompileOptions(), lambda _: None)
    assert len(compilers) == 1
    assert compilers[0] is not threading.current_thread()
