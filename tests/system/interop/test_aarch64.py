"""AArch64 kernels run under an emulator, where there is one: the C runner, made for AArch64, calls them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import CompileOptions
from kcache_grpc.model.sizes.expression import evaluate
from tests.ops.harness.compare import difference
from tests.ops.harness.native import run
from tests.ops.harness.programs import OpProgram, all_programs

HERE = Path(__file__).parent
EMULATOR = shutil.which("qemu-aarch64")
COMPILER = shutil.which("aarch64-linux-gnu-gcc")
#: Where Debian's cross compiler keeps the loader and the C library.
SYSROOT = Path("/usr/aarch64-linux-gnu")
#: One program of each kind of code: contraction, reduction, math, half floats, integers, control flow.
NAMES = (
    "dot_general-f32",
    "reduce-add-i16",
    "tanh-f64",
    "multiply-bf16",
    "divide-i32",
    "convert-f16",
    "while-f32",
)
#: With AVX2 and FMA, the same contraction of no operation: bits agree between the machines.
X86 = "x86-64-v3"

pytestmark = pytest.mark.skipif(
    EMULATOR is None or COMPILER is None or not SYSROOT.exists(),
    reason="needs qemu-aarch64 and aarch64-linux-gnu-gcc (Debian: qemu-user, gcc-aarch64-linux-gnu)",
)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runner") / "runner"
    subprocess.run([str(COMPILER), "-O1", HERE / "runner.c", "-o", path, "-ldl", "-lpthread"], check=True)
    return path


def _first_result_alone(program: OpProgram) -> tuple[str, str]:
    """The program with its first result only, as the runner has one output, and that result's dtype."""
    head, _, tail = program.text.rpartition("return ")
    names, _, types = tail.partition(" : ")
    name = names.split(", ")[0]
    type = types.split(", tensor")[0].rstrip("}\n ")
    signature = head[head.index(") -> (") : head.index(" {\n")]
    return head.replace(
        signature, f") -> {type}", 1
    ) + f"return {name} : {type}\n}}\n", program.result_dtypes[0]


@pytest.mark.parametrize("name", NAMES)
def test_an_emulated_kernel_gives_the_bits_of_x86(name: str, runner: Path, tmp_path: Path) -> None:
    program = next(program for program in all_programs() if program.id == name)
    text, dtype = _first_result_alone(program)
    canonical = canonicalize(text.encode(), "stablehlo", "strict")
    options = CompileOptions(numerics="strict")
    kernels = {
        isa: compile_spec(canonical.spec_text, canonical.arg_spec, isa, options, lambda _: None)
        for isa in ("aarch64", X86)
    }
    constants = [constant.content for constant in canonical.constants]
    (expected,) = run(kernels[X86], program.inputs, constants)

    library = tmp_path / "kernel.so"
    library.write_bytes(kernels["aarch64"].artifacts["so"])
    paths = [tmp_path / f"input{index}" for index in range(len(program.inputs) + len(constants))]
    for path, data in zip(paths, program.inputs + constants, strict=True):
        path.write_bytes(data)
    workspace = evaluate(kernels["aarch64"].interface.workspace, {"workers": 3})
    command = [str(EMULATOR), "-L", SYSROOT, runner, library, str(workspace), str(len(expected)), *paths]
    done = subprocess.run(command, capture_output=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert not difference(dtype, done.stdout, expected, ulps=0)
    assert np.frombuffer(done.stdout, np.uint8).size


def test_the_pool_of_threads_holds_under_emulation(tmp_path: Path) -> None:
    from kcache_compiler.llvm.target import target_named
    from kcache_compiler.lower.cpu.thread_pool import pool_object

    (tmp_path / "pool.o").write_bytes(pool_object(target_named("aarch64")))
    source, program = HERE.parents[1] / "runtime" / "pool_stress.c", tmp_path / "pool_stress"
    command = [str(COMPILER), "-O1", source, tmp_path / "pool.o", "-o", program, "-lpthread"]
    subprocess.run(command, check=True, timeout=240)
    done = subprocess.run(
        [str(EMULATOR), "-L", SYSROOT, program, "3", "200"], capture_output=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ok\n", b"")
