"""Functions through a child process, which is replaced when it dies or hangs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

from tests.conformance.jax_functions.run import Outcome

#: Seconds for a function and its gradient.
_TIMEOUT = 240.0


def driven(
    names: Sequence[str], mode: str, judge: str = "tests.conformance.jax_functions.child"
) -> Iterator[list[Outcome]]:
    """The outcomes of each function, by the module ``judge``; ``crash`` where the process ended."""
    child: subprocess.Popen[str] | None = None
    try:
        for name in names:
            child = child or _child(judge, mode)
            answer = _asked(child, name)
            if answer:
                yield [Outcome(name, *fields) for fields in json.loads(answer)]
                continue
            child.kill()
            child.communicate()
            why = f"the process ended with status {child.returncode}"
            child = None
            yield [Outcome(name, "forward", "crash", why)]
    finally:
        if child is not None:
            child.kill()
            child.communicate()


def _child(judge: str, mode: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", judge, mode]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)


def _asked(child: subprocess.Popen[str], name: str) -> str:
    assert child.stdin is not None
    assert child.stdout is not None
    alarm = threading.Timer(_TIMEOUT, child.kill)
    alarm.start()
    try:
        child.stdin.write(name + "\n")
        child.stdin.flush()
        return child.stdout.readline()
    except BrokenPipeError:
        return ""
    finally:
        alarm.cancel()
