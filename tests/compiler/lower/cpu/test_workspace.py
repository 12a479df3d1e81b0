"""Areas and slots of the workspace: what lives at one time is apart, and the free slot that fits best is
taken.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kcache_compiler.lower.cpu.workspace import Slots, ends, lowest_offsets
from kcache_compiler.shapes.formula import Formula, evaluate, text

_SIZES: st.SearchStrategy[Formula] = st.sampled_from([64, 64, 128, 192, 4096, "s0", ("*", 64, "s0"), "s1"])
_LIVES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6), _SIZES), max_size=40)


@given(_LIVES)
def test_the_smallest_free_slot_that_is_large_enough_is_taken(lives: list[tuple[int, int, Formula]]) -> None:
    slots = Slots()
    busy: list[int] = []
    for first, length, size in sorted(lives, key=lambda life: life[0]):
        before = list(slots.sizes)
        free = [number for number, until in enumerate(busy) if until < first]
        taken = slots.place(size, first, first + length)
        if taken == len(busy):
            busy.append(first + length)
        else:
            assert taken in free
            busy[taken] = first + length
        assert taken == _best(before, free, size)


def _best(sizes: list[Formula], free: list[int], size: Formula) -> int:
    """The slot by the rule, read from all that are free; the next new one where none does."""
    if not isinstance(size, int):
        equal = [number for number in free if sizes[number] == size]
        wider = [number for number in free if size == "s0" and sizes[number] == ("*", 64, "s0")]
        return next(iter([*equal, *wider]), len(sizes))
    known = [(have, number) for number in free if isinstance(have := sizes[number], int)]
    enough = [interval for interval in known if interval[0] >= size]
    if enough:
        return min(enough)[1]
    return max(known)[1] if known else len(sizes)


def test_places_in_a_long_program_are_short_formulas() -> None:
    row = ("*", 4, "s0")
    sizes: list[Formula] = [64, row, "s1"] * 2000
    offsets = ends(sizes)
    symbols = {"s0": 7, "s1": 11}
    assert [evaluate(offset, symbols) for offset in offsets[2::3]] == [
        n * (64 + 28 + 11) for n in range(1, 2001)
    ]
    assert max(len(text(offset)) for offset in offsets) < 40


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6), st.sampled_from([64, 128, 640])), max_size=40)
)
def test_buffers_of_an_area_that_are_live_together_are_apart(lives: list[tuple[int, int, int]]) -> None:
    buffers = [(first, first + length, size) for first, length, size in lives]
    offsets, end = lowest_offsets(buffers)
    spans = [(offset, offset + size) for offset, (*_, size) in zip(offsets, buffers, strict=True)]
    assert end == max((stop for _, stop in spans), default=0)
    for number, (begin, stop) in enumerate(spans):
        first, last, _ = buffers[number]
        for other in range(number):
            together = buffers[other][0] <= last and first <= buffers[other][1]
            assert not together or stop <= spans[other][0] or spans[other][1] <= begin


def test_small_buffers_share_the_bytes_of_a_large_one() -> None:
    assert lowest_offsets([(0, 1, 640), (2, 5, 320), (2, 3, 320), (4, 5, 256)]) == ([0, 0, 320, 320], 640)
