"""Functions through a child process, which is replaced when it dies or hangs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from tests.child import Child
from tests.conformance.jax_functions.run import Outcome


def driven(
    names: Sequence[str], mode: str, judge: str = "tests.conformance.jax_functions.child"
) -> Iterator[list[Outcome]]:
    """The outcomes of each function, by the module ``judge``; ``crash`` where the process ended."""
    child = Child("-m", judge, mode)
    try:
        for name in names:
            answer = child.ask(name)
            if answer:
                yield [Outcome(name, *fields) for fields in json.loads(answer)]
            else:
                yield [Outcome(name, "forward", "crash", f"the process ended with status {child.status}")]
    finally:
        child.close()
