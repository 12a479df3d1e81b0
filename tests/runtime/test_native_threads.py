"""The pool that kernels bring along: every index once, one pool a process, and nothing left at the end."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from kcache_grpc.errors import IntegrityError, KcacheError
from kcache_grpc.runtime.cpu.library import load_library
from kcache_grpc.runtime.cpu.native_pool import NativeThreads, ProcessThreads
from kcache_grpc.runtime.cpu.python_pool import PythonThreads, shared_pool
from tests.runtime.c_kernels import make, pool_code, shared_object
from tests.runtime.test_threads import VISIT

ROOT = Path(__file__).parents[2]
NOTHING = "RUN { return 0; }"
#: Tells the address of the host's function, and how many workers it has.
WHICH = """
RUN { int64_t *out = buffers[0];
    out[0] = host ? (int64_t)host->parallel_for : 0;
    out[1] = host ? host->workers : 1;
    return 0; }
"""


def pool(threads: int, name: str = "pool") -> NativeThreads:
    """A pool of its own, from a library of its own."""
    return NativeThreads(load_library(shared_object(NOTHING, pool=True), name, 1), threads)


def visiting(threads: int):
    symbols, launches = [("s0", 0, 0)], [("s0", "3")]
    return make(
        VISIT,
        ["i8[s0]"],
        ["i32[s0]"],
        symbols=symbols,
        workspace="64*workers",
        launches=launches,
        threads=pool(threads),
    )


@pytest.mark.parametrize("rounds", [1000, pytest.param(100_000, marks=pytest.mark.long)])
def test_many_callers_and_tiny_slices_under_stress(rounds: int, tmp_path: Path) -> None:
    """Callers at once, tasks that launch, errors, a fork, idle threads and stop, in a C program."""
    (tmp_path / "pool.o").write_bytes(pool_code())
    source, program = Path(__file__).with_name("pool_stress.c"), tmp_path / "pool_stress"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-lpthread"]
    subprocess.run(["gcc", source, tmp_path / "pool.o", *flags, "-o", program], check=True, timeout=240)
    done = subprocess.run(
        [program, "6", str(rounds)], capture_output=True, text=True, timeout=500, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_index_is_visited_once(threads: int) -> None:
    kernel = visiting(threads)
    for size in [1, 2, 3, 5, 6, 7, 17, 100, 1000, 10001]:
        assert (kernel(np.zeros(size, np.int8))[0] == 1).all()


def test_callers_from_many_threads() -> None:
    kernel = visiting(3)

    def work(seed: int) -> bool:
        sizes = np.random.default_rng(seed).integers(6, 2000, 100)
        return all((kernel(np.zeros(size, np.int8))[0] == 1).all() for size in sizes)

    with concurrent.futures.ThreadPoolExecutor(6) as executor:
        assert all(executor.map(work, range(12)))


def test_an_error_code_of_a_slice_is_the_kernels() -> None:
    body = """
    static int32_t fail(void *c, int64_t begin, int64_t end, int64_t worker) { return begin == 0 ? 3 : 0; }
    RUN { return host->parallel_for(host->ctx, 1000, 1, fail, NULL); }
    """
    kernel = make(body, [], [], launches=[("1000", "1")], threads=pool(2))
    for _ in range(3):
        with pytest.raises(KcacheError, match="code 3: index out of range"):
            kernel()


def test_two_slices_are_worth_a_question() -> None:
    for launches, workers in [([], 1), ([("15", "8")], 1), ([("16", "8")], 2), ([("99", "1")], 3)]:
        kernel = make(WHICH, [], ["i64[2]"], launches=launches, threads=pool(3))
        assert kernel()[0][1] == workers


def test_all_kernels_of_a_process_share_the_first_pool() -> None:
    threads = ProcessThreads(2)
    plain, first, second = (
        load_library(shared_object(body, pool=brings), "kernel", 1)
        for body, brings in [(NOTHING, False), (NOTHING, True), (WHICH, True)]
    )
    assert threads.of(plain) is shared_pool()
    native = threads.of(first)
    assert isinstance(native, NativeThreads)
    assert threads.of(second) is native
    assert threads.of(plain) is native


def test_a_library_without_the_entry_is_no_kernel() -> None:
    with pytest.raises(IntegrityError, match="no such entry"):
        load_library(shared_object("int other;"), "kernel", 1)


def test_a_kernel_without_a_pool_runs_on_pythons_threads() -> None:
    kernel = make(WHICH, [], ["i64[2]"], launches=[("99", "1")], threads=PythonThreads(2))
    assert kernel()[0][1] == 2


def test_launches_run_on_after_the_threads_ended() -> None:
    threads = pool(3)
    kernel = make(
        VISIT,
        ["i8[900]"],
        ["i32[900]"],
        symbols=[("s0", 0, 0)],
        workspace="64*workers",
        launches=[("900", "3")],
        threads=threads,
    )
    for _ in range(2):
        assert (kernel(np.zeros(900, np.int8))[0] == 1).all()
        threads.stop()


def printed_by(program: str, **variables: str) -> str:
    """What a program of its own process prints, which ends well."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program)]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, **variables}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=240, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_kernel_of_the_compiler_brings_the_pool_where_it_may_split() -> None:
    program = """
    import os, numpy as np, threading
    from kcache_compiler.compile import lower_module
    from kcache_compiler.llvm import elf
    from kcache_compiler.types import CompileOptions
    from kcache_grpc.model.target import host_target
    from kcache_grpc.runtime.cpu.library import load_library
    from kcache_grpc.runtime.cpu.native_pool import NativeThreads, process_threads
    text = '''func.func @main(%x: tensor<NxNxf32>) -> tensor<NxNxf32> {
      %0 = stablehlo.add %x, %x : tensor<NxNxf32>
      return %0 : tensor<NxNxf32> }'''
    made = {}
    for n in (8, 2048):
        sized, isa = text.replace("N", str(n)), host_target().isa
        compiled = lower_module(sized, 1, isa, CompileOptions(), lambda _: None)
        made[n] = compiled.artifacts["so"]
    assert elf.read(made[8]).exported == elf.EXPORTED
    assert elf.read(made[2048]).exported == elf.EXPORTED | elf.POOL_EXPORTED
    threads = process_threads().of(load_library(made[2048], "big", 1))
    assert isinstance(threads, NativeThreads) and threads.workers == 3
    assert threads.host(3).workers == 3
    names = os.listdir("/proc/self/task")
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(names) >= 3
    print(threads.workers, len(elf.read(made[8]).exported), len(elf.read(made[2048]).exported))
    """
    assert printed_by(program, KCACHE_NUM_THREADS="3") == "3 2 4\n"


