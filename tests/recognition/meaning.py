"""Whether two programs compute the same, on random arguments, by StableHLO's reference interpreter."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.recognition.mutations import edit

Arrays = list[np.ndarray]

#: Relative error, against the largest value of a result, up to which results are the same: sums may be taken
#: in another order.
TOLERANCE = 1e-5


class Interpreter:
    """A process that evaluates programs; replaced when it dies."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._known: dict[tuple[str, int], tuple[Arrays, Arrays | str]] = {}

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(self, *details: object) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(60)
            assert self._process.stdout is not None
            self._process.stdout.close()

    def __call__(self, text: str, arguments: Arrays) -> Arrays | str:
        """Return the results, or why there are none."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.recognition.meaning_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=Path(__file__).parents[2],
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        sent = [(str(a.dtype), list(a.shape), a.tobytes().hex()) for a in arguments]
        self._process.stdin.write(json.dumps([text, sent]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self.__exit__()
            self._process = None
            return "the interpreter died"
        answer: Any = json.loads(line)
        if isinstance(answer, dict):
            return str(answer["error"])
        return [np.frombuffer(bytes.fromhex(h), np.dtype(d)).reshape(dims) for d, dims, h in answer]

    def remembered(self, text: str, seed: int) -> tuple[Arrays, Arrays | str]:
        """Return random arguments and the results on them; evaluate each program once a seed."""
        if (text, seed) not in self._known:
            inputs = arguments(text, seed)
            self._known[text, seed] = inputs, self(text, inputs)
        return self._known[text, seed]


_NUMPY = {
    "f32": np.float32,
    "f64": np.float64,
    "i32": np.int32,
    "i64": np.int64,
    "i1": np.bool_,
    "f16": np.float16,
}


def arguments(text: str, seed: int) -> Arrays:
    """Return random arguments: floats between 0.2 and 1.7 for even seeds, of both signs for odd ones; small
    integers.
    """
    module = edit.parse(text)
    rng = np.random.default_rng(seed)
    arrays: Arrays = []
    for argument in edit.body(edit.main_of(module)).arguments:
        match = re.fullmatch(r"tensor<((?:\d+x)*)(\w+)>", str(argument.type))
        assert match, argument.type
        dims = [int(d) for d in match[1].split("x") if d]
        kind = np.dtype(_NUMPY[match[2]])
        if kind.kind == "f":
            values = rng.uniform(0.2, 1.7, dims) if seed % 2 == 0 else rng.standard_normal(dims)
        else:
            values = rng.integers(0, 2 if kind == np.bool_ else 4, dims)
        arrays.append(np.asarray(values).astype(kind))
    return arrays


def same(left: Arrays, other: Arrays, tolerance: float = TOLERANCE) -> bool:
    """Whether two results are the same but for rounding."""
    if len(left) != len(other):
        return False
    return all(_same(a, b, tolerance) for a, b in zip(left, other, strict=True))


def _same(left: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    if left.dtype != other.dtype or left.shape != other.shape:
        return False
    if left.dtype.kind != "f":
        return bool(np.array_equal(left, other))
    finite = np.isfinite(left)
    if not np.array_equal(np.where(finite, 0, left), np.where(np.isfinite(other), 0, other), equal_nan=True):
        return False
    scale = float(np.max(np.abs(left[finite]), initial=0.0)) + 1e-30
    return bool(np.all(np.abs(left[finite] - other[finite]) <= tolerance * scale))


def differ(interpreter: Interpreter, text: str, other: str) -> bool | None:
    """Whether two programs compute different results; None: the interpreter does not say.

    Programs of other types differ. The results of ``text`` are remembered.
    """
    if _signature(text) != _signature(other):
        return True
    cannot = False
    for seed in range(4):
        inputs, first = interpreter.remembered(text, seed)
        two = interpreter(other, inputs)
        if isinstance(first, str) or isinstance(two, str):
            cannot = True
            continue
        if not same(first, two):
            return True
    return None if cannot else False


@lru_cache(maxsize=64)
def _signature(text: str) -> list[str]:
    module = edit.parse(text)
    block = edit.body(edit.main_of(module))
    return [str(value.type) for value in (*block.arguments, *edit.operations(block)[-1].operands)]
