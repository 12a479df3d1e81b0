"""``kcache.h``: the same structures and functions as the runtime calls, for C and for C++."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kcache_grpc.cli import main
from kcache_grpc.runtime.cpu._abi import ffi
from kcache_grpc.runtime.cpu.library import ABIS, SIZES_DISAGREE
from tests.runtime.c_kernels import shared_object

pytestmark = pytest.mark.issue(number=19, point=26)

FIELDS = ("size", "abi", "workers", "ctx", "parallel_for")

LAYOUT = f"""
#include <stddef.h>
#include <stdio.h>
#include <kcache.h>

int main(void) {{
    size_t offsets[] = {{{", ".join(f"offsetof(kcache_host, {name})" for name in FIELDS)}}};
    printf("%zu", sizeof(kcache_host));
    for (int i = 0; i < {len(FIELDS)}; i++) printf(" %zu", offsets[i]);
    printf(" %d %d %d", KCACHE_ABI, KCACHE_BOUND_ABI, KCACHE_SIZES_DISAGREE);
    return 0;
}}
"""

#: Linked with a kernel, on two threads of the caller's own making: each takes half of the launch.
LINKED = """
#include <stdio.h>
#include <stddef.h>
#include <kcache.h>

static int32_t in_halves(void *ctx, int64_t n, int64_t grain, kcache_task task, void *closure) {
    (void)grain;
    ++*(int *)ctx;
    int32_t status = task(closure, 0, n / 2, 0);
    return status ? status : task(closure, n / 2, n, 1);
}

int main(void) {
    static float x[6] = {0, 1, 2, 3, 4, 5}, y[6];
    int calls = 0;
    kcache_host host = {sizeof(kcache_host), KCACHE_ABI, 2, &calls, in_halves};
    void *buffers[] = {x, y};
    int64_t dims[] = {6};
    if (kcache_abi() != KCACHE_ABI) return 1;
    int32_t status = kcache_run(buffers, dims, NULL, &host);
    printf("%d %d", status, calls);
    for (int i = 0; i < 6; i++) printf(" %g", y[i]);
    return 0;
}
"""

#: Doubles, in a launch over all elements.
KERNEL = """
struct closure { float *x, *y; };
static int32_t slice(void *closure, int64_t begin, int64_t end, int64_t worker) {
    struct closure *c = closure;
    (void)worker;
    for (int64_t i = begin; i < end; i++) c->y[i] = 2 * c->x[i];
    return 0;
}
RUN {
    struct closure c = {buffers[0], buffers[1]};
    (void)workspace;
    return host ? host->parallel_for(host->ctx, dims[0], 1, slice, &c) : slice(&c, 0, dims[0], 0);
}
"""


@pytest.fixture
def include(capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["--include"]) == 0
    return Path(capsys.readouterr().out.strip())


def compiled(source: str, include: Path, folder: Path, *more: str | Path) -> list[str]:
    """The words that a C program prints."""
    (folder / "main.c").write_text(source)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", str(include)]
    command = ["gcc", *flags, str(folder / "main.c"), *map(str, more), "-o", str(folder / "main")]
    subprocess.run(command, check=True, timeout=120)
    ran = subprocess.run([folder / "main"], capture_output=True, text=True, check=True, timeout=240)
    return ran.stdout.split()


def test_the_module_prints_the_directory(include: Path) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "kcache_grpc", "--include"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=include.parent.parent,
    )
    assert Path(printed.stdout.strip()) == include
    assert (include / "kcache.h").is_file()


def test_layout_and_numbers_are_those_of_the_runtime(include: Path, tmp_path: Path) -> None:
    layout = dict(ffi.typeof("kcache_host").fields)
    expected = [ffi.sizeof("kcache_host"), *(layout[name].offset for name in FIELDS), *ABIS, SIZES_DISAGREE]
    assert list(map(int, compiled(LAYOUT, include, tmp_path))) == expected


def test_a_linked_program_lends_its_threads(include: Path, tmp_path: Path) -> None:
    (tmp_path / "kernel.so").write_bytes(shared_object(KERNEL))
    words = compiled(LINKED, include, tmp_path, tmp_path / "kernel.so", f"-Wl,-rpath,{tmp_path}")
    assert words[:2] == ["0", "1"]
    np.testing.assert_array_equal(np.array(words[2:], np.float32), 2 * np.arange(6, dtype=np.float32))


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_it_is_a_cpp_header_too(include: Path, tmp_path: Path) -> None:
    functions = "kcache_run_function *run;\nkcache_prepare_function *prepare;\n"
    (tmp_path / "main.cc").write_text(f"#include <kcache.h>\n{functions}")
    command = ["g++", "-Wall", "-Werror", "-fsyntax-only", "-I", str(include)]
    subprocess.run([*command, str(tmp_path / "main.cc")], check=True, timeout=120)
