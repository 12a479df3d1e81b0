"""The checker itself: it accepts what a correct store says, and rejects every planted lie."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.system.chaos.history import Answer, Count, History, final_keys, violations


def told(register: str, value: object, asked: float, writes: bool = False) -> Answer:
    return Answer(register, value, asked, asked + 1, writes)  # type: ignore[arg-type]


def correct_run(seed: int) -> History:
    """Clients of a store that is right: every effect happens at one moment between question and answer."""
    chance = random.Random(seed)
    history, keys, kernels = History(), {}, set()
    moment = 0.0
    for _ in range(400):
        moment += chance.random()
        asked, answered = moment - chance.random(), moment + chance.random()
        name = f"p{chance.randrange(30)}"
        match chance.choice(("store", "lookup", "compile", "find", "count", "lost")):
            case "store" | "compile" as what:
                key = keys.setdefault(name, len(keys) + 1)
                history.answers.append(Answer(("key", name), key, asked, answered, True))
                if what == "compile":
                    kernels.add(name)
                    history.answers.append(Answer(("kernel", name), f"k-{name}", asked, answered, True))
            case "lookup":
                history.answers.append(Answer(("key", name), keys.get(name), asked, answered, False))
            case "find":
                value = f"k-{name}" if name in kernels else None
                history.answers.append(Answer(("kernel", name), value, asked, answered, False))
            case "count":
                history.counts.append(Count(len(keys), asked, answered))
            case _:
                if chance.random() < 0.5:
                    keys.setdefault(name, len(keys) + 1)
                history.lost.append((("key", name), asked))
    return history


NAMES = [("key", f"p{number}") for number in range(30)]


@pytest.mark.parametrize("seed", range(20))
def test_a_correct_run_has_an_order(seed):
    history = correct_run(seed)
    assert sum(answer.value is None for answer in history.answers) > 5
    assert violations(history, NAMES) == []


@pytest.mark.parametrize("seed", range(20))
def test_any_single_lie_is_found(seed):
    history = correct_run(seed)
    chance = random.Random(seed)
    last = max(answer.answered for answer in history.answers)
    known = [answer for answer in history.answers if answer.value is not None]
    answer = chance.choice(known)
    late = replace(answer, asked=last + 1, answered=last + 2, writes=False)
    for lie in (replace(late, value="another"), replace(late, value=None)):
        assert violations(replace(history, answers=[*history.answers, lie]), NAMES)
    count = Count(
        len({a.register for a in known if "key" in a.register})  # type: ignore[operator]
        + 99,
        last + 1,
        last + 2,
    )
    assert violations(replace(history, counts=[*history.counts, count]), NAMES)
    low = Count(0, last + 1, last + 2)
    assert violations(replace(history, counts=[*history.counts, low]), NAMES)


def test_two_names_with_one_key_are_found():
    history = History([told("a", 1, 0, True), told("b", 1, 0, True)])
    assert any("key 1" in each for each in violations(history, ["a", "b"]))


def test_a_value_before_its_offer_is_found():
    history = History([told("a", 1, 0), told("a", 1, 5, True)])
    assert any("before anybody offered" in each for each in violations(history))
    assert violations(replace(history, lost=[("a", -1.0)])) == []


def test_absence_within_the_window_is_allowed():
    history = History([told("a", 1, 0, True), told("a", None, 1.5)])
    assert violations(history)
    assert violations(history, window=1.0) == []


def test_keys_at_rest():
    assert final_keys({"a": 1, "b": 2}, 2, [1, 2]) == []
    assert final_keys({"a": 1, "b": 3}, 2, [1, 2])
    assert final_keys({}, 3, [1, 3])
