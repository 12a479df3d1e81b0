"""Inputs of the example graphs, made from their descriptions: the same bits on every machine.

``make_graphs.py`` computes the expected results from these arrays; the demo and the tests feed the same
arrays to kernels. A description says which digest the arrays have, and :func:`load` rejects others.

Only the raw output of NumPy's Philox generator is used: NumPy promises that stream for ever, and does
not promise that of its distributions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
NAMES = ("gpt2_block", "resnet_block", "mlp_train_step")


@dataclass(frozen=True)
class Example:
    """One program with its inputs. ``expected`` is empty for the tiny variant.

    ``rtol`` and ``atol`` bound ``|got - expected| <= atol + rtol * |expected|`` for a kernel in f32.
    """

    name: str
    program: str
    inputs: tuple[np.ndarray, ...]
    expected: tuple[np.ndarray, ...]
    rtol: float
    atol: float


def load(name: str, variant: str = "graph") -> Example:
    """The example ``name`` in its full size (``"graph"``) or as its small twin (``"tiny"``).

    Raises ValueError if the inputs made here are not those that the results were computed from.
    """
    directory = HERE / name
    description = json.loads((directory / "graph.json").read_text())
    chosen = description[variant]
    inputs = make(chosen["inputs"], description["seed"])
    if digest(inputs) != chosen["inputs_sha256"]:
        raise ValueError(f"the inputs of {name} differ from those that its results were computed from")
    expected: tuple[np.ndarray, ...] = ()
    if variant == "graph":
        with np.load(directory / "expected.npz") as stored:
            expected = tuple(stored[f"output_{index}"] for index in range(len(stored.files)))
    tolerance = description["tolerance"]
    program = (directory / f"{variant}.mlir").read_text()
    return Example(name, program, inputs, expected, tolerance["rtol"], tolerance["atol"])


def make(descriptions: Sequence[Mapping[str, Any]], seed: int) -> tuple[np.ndarray, ...]:
    """One array a description: uniform over [low, high) in steps of 2^-53, then rounded to its dtype."""
    return tuple(_array(each, seed, position) for position, each in enumerate(descriptions))


def digest(arrays: Sequence[np.ndarray]) -> str:
    """SHA-256, in hex, over dtype, shape and little-endian bytes of each array in turn."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def _array(description: Mapping[str, Any], seed: int, position: int) -> np.ndarray:
    shape, dtype = tuple(description["shape"]), np.dtype(description["dtype"])
    low, high = description["low"], description["high"]
    raw = np.random.Philox(key=np.array([seed, position], dtype=np.uint64)).random_raw(int(np.prod(shape)))
    unit = (np.asarray(raw, dtype=np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    values = low + unit * (high - low)
    if dtype.kind == "i":
        values = np.floor(values)
    return values.astype(dtype).reshape(shape)
