"""Processes of contenders: started one after another, asked in turns, ended together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.models.child import REFERENCE, REFERENCE_FILE

#: Seconds before each round, in which threads of the others that spin go to sleep.
_SETTLE = 0.3
#: The relative error of rounding to a type, which eager mode is assumed to have at least.
_ROUNDING = {"f32": 2.0**-24, "bf16": 2.0**-9}


class Contender:
    """One process; ``first`` is what it said at its start, a ``reason`` where it does not measure."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        timeout: float,
    ) -> None:
        self.name = name
        self.rounds: list[float] = []
        self._timeout = timeout
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", *command],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.first: dict[str, Any] = self._answer()

    def round(self, budget: float, clock: str) -> None:
        """Measure; a process that dies has a reason from then on, and no more rounds."""
        if "reason" in self.first:
            return
        time.sleep(_SETTLE)
        assert self._process.stdin is not None
        try:
            print(budget, clock, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            self.first = {"reason": self._end()}
            return
        answer = self._answer()
        if "reason" in answer:
            self.first = answer
        else:
            self.rounds.append(answer["seconds"])

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        """The next line, or the reason why there is none."""
        assert self._process.stdout is not None
        timer = threading.Timer(self._timeout, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        expired = not timer.is_alive()
        timer.cancel()
        if line:
            return json.loads(line)
        return {"reason": f"no answer within {self._timeout:.0f} s" if expired else self._end()}

    def _end(self) -> str:
        return f"its process ended with status {self._process.wait()}"


def measured(
    model: str,
    dtype: str,
    threads: int,
    names: Sequence[str],
    rounds: int,
    budget: float,
    timeout: float,
    folder: Path,
    address: str,
    child: str = "benchmarks.models.child",
    clock: str = "wall",
) -> dict[str, Any]:
    """A row: seconds by contender and round, or reasons; ``error`` is that of the reference in ``dtype``.

    ``child`` is the module that a contender's process runs.
    """
    environment = {
        "KCACHE_ADDR": address,
        "KCACHE_CACHE_DIR": str(folder / "cache"),
        "KCACHE_NUM_THREADS": str(threads),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }

    def start(name: str) -> Contender:
        place = folder / name
        place.mkdir(exist_ok=True)
        here = folder if name == REFERENCE else place
        if name != REFERENCE and not (place / REFERENCE_FILE).exists():
            (place / REFERENCE_FILE).symlink_to(folder / REFERENCE_FILE)
        return Contender(name, [child, model, dtype, name, str(threads), str(here)], environment, timeout)

    reference = start(REFERENCE)
    reference.stop()
    if "reason" in reference.first:
        return {"reason": reference.first["reason"]}
    error = reference.first["error"]
    contenders: list[Contender] = []
    try:
        for name in names:
            contenders.append(start(name))
            _judge(contenders[-1], 2 * max(error, _ROUNDING[dtype]))
        for number in range(rounds):
            at = number % len(contenders)
            for contender in contenders[at:] + contenders[:at]:
                contender.round(budget, clock)
    finally:
        for contender in contenders:
            contender.stop()
    return {
        "error": error,
        "contenders": {each.name: {**each.first, "seconds": each.rounds} for each in contenders},
    }


def _judge(contender: Contender, most: float) -> None:
    """Takes part only if its error is at most ``most``."""
    if "reason" not in contender.first and contender.first["error"] > most:
        wrong = f"wrong: its error is {contender.first['error']:.1e}, more than {most:.1e}"
        contender.first = {**contender.first, "reason": wrong}
