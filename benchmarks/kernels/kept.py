"""The file of a run: rows as they are done, whole at any moment, and taken up again by a later run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

#: What may differ between runs whose rows are one run's.
_PASSING = ("date", "load", "resumed")


class Kept:
    """``found`` is what a run found so far. ``path`` is replaced after every row; ``None`` keeps nothing.

    With ``resume`` the rows that ``path`` has are part of this run: all but those of kernels whose process
    died. Raises ``SystemExit`` where they were measured otherwise.
    """

    def __init__(self, path: Path | None, environment: dict[str, Any], *, resume: bool) -> None:
        self._path = path
        self.found: dict[str, Any] = {"environment": environment, "machines": [], "cases": []}
        if resume and path is not None and path.exists():
            self._take_up(json.loads(path.read_text()))

    def _take_up(self, earlier: dict[str, Any]) -> None:
        before, now = earlier["environment"], self.found["environment"]
        names = [name for name in now if name not in _PASSING and before.get(name) != now[name]]
        if names:
            told = ", ".join(f"{name} {before.get(name)!r}, now {now[name]!r}" for name in names)
            raise SystemExit(
                f"{self._path} was measured otherwise ({told}): run without --resume, or as then"
            )
        dates = [*before.get("resumed", []), now["date"]]
        self.found = {**earlier, "environment": {**before, "resumed": dates}}
        self.found["cases"] = [case for case in earlier["cases"] if not case.get("died")]

    def left(self, names: Sequence[str], threads: int) -> list[str]:
        """Of these kernels those without a row for so many threads."""
        done = {case["name"] for case in self.found["cases"] if case["threads"] == threads}
        return [name for name in names if name not in done]

    def add_machine(self, machine: dict[str, Any]) -> None:
        """The newest for each number of threads; the shares in rows are of the limits of their own time."""
        others = [each for each in self.found["machines"] if each["threads"] != machine["threads"]]
        self.found["machines"] = sorted([*others, machine], key=lambda each: each["threads"])
        self._write()

    def add_case(self, case: dict[str, Any]) -> None:
        """A row that is done."""
        self.found["cases"].append(case)
        self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(self.found, indent=1) + "\n")
        part.replace(self._path)


class Allowance:
    """Time for a run: kernels start while it lasts, and what is left is for a run that resumes."""

    def __init__(self, minutes: float | None) -> None:
        self._started = time.monotonic()
        self._seconds = None if minutes is None else 60 * minutes

    @property
    def spent(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._started

    @property
    def over(self) -> bool:
        """Whether no further kernel starts."""
        return self._seconds is not None and self.spent >= self._seconds

    def during(self, lines: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Lines until the time is over, and nothing where it is."""
        if self.over:
            return
        for line in lines:
            yield line
            if self.over:
                return
