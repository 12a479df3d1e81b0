"""What clients were told, and whether some order of inserts that never overwrite explains all of it.

Everything a client can ask for is a register that is written once: the key of a program, the kernel of a
program, the text under a key. For such registers an order exists exactly when

- all answers with a value agree on it, and it was offered before it was seen;
- no answer says "absent" to a question that was asked after somebody had been told of a value.

Keys are unique, count from 1 without a gap, and a count lies between what was surely there when it was asked
and what may have been there when it was answered.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Answer:
    """One question and what came of it. Times in seconds on one clock of the observer.

    ``value`` ``None``: "absent". ``writes``: the question itself may have stored the value.
    """

    register: Hashable
    value: Hashable | None
    asked: float
    answered: float
    writes: bool
    who: str = ""


@dataclass(frozen=True)
class Count:
    """How many keys somebody was told there are."""

    value: int
    asked: float
    answered: float


@dataclass
class History:
    """All answers, and the questions that got none, which may have stored something all the same."""

    answers: list[Answer] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    #: (register, asked): writes without an answer.
    lost: list[tuple[Hashable, float]] = field(default_factory=list)


def violations(history: History, keys: Iterable[Hashable] = (), window: float = 0.0) -> list[str]:
    """What no order of never-overwriting inserts explains; empty when all is well.

    ``keys`` are the registers whose values are keys of the one counter. ``window``: seconds in which a server
    may not know yet of what another published.
    """
    problems: list[str] = []
    by_register: dict[Hashable, list[Answer]] = defaultdict(list)
    for answer in history.answers:
        by_register[answer.register].append(answer)
    offered: dict[Hashable, float] = {}
    for register, asked in history.lost:
        offered[register] = min(asked, offered.get(register, asked))
    for register, answers in by_register.items():
        problems += _of_register(register, answers, offered.get(register), window)
    return problems + _of_keys(history, by_register, list(keys))


def _of_register(
    register: Hashable, answers: Sequence[Answer], offered: float | None, window: float
) -> list[str]:
    told = [answer for answer in answers if answer.value is not None]
    values = {answer.value for answer in told}
    problems = [f"{register} was told as {len(values)} values: {values}"] if len(values) > 1 else []
    offers = [answer.asked for answer in answers if answer.writes] + ([] if offered is None else [offered])
    first_offer = min(offers, default=float("inf"))
    problems += [
        f"{register} was seen before anybody offered it: {a}" for a in told if a.answered < first_offer
    ]
    known_from = min((answer.answered for answer in told), default=float("inf"))
    problems += [
        f"{register} was lost: known at {known_from:.3f}, absent to {answer}"
        for answer in answers
        if answer.value is None and answer.asked > known_from + window
    ]
    return problems


def _of_keys(
    history: History, by_register: dict[Hashable, list[Answer]], keys: Sequence[Hashable]
) -> list[str]:
    problems: list[str] = []
    holder: dict[Hashable, Hashable] = {}
    surely: list[float] = []
    maybe: list[float] = []
    lost = dict(history.lost)
    for register in keys:
        answers = by_register.get(register, [])
        values = {answer.value for answer in answers if answer.value is not None}
        others = [(value, holder.setdefault(value, register)) for value in values]
        problems += [
            f"key {value} was given to {o} and to {register}" for value, o in others if o != register
        ]
        known = [answer.answered for answer in answers if answer.value is not None]
        if known:
            surely.append(min(known))
        offers = [answer.asked for answer in answers if answer.writes]
        if register in lost:
            offers.append(min(asked for name, asked in history.lost if name == register))
        if offers:
            maybe.append(min(offers))
    for count in history.counts:
        least = sum(1 for known in surely if known < count.asked)
        most = sum(1 for asked in maybe if asked < count.answered)
        if not least <= count.value <= most:
            problems.append(f"{count} is outside of [{least}, {most}]")
    ordered = sorted(history.counts, key=lambda count: count.answered)
    for earlier, later in itertools.pairwise(ordered):
        if later.asked > earlier.answered and later.value < earlier.value:
            problems.append(f"the count fell: {earlier}, then {later}")
    return problems


def final_keys(keys: dict[Hashable, int], last: int, stored: Sequence[int]) -> list[str]:
    """Whether keys at rest are 1..n, each acknowledged one among them. ``given``: what clients were told."""
    problems = []
    if list(stored) != list(range(1, last + 1)):
        problems.append(f"the counter stands at {last}, keys are {stored}")
    problems += [
        f"{register} was given key {key}, which is not there" for register, key in keys.items() if key > last
    ]
    return problems
