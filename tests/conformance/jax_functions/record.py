"""What was seen of each function, in a file: a line of JSON for each mode and function."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.conformance.jax_functions.run import Outcome

#: Outcomes of a function that is not right.
BAD = ("rejected", "wrong", "error", "crash")


class Record:
    """Outcomes by mode and name, kept in ``path`` where there is one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.outcomes: dict[tuple[str, str], list[Outcome]] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                mode, name, rows = json.loads(line)
                self.outcomes[mode, name] = [Outcome(name, *fields) for fields in rows]

    def add(self, mode: str, outcomes: list[Outcome]) -> None:
        """Keep the outcomes of one function."""
        name = outcomes[0].name
        self.outcomes[mode, name] = outcomes
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(
                    json.dumps(
                        [mode, name, [[outcome.what, outcome.how, outcome.why] for outcome in outcomes]]
                    )
                    + "\n"
                )

    def summary(self, mode: str, names: list[str]) -> Summary:
        """What became of those functions of ``names`` that were run."""
        return Summary([self.outcomes[mode, name] for name in names if (mode, name) in self.outcomes])


class Summary:
    """Counts over functions."""

    def __init__(self, groups: list[list[Outcome]]) -> None:
        self.functions = len(groups)
        self.bad = [outcome for outcomes in groups for outcome in outcomes if outcome.how in BAD]
        self.failed = len({outcome.name for outcome in self.bad})
        self.counts = {
            what: Counter(outcome.how for outcomes in groups for outcome in outcomes if outcome.what == what)
            for what in ("forward", "gradient")
        }

    def text(self) -> str:
        """Counts forward and gradient, and the share of functions of which both are right."""
        lines = [
            f"{what}: {', '.join(f'{how} {n}' for how, n in sorted(counts.items()))}"
            for what, counts in self.counts.items()
        ]
        right = self.functions - self.failed
        share = f", {right / self.functions:.1%}" if self.functions else ""
        return "\n".join([*lines, f"{right} of {self.functions} functions right{share}"])
