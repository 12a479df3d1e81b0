"""The reference interpreter for tests, and special values to give it."""

from __future__ import annotations

import atexit
import functools
import json
import math
from pathlib import Path

import ml_dtypes
import numpy as np

from kcache_compiler.types import TensorType
from tests.child import Child

CHILD = Path(__file__).with_name("interpreter_child.py")

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
SPECIALS = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-40, -7.25, 2.0, 100.0]


@functools.cache
def _interpreter() -> Child:
    """One of this process: to start it takes longer than most evaluations."""
    interpreter = Child(str(CHILD))
    atexit.register(interpreter.close)
    return interpreter


def evaluate(jobs: list[tuple[str, list[str]]]) -> list[list[str]]:
    """Evaluate each (module, arguments); raises on any error."""
    answers: list[list[str]] = []
    for job in jobs:
        line = _interpreter().ask(json.dumps(job))
        assert line, f"the interpreter ended: {_interpreter().errors()}\n{job[0]}"
        answer = json.loads(line)
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
