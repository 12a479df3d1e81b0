"""Memory of outputs is used again, and never while anybody can see it."""

from __future__ import annotations

import concurrent.futures
import gc

import numpy as np
import pytest

from kcache_grpc.runtime.cpu.recycled_memory import Recycled, rounded
from tests.runtime.c_kernels import make

SIZE = 1 << 19
FILL = f"""
RUN {{ const int64_t *value = buffers[0]; int64_t *out = buffers[1];
    for (int i = 0; i < {SIZE}; i++) out[i] = *value;
    return 0; }}
"""


def filled():
    return make(FILL, ["i64[]"], [f"i64[{SIZE}]"])


BYTE = np.dtype(np.uint8)


def lend(pool: Recycled, size: int = 10_000):
    """An array of bytes, and where it is."""
    array, _ = pool.array(BYTE, (size,), rounded(size))
    return array, array.ctypes.data


@pytest.mark.parametrize(
    "view",
    [
        lambda array: array[10:20],
        lambda array: array[10:20][2:].reshape(2, 4),
        lambda array: array.view(np.int8)[3:],
        memoryview,
        lambda array: np.frombuffer(array, np.int8),
        lambda array: np.frombuffer(memoryview(array)[5:], np.int8),
        lambda array: np.ndarray(5, np.int8, array, 3),
        lambda array: np.asarray(memoryview(array)),
        lambda array: array.view(np.recarray),
        np.from_dlpack,
        lambda array: np.lib.stride_tricks.as_strided(array, (3,), (2,)),
        lambda array: iter(array),
        lambda array: array.flat,
    ],
)
def test_a_block_comes_back_when_the_last_that_sees_it_is_gone(view) -> None:
    pool = Recycled()
    array, address = lend(pool)
    assert address % 64 == 0
    assert lend(pool)[1] != address
    seen = view(array)
    del array
    assert address not in {lend(pool)[1] for _ in range(3)}
    del seen
    gc.collect()
    kept = [lend(pool) for _ in range(3)]
    assert sorted(block == address for _, block in kept) == [False, False, True]


def test_idle_blocks_are_bounded() -> None:
    pool = Recycled(limit=1 << 20)
    for size in range(1 << 10, 1 << 18, 1 << 10):
        lent = [lend(pool, size) for _ in range(9)]
        del lent
        assert 0 < pool.idle <= 1 << 20
    before = pool.idle
    lend(pool, 2 << 20)
    assert pool.idle == before


class Caller:
    pass


def test_idle_memory_of_a_call_goes_with_its_kernel() -> None:
    pool, caller = Recycled(limit=1 << 20, largest=3 << 20), Caller()
    pool.expect(caller, 3 << 20)
    lent = lend(pool, 3 << 20)
    del lent
    assert pool.idle == 3 << 20
    del caller
    gc.collect()
    assert pool.idle == 0


def test_outputs_of_a_large_part_of_the_memory_are_not_kept() -> None:
    pool, caller = Recycled(limit=1 << 20, largest=3 << 20), Caller()
    pool.expect(caller, 4 << 20)
    lent = lend(pool, 4 << 20)
    del lent
    assert pool.idle == 0
    del caller


def test_the_outputs_of_a_call_come_back_while_its_kernel_lives() -> None:
    pool, caller = Recycled(limit=1 << 20), Caller()
    pool.expect(caller, 3 << 20)
    lent = [lend(pool, 1 << 20) for _ in range(3)]
    addresses = {address for _, address in lent}
    del lent
    assert pool.idle == 3 << 20
    again = [lend(pool, 1 << 20) for _ in range(3)]
    assert {address for _, address in again} == addresses
    del caller, again
    gc.collect()
    assert pool.idle <= 1 << 20


def test_outputs_that_are_kept_keep_their_values() -> None:
    kernel = filled()
    kept = [kernel(np.int64(value))[0] for value in range(4)]
    parts = [kernel(np.int64(10 + value))[0][7:9] for value in range(4)]
    for value in range(100, 120):
        assert (kernel(np.int64(value))[0] == value).all()
    assert [set(array.tolist()) for array in kept] == [{0}, {1}, {2}, {3}]
    assert [part.tolist() for part in parts] == [[10, 10], [11, 11], [12, 12], [13, 13]]


def test_a_dropped_output_is_the_next_ones_memory() -> None:
    kernel = filled()
    seen = {kernel(np.int64(value))[0].ctypes.data for value in range(20)}
    assert len(seen) <= 2


def test_tensors_too() -> None:
    torch = pytest.importorskip("torch")
    kernel = filled()
    kept = [kernel(torch.tensor(value))[0] for value in range(3)]
    views = [kernel(torch.tensor(10 + value))[0][5] for value in range(3)]
    addresses = {kernel(torch.tensor(value))[0].data_ptr() for value in range(20)}
    assert len(addresses) <= 2
    assert [tensor.unique().tolist() for tensor in kept] == [[0], [1], [2]]
    assert [view.item() for view in views] == [10, 11, 12]
    assert all(tensor.data_ptr() % 64 == 0 for tensor in kept)


def test_exports_keep_the_memory() -> None:
    kernel = filled()
    export = np.from_dlpack(kernel(np.int64(5))[0])
    for value in range(20):
        kernel(np.int64(value))
    assert (export == 5).all()


def test_callers_from_many_threads_never_share_an_output() -> None:
    kernel = filled()

    def work(number: int) -> bool:
        fine = True
        for value in range(number, number + 400, 20):
            first, second = kernel(np.int64(value))[0], kernel(np.int64(-value))[0]
            fine = fine and bool((first == value).all() and (second == -value).all())
        return fine

    with concurrent.futures.ThreadPoolExecutor(6) as executor:
        assert all(executor.map(work, range(1, 13)))
