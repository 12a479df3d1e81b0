"""parallel_for: every index once, worker ids apart, and nothing lost when something goes wrong."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from kcache_grpc.errors import ArgumentError, KcacheError
from kcache_grpc.runtime.cpu.python_pool import PythonThreads
from kcache_grpc.runtime.cpu.threads import available_cpus, thread_count
from tests.runtime.c_kernels import make

#: Counts visits of each index, and says when a worker id was in two places at once.
VISIT = """
typedef struct { int32_t *seen; int32_t *busy; int64_t workers; } closure_t;
static int32_t visit(void *data, int64_t begin, int64_t end, int64_t worker) {
    closure_t *c = data;
    if (worker < 0 || worker >= c->workers) return 21;
    if (__atomic_exchange_n(&c->busy[worker * 16], 1, __ATOMIC_SEQ_CST)) return 22;
    for (int64_t i = begin; i < end; i++) __atomic_add_fetch(&c->seen[i], 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&c->busy[worker * 16], 0, __ATOMIC_SEQ_CST);
    return c->seen[0] == -1000 ? 3 : 0;
}
RUN {
    closure_t c = { buffers[1], workspace, host ? host->workers : 1 };
    for (int64_t i = 0; i < dims[0]; i++) c.seen[i] = 0;
    for (int64_t i = 0; i < c.workers * 16; i++) c.busy[i] = 0;
    return host ? host->parallel_for(host->ctx, dims[0], 3, visit, &c) : visit(&c, 0, dims[0], 0);
}
"""


def visiting(threads):
    return make(
        VISIT,
        ["i8[s0]"],
        ["i32[s0]"],
        symbols=[("s0", 0, 0)],
        workspace="64*workers",
        launches=[("s0", "3")],
        threads=PythonThreads(threads),
    )


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_index_is_visited_once(threads):
    kernel = visiting(threads)
    for size in [1, 2, 3, 5, 6, 7, 17, 100, 1000, 10001]:
        assert (kernel(np.zeros(size, np.int8))[0] == 1).all()


def test_launches_of_many_callers_share_the_pool():
    kernel = visiting(3)
    before = threading.active_count()

    def work(seed):
        sizes = np.random.default_rng(seed).integers(6, 2000, 25)
        return all((kernel(np.zeros(size, np.int8))[0] == 1).all() for size in sizes)

    with concurrent.futures.ThreadPoolExecutor(6) as executor:
        assert all(executor.map(work, range(12)))
    assert threading.active_count() <= before + 2


def test_an_error_code_of_a_slice_is_the_kernels():
    body = """
    static int32_t fail(void *c, int64_t begin, int64_t end, int64_t worker) { return begin == 0 ? 3 : 0; }
    RUN { return host->parallel_for(host->ctx, 1000, 1, fail, NULL); }
    """
    kernel = make(body, [], [], launches=[("1000", "1")], threads=PythonThreads(2))
    for _ in range(3):
        with pytest.raises(KcacheError, match="code 3: index out of range"):
            kernel()


def test_small_launches_ask_nobody():
    body = "RUN { *(int64_t *)buffers[0] = host ? host->workers : 1; return 0; }"
    for launches, workers in [
        ([], 1),
        ([("1", "1")], 1),
        ([("10", "8")], 1),
        ([("24", "8")], 1),
        ([("99", "1")], 3),
    ]:
        kernel = make(body, [], ["i64[]"], launches=launches, threads=PythonThreads(3))
        assert kernel()[0] == workers


def test_the_pool_works_after_a_fork():
    """In a process of its own: other packages of this one may forbid to fork."""
    program = """
    import os, warnings
    import numpy as np
    from tests.runtime.test_threads import visiting
    warnings.simplefilter("ignore", DeprecationWarning)
    kernel = visiting(2)
    works = lambda: bool((kernel(np.zeros(100, np.int8))[0] == 1).all())
    assert works()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if works() else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert works()
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    root = Path(__file__).parents[2]
    subprocess.run(command, check=True, timeout=240, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})


def test_an_interrupt_waits_for_the_slices():
    """The handler runs between two slices; the kernel's stack is left alone until all of them ended."""
    body = """
    #include <signal.h>
    #include <unistd.h>
    static int32_t slice(void *c, int64_t begin, int64_t end, int64_t worker) {
        if (begin == 0) kill(getpid(), SIGUSR1);
        __atomic_add_fetch((int64_t *)c, 1, __ATOMIC_SEQ_CST);
        return 0;
    }
    RUN { int64_t count = 0; int32_t code = 0;
        for (int i = 0; i < 100 && !code; i++) code = host->parallel_for(host->ctx, 8, 1, slice, &count);
        return code; }
    """
    kernel = make(body, [], [], launches=[("8", "1")], threads=PythonThreads(2))

    def interrupt(number, frame):
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            kernel()
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_threads_of_the_pool_keep_subnormals():
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
    kernel = make(body, [], ["f64[4000]"], launches=[("4000", "1")], threads=PythonThreads(2))
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine cannot flush")
    try:
        results = [kernel()[0] for _ in range(20)]
    finally:
        torch.set_flush_denormal(False)
    assert all((result != 0).all() for result in results)


def test_strict_kernels_reject_a_flushing_thread():
    torch = pytest.importorskip("torch")
    strict = make("RUN { return 0; }", [], [], numerics="strict")
    relaxed = make("RUN { return 0; }", [], [])
    strict()
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine cannot flush")
    try:
        relaxed()
        with pytest.raises(KcacheError, match="subnormal"):
            strict()
    finally:
        torch.set_flush_denormal(False)
    strict()


def test_thread_count():
    assert thread_count({}) == available_cpus() >= 1
    assert thread_count({"KCACHE_NUM_THREADS": "3"}) == 3
    for wrong in ("0", "-1", "many", "1.5", "99999"):
        with pytest.raises(ArgumentError, match="KCACHE_NUM_THREADS"):
            thread_count({"KCACHE_NUM_THREADS": wrong})


def test_affinity_bounds_the_threads():
    if multiprocessing.cpu_count() < 2:
        pytest.skip("one CPU")
    program = """
    import os
    from kcache_grpc.runtime.cpu.threads import available_cpus
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    print(available_cpus())
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert out.stdout.strip() == "1"


def test_a_kernel_called_while_another_waits_for_its_threads():
    """A signal handler may call a kernel inside a kernel's call: it must not get the same workspace."""
    body = """
    #include <signal.h>
    #include <unistd.h>
    static int32_t slice(void *c, int64_t begin, int64_t end, int64_t worker) {
        if (begin == 0 && *(int64_t *)c == 1) { *(int64_t *)c = 2; kill(getpid(), SIGUSR1); }
        return 0;
    }
    RUN { int64_t *mark = workspace; *mark = *(int64_t *)buffers[0];
        int32_t code = host->parallel_for(host->ctx, 64, 1, slice, mark);
        *(int64_t *)buffers[1] = *mark;
        return code; }
    """
    kernel = make(body, ["i64[]"], ["i64[]"], workspace="8", launches=[("64", "1")], threads=PythonThreads(2))
    inner = []
    previous = signal.signal(signal.SIGUSR1, lambda number, frame: inner.append(int(kernel(99)[0])))
    try:
        outer = int(kernel(1)[0])
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert (outer, inner) == (2, [99])
