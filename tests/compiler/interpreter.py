"""The reference interpreter for tests, and special values to give it."""

from __future__ import annotations

import atexit
import functools
import json
import math
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import ml_dtypes
import numpy as np

from kcache_compiler.types import TensorType

CHILD = Path(__file__).with_name("interpreter_child.py")

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
SPECIALS = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-40, -7.25, 2.0, 100.0]


#: Seconds that one evaluation may take.
TIMEOUT = 240.0


class _Interpreter:
    """A process that evaluates modules, started by the first of them and replaced when it ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - open as long as it

    def evaluate(self, job: tuple[str, list[str]]) -> object:
        """What the process answers. Raises ``AssertionError`` if it ends instead."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        alarm = threading.Timer(TIMEOUT, process.kill)
        alarm.start()
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            alarm.cancel()
        if not line:
            self.close()
            self._errors.seek(0)
            raise AssertionError(f"the interpreter ended: {self._errors.read()[-2000:]}\n{job[0]}")
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[str]:
        command, pipe = [sys.executable, str(CHILD)], subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True)


@functools.cache
def _interpreter() -> _Interpreter:
    """One of this process: to start it takes longer than most evaluations."""
    interpreter = _Interpreter()
    atexit.register(interpreter.close)
    return interpreter


def evaluate(jobs: list[tuple[str, list[str]]]) -> list[list[str]]:
    """Evaluate each (module, arguments); raises on any error."""
    answers: list[list[str]] = []
    for job in jobs:
        answer = _interpreter().evaluate(job)
        assert isinstance(answer, list), f"{answer}\n{job[0]}"
        answers.append(answer)
    return answers


def mlir_type(type: TensorType) -> str:
    element = {"c64": "complex<f32>", "c128": "complex<f64>"}.get(type.dtype, type.dtype)
    return f"tensor<{''.join(f'{d}x' for d in type.dims)}{element}>"


def literal(type: TensorType, content: bytes) -> str:
    return f'dense<"0x{content.hex()}"> : {mlir_type(type)}' if content else f"dense<> : {mlir_type(type)}"


def special(type: TensorType, seed: int, integers: int = 5) -> str:
    """A literal of ``type``: special values for floats, small integers (of both signs) for the others."""
    rng = np.random.default_rng(seed)
    count = math.prod(int(d) for d in type.dims)
    return literal(type, _content(type.dtype, count, rng, integers))


def _content(dtype: str, count: int, rng: np.random.Generator, integers: int) -> bytes:
    if dtype in ("c64", "c128"):
        return _content("f32" if dtype == "c64" else "f64", 2 * count, rng, integers)
    if dtype in FLOATS:
        with np.errstate(all="ignore"):
            return np.resize(rng.permutation(np.array(SPECIALS)), count).astype(FLOATS[dtype]).tobytes()
    if dtype == "i1":
        return rng.integers(0, 2, count).astype(np.uint8).tobytes()
    width = int(dtype.lstrip("ui")) // 8
    low = 0 if dtype.startswith("u") else -integers
    return rng.integers(low, integers + 1, count).astype(f"i{width}").tobytes()