def test_a_forked_child_starts_anew() -> None:
    program = """
    import os
    import numpy as np
    from tests.runtime.test_native_threads import visiting
    kernel = visiting(3)
    works = lambda: bool((kernel(np.zeros(1000, np.int8))[0] == 1).all())
    assert works()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if works() and len(os.listdir("/proc/self/task")) == 3 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    print(works())
    """
    assert printed_by(program) == "True\n"


def test_threads_of_the_pool_keep_subnormals() -> None:
    torch = pytest.importorskip("torch")
    body = """
    static int32_t halve(void *c, int64_t begin, int64_t end, int64_t worker) {
        double *x = c;
        for (int64_t i = begin; i < end; i++) x[i] = worker == 0 ? 1.0 : x[i] * 0.5;
        return 0;
    }
    RUN { double *out = buffers[0];
        for (int i = 0; i < 4000; i++) out[i] = 2.2250738585072014e-308;
        return host->parallel_for(host->ctx, 4000, 1, halve, out); }
    """
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine cannot flush")
    try:
        kernel = make(body, [], ["f64[4000]"], launches=[("4000", "1")], threads=pool(2))
        results = [kernel()[0] for _ in range(20)]
    finally:
        torch.set_flush_denormal(False)
    assert all((result != 0).all() for result in results)
