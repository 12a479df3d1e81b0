"""Timings of schedule choices: inserted once, never lost to another, found fastest first."""

from __future__ import annotations

import concurrent.futures
from dataclasses import replace

import pytest

from kcache_grpc.storage.contract.autotune import AutotuneStore, Timing
from kcache_grpc.storage.errors import InvalidValue
from tests.storage.drafts import sha256

SUBJECT = sha256("spec, target, options")
WHERE = (SUBJECT, "f32[64,64]", "znver4 x2")


def timing(config: str, nanoseconds: int = 1000, **changes: object) -> Timing:
    return replace(Timing(*WHERE[:2], config, WHERE[2], nanoseconds, 7), **changes)


def configs(store, ns) -> list[str]:
    return [record.timing.config for record in store.list_timings(ns, *WHERE)]


def test_choices_come_fastest_first_and_of_equals_the_older(store, ns, time):
    assert store.list_timings(ns, *WHERE) == ()
    assert store.add_timings(ns, [timing("b", 30), timing("a", 20)]) == 2
    at = time.clock.wall()
    time.advance(1)
    assert store.add_timings(ns, [timing("c", 25)]) == 1
    time.advance(1)
    assert store.add_timings(ns, [timing("d", 20)]) == 1
    assert configs(store, ns) == ["a", "d", "c", "b"]
    first = store.list_timings(ns, *WHERE)[0]
    assert (first.timing, first.created_at) == (timing("a", 20), at)


def test_a_timing_is_never_overwritten_and_a_new_choice_discards_none(store, ns, time):
    store.add_timings(ns, [timing("a", 20), timing("b", 30)])
    before = store.list_timings(ns, *WHERE)
    time.advance(5)
    assert store.add_timings(ns, [timing("a", 1), timing("b", 99, samples=1), timing("c", 40)]) == 1
    assert store.list_timings(ns, *WHERE)[:2] == before
    assert configs(store, ns) == ["a", "b", "c"]
    assert store.add_timings(ns, [timing("e", 5), timing("e", 6)]) == 1
    assert store.list_timings(ns, *WHERE)[0].timing.nanoseconds == 5
    assert store.add_timings(ns, []) == 0


def test_every_part_of_the_name_counts(store, ns):
    other = store.get_or_create_namespace("other")
    store.add_timings(ns, [timing("a")])
    assert (
        store.add_timings(
            ns,
            [timing("a", subject=sha256("another")), timing("a", shape="f32[8]"), timing("a", device="x1")],
        )
        == 3
    )
    assert store.add_timings(other, [timing("a", 5), timing("b", 6)]) == 2
    assert configs(store, ns) == ["a"]
    assert configs(store, other) == ["a", "b"]


def test_all_shapes_of_a_subject(store, ns):
    store.add_timings(ns, [timing("a", 20, shape="s0=8"), timing("b", 10, shape="s0=8")])
    store.add_timings(ns, [timing("a", 30, shape="s0=16"), timing("a", 1, device="x1")])
    store.add_timings(ns, [timing("a", 1, subject=sha256("another"))])
    timings = store.list_shapes(ns, SUBJECT, WHERE[2])
    assert [(each.timing.shape, each.timing.config, each.timing.nanoseconds) for each in timings] == [
        ("s0=16", "a", 30),
        ("s0=8", "b", 10),
        ("s0=8", "a", 20),
    ]
    assert store.list_shapes(ns, SUBJECT, "nowhere") == ()
    with pytest.raises(InvalidValue):
        store.list_shapes(ns, b"short", "d")


def test_timings_span_epochs(store, ns):
    store.add_timings(ns, [timing("a")])
    assert configs(store, store.raise_epoch(ns)) == ["a"]


def test_a_namespace_keeps_the_youngest(store, ns, monkeypatch):
    monkeypatch.setattr(AutotuneStore, "most_timings", 200)
    other = store.get_or_create_namespace("other")
    store.add_timings(other, [timing(f"other {each:03}", each + 1) for each in range(150)])
    for start in range(0, 200, 20):
        batch = [timing(f"choice {each:03}", each + 1) for each in range(start, start + 20)]
        assert store.add_timings(ns, batch) == 20
    assert len(configs(store, ns)) == 200
    assert store.add_timings(ns, [timing("choice 000", 7)]) == 0
    assert store.add_timings(ns, [timing("choice 200", 201)]) == 1
    assert configs(store, ns) == [f"choice {each:03}" for each in range(3, 201)]
    assert len(configs(store, other)) == 150
    # What went may come again.
    assert store.add_timings(ns, [timing("choice 000", 300)]) == 1
    assert configs(store, ns)[-1] == "choice 000"


def test_tuners_at_once_agree(store, ns):
    def tune(number: int) -> int:
        return store.add_timings(ns, [timing(f"choice {each}", number) for each in range(20)])

    with concurrent.futures.ThreadPoolExecutor(6) as executor:
        assert sum(executor.map(tune, range(1, 13))) == 20
    assert sorted(configs(store, ns)) == sorted(f"choice {each}" for each in range(20))
    assert store.list_timings(ns, *WHERE) == store.list_timings(ns, *WHERE)


@pytest.mark.parametrize(
    "change",
    [
        {"subject": b"short"},
        {"shape": "x" * 801},
        {"config": "nul\0"},
        {"device": "\ud800"},
        {"nanoseconds": 0},
        {"nanoseconds": 2**63},
        {"samples": 0},
    ],
)
def test_what_cannot_be_stored_is_rejected_whole(store, ns, change):
    with pytest.raises(InvalidValue):
        store.add_timings(ns, [timing("fine"), replace(timing("a"), **change)])
    assert configs(store, ns) == []


def test_look_ups_are_checked(store, ns):
    for subject, shape, device in [(b"", "s", "d"), (SUBJECT, "\0", "d"), (SUBJECT, "s", "\0")]:
        with pytest.raises(InvalidValue):
            store.list_timings(ns, subject, shape, device)


@pytest.mark.issue(number=20, point=4)
def test_a_subject_is_listed_with_all_shapes_and_devices_by_name(store, ns):
    other = timing("b", device="aarch64 x8")
    store.add_timings(ns, [timing("b", 30), timing("a", 99), other, timing("a", subject=sha256("other"))])
    listed = [record.timing for record in store.list_subject(ns, SUBJECT)]
    assert listed == [other, timing("a", 99), timing("b", 30)]
    assert store.list_subject(ns, sha256("never tuned")) == ()
