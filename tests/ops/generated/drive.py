"""Batches of programs through child processes, each replaced when it dies or hangs."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

#: Programs that are compiled together.
BATCH = 12
#: Seconds for a batch.
_TIMEOUT = 240.0
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
    """The programs that are asked for; neighbours of one operation are compiled together."""
    child = _Child(level, target, module)
    done = 0
    try:
        for _, group in itertools.groupby(asked, lambda request: request[0]):
            for batch in _batches(list(group)):
                yield from _batch(child, batch)
                done += len(batch)
                progress(done)
    finally:
        child.close()


def _batches(group: Sequence[Asked | Wished]) -> Iterator[Sequence[Asked | Wished]]:
    for first in range(0, len(group), BATCH):
        yield group[first : first + BATCH]


def _batch(child: _Child, asked: Sequence[Asked | Wished]) -> Iterator[Case]:
    verdicts = child.ask(asked)
    if verdicts is None and len(asked) > 1:
        half = len(asked) // 2
        yield from _batch(child, asked[:half])
        yield from _batch(child, asked[half:])
        return
    for (op, dtype, _, number, *wish), verdict in zip(asked, verdicts or [["crash", child.end]], strict=True):
        outcome, reason, *classes = verdict
        yield Case(op, dtype, number, outcome, reason, tuple(classes), "".join(wish))


class _Child:
    """A process that judges; started when it is asked."""

    def __init__(self, level: int, target: str, module: str) -> None:
        self._how = level, target
        self._module = module
        self._process: subprocess.Popen[str] | None = None
        #: How the last one ended.
        self.end = ""

    def ask(self, asked: Sequence[Asked | Wished]) -> list[list[str]] | None:
        """Outcome, reason and classes of each, or None when the process ended over them."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self._module.split()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        alarm = threading.Timer(_TIMEOUT, process.kill)
        alarm.start()
        try:
            process.stdin.write(json.dumps([*self._how, list(asked)]) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            alarm.cancel()
        if not line:
            self.end = f"the process ended with status {process.wait()}"
            self.close()
            return None
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
