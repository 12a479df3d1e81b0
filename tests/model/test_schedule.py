"""Schedule choices as texts: one text for equal choices, and the winner of what was measured."""

from __future__ import annotations

import pytest

from kcache_compiler.schedule import choices as compiler
from kcache_grpc import ArgumentError, Options
from kcache_grpc.client.tuning.search import ORDER
from kcache_grpc.model.schedule import (
    CHOICES,
    COMMON,
    REPORTED,
    canonical_schedule,
    choices_of,
    is_known,
    winner_of_sizes,
    with_choice,
)


def test_clients_know_the_choices_of_the_compiler() -> None:
    assert dict(CHOICES) == dict(compiler.CHOICES)
    assert COMMON == compiler.COMMON


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        ("grain:1", ""),
        ("unroll:on,grain:4", "grain:4,unroll:on"),
        (" grain:1/4 , tile:auto", "grain:1/4"),
    ],
)
def test_equal_choices_are_one_text(text: str, canonical: str) -> None:
    assert canonical_schedule(text) == canonical
    assert Options(schedule=text) == Options(schedule=canonical)


def test_defaults_are_in_no_key() -> None:
    assert str(Options(schedule="grain:1,tile:auto,unroll:off")) == str(Options())


@pytest.mark.parametrize(
    ("schedule", "named"),
    [
        ("speed:9", "fuse, gpu_bytes"),
        ("grain:5", "1, 1/4, 4, 16"),
        ("grain:4,grain:4", "twice"),
        ("grain", "use one of"),
    ],
)
def test_what_is_no_choice_is_rejected_with_what_there_is(schedule: str, named: str) -> None:
    with pytest.raises(ArgumentError, match=named):
        canonical_schedule(schedule)
    assert not is_known(schedule)


def test_a_choice_is_changed_alone() -> None:
    assert with_choice("grain:4,unroll:on", "grain", "16") == "grain:16,unroll:on"
    assert with_choice("grain:4,unroll:on", "grain", "1") == "unroll:on"


@pytest.mark.parametrize(
    ("timings", "best"),
    [
        (
            [("s0=1", "", 100), ("s0=1", "grain:4", 50), ("s0=9", "", 100), ("s0=9", "grain:4", 150)],
            "grain:4",
        ),
        ([("s0=1", "", 100), ("s0=1", "grain:4", 50), ("s0=9", "", 100), ("s0=9", "grain:4", 210)], ""),
        ([("s0=1", "", 100), ("s0=1", "grain:4", 50), ("s0=9", "", 100)], ""),
        ([("s0=1", "", 100), ("s0=1", "grain:4", 50), ("s0=9", "grain:4", 900)], "grain:4"),
    ],
    ids=["wins by the mean", "loses more elsewhere", "unknown elsewhere", "nothing to compare with there"],
)
def test_over_sizes_the_geometric_mean_decides(timings: list[tuple[str, str, int]], best: str) -> None:
    assert winner_of_sizes(timings) == best


@pytest.mark.parametrize("gpu", [False, True])
def test_the_longest_schedule_is_none_too_long(gpu: bool) -> None:
    longest = ",".join(f"{name}:{max(values[1:], key=len)}" for name, values in choices_of(gpu).items())
    assert canonical_schedule(longest) == longest


def test_the_search_knows_every_choice() -> None:
    assert sorted([*ORDER, REPORTED]) == sorted(CHOICES)


@pytest.mark.parametrize(
    ("timings", "best"),
    [
        ([], ""),
        ([("", 100), ("grain:4", 90)], "grain:4"),
        ([("", 100), ("grain:4", 98)], ""),
        ([("grain:4", 90)], ""),
        ([("", 100), ("speed:9", 10), ("grain:4", 90)], "grain:4"),
    ],
    ids=["none", "faster", "noise", "without the default", "unknown here"],
)
def test_the_winner_beats_the_default_clearly(timings: list[tuple[str, int]], best: str) -> None:
    assert winner_of_sizes([("", *timing) for timing in timings]) == best
