"""Small outputs are the caller's own for as long as anything that was made of them lives."""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kcache_grpc.runtime.cpu._abi import ffi
from kcache_grpc.runtime.cpu.outputs import COUNTS_ARE_EXACT, OutputSet, packed, ring

pytestmark = pytest.mark.skipif(not COUNTS_ARE_EXACT, reason="counts of references are not exact here")
F32 = np.dtype(np.float32)
VIEWS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x,
    "slice": lambda x: x[1:3],
    "slice of a slice": lambda x: x[1:][:2],
    "other dtype": lambda x: x.view(np.uint8),
    "other shape": lambda x: x.reshape(2, -1).T,
    "memoryview": memoryview,
    "slice of a memoryview": lambda x: memoryview(x)[1:],
    "base": lambda x: x.base,
    "through the buffer protocol": lambda x: np.frombuffer(memoryview(x), np.uint8),
    "dlpack": np.from_dlpack,
    "iterator": iter,
}


def small(count: int = 1) -> Callable[[], OutputSet]:
    return ring([(F32, (8,))] * count, [64 * n for n in range(count)], 64 * count, tuple)


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("name", list(VIEWS))
@pytest.mark.parametrize("count", [1, 2])
def test_what_was_made_of_an_output_keeps_its_memory(name: str, count: int) -> None:
    take = small(count)
    outputs, _ = take()
    place, view = address(outputs[-1]), VIEWS[name](outputs[-1])
    del outputs
    for _ in range(50):
        others, _ = take()
        assert place not in map(address, others)
        del others
    del view


def test_memory_that_nobody_sees_is_used_again() -> None:
    take = small()
    assert len({address(take()[0][0]) for _ in range(100)}) <= 2


def test_kept_outputs_are_apart_and_aligned() -> None:
    take = small(3)
    kept = [output for _ in range(100) for output in take()[0]]
    starts = sorted(map(address, kept))
    assert all(start % 64 == 0 for start in starts)
    assert all(b - a >= 32 for a, b in itertools.pairwise(starts))


def test_pointers_are_those_of_the_arrays() -> None:
    constant = ffi.new("char[]", 4)
    layout = [(F32, (2, 4)), (np.dtype(np.int8), ())]
    (first, second), (head, *pointers) = ring(layout, [0, 64], 128, lambda tail: (constant, *tail))()
    assert head is constant
    assert [int(ffi.cast("uintptr_t", pointer)) for pointer in pointers] == [address(first), address(second)]
    (first, second), addresses = ring(layout, [0, 64], 128, packed)()
    assert struct.unpack("2P", addresses) == (address(first), address(second))
    assert (first.shape, second.shape, second.dtype) == ((2, 4), (), np.int8)


def test_threads_never_share() -> None:
    take = small()
    wrong: list[int] = []

    def work(number: int) -> None:
        kept: list[Any] = []
        for turn in range(3000):
            [output], _ = take()
            output[:] = number
            kept = [*kept[-turn % 5 :], output] if turn % 5 else [output]
            if any((block != number).any() for block in kept):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("name", list(VIEWS))
def test_what_was_made_of_a_lone_output_keeps_its_memory(name: str) -> None:
    take = small()
    seen: list[Any] = []
    for _ in range(20):
        [output], _ = take()
        place = address(output)
        assert place % 64 == 0
        assert place not in [kept for kept, _ in seen]
        seen.append((place, VIEWS[name](output)))
        del output


def test_threads_never_share_a_lone_output() -> None:
    take = small()
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(300):
            mark = number * 1000 + turn + 1
            [output], _ = take()
            output[...] = mark
            if output[0] != mark:
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
