"""Batches of programs through child processes, each replaced when it dies or hangs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.child import Child

#: Programs that are compiled together.
BATCH = 12
#: Operation, dtype, seed and number of a program.
Asked = tuple[str, str, int, int]
#: The same, and the class that it is drawn for.
Wished = tuple[str, str, int, int, str]


@dataclass(frozen=True)
class Case:
    """One program by what it is made from, and what became of it."""

    op: str
    dtype: str
    number: int
    outcome: str
    reason: str
    #: What it has of each attribute, where the child says so.
    classes: tuple[str, ...] = ()
    #: The class that it is drawn for, if any.
    wish: str = ""


def cases(
    chosen: Sequence[tuple[str, str]],
    programs: int,
    seed: int,
    level: int = 1,
    progress: Callable[[int], None] = lambda _: None,
    target: str = "",
    module: str = "tests.ops.generated.child",
) -> Iterator[Case]:
    """About ``programs`` of them, the same number for every pair of operation and dtype that is ``chosen``;
    ``level`` is the optimization level. With a ``target`` they are compiled for it and not run. ``module``
    is the child process that judges, with its options.
    """
    share = -(-programs // max(len(chosen), 1))
    asked = [
        (op, dtype, seed, number)
        for op in dict.fromkeys(name for name, _ in chosen)
        for number in range(share)
        for dtype in (dtype for name, dtype in chosen if name == op)
    ]
    return these(asked, level, progress, target, module)


def these(
    asked: Sequence[Asked | Wished],
    level: int = 1,
    progress: Callable[[int], None] = lambda _: None,
    target: str = "",
    module: str = "tests.ops.generated.child",
) -> Iterator[Case]:
    """The programs that are asked for; neighbors of one operation are compiled together."""
    child, how = Child("-m", *module.split()), (level, target)
    done = 0
    try:
        for _, group in itertools.groupby(asked, lambda request: request[0]):
            for batch in _batches(list(group)):
                yield from _batch(child, how, batch)
                done += len(batch)
                progress(done)
    finally:
        child.close()


def _batches(group: Sequence[Asked | Wished]) -> Iterator[Sequence[Asked | Wished]]:
    for first in range(0, len(group), BATCH):
        yield group[first : first + BATCH]


def _batch(child: Child, how: tuple[int, str], asked: Sequence[Asked | Wished]) -> Iterator[Case]:
    line = child.ask(json.dumps([*how, list(asked)]))
    if not line and len(asked) > 1:
        half = len(asked) // 2
        yield from _batch(child, how, asked[:half])
        yield from _batch(child, how, asked[half:])
        return
    end = ["crash", f"the process ended with status {child.status}"]
    for (op, dtype, _, number, *wish), verdict in zip(
        asked, json.loads(line) if line else [end], strict=True
    ):
        outcome, reason, *classes = verdict
        yield Case(op, dtype, number, outcome, reason, tuple(classes), "".join(wish))
