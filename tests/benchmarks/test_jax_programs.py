"""The benchmark of JAX's programs: sizes of its models, its check of results, and a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import jax

from benchmarks.jax_programs import catalog, diffusion, gpt2, resnet
from benchmarks.jax_programs.child import distance

#: Parameters in millions, and arrays.
SIZES = {"gpt2": (124.4, 148), "resnet50": (25.6, None), "diffusion": (35.7, None)}


def _weights(name: str) -> list[Any]:
    drawn = {"gpt2": gpt2, "resnet50": resnet, "diffusion": diffusion}[name].weights(np.random.default_rng(0))
    statistics = ("mean", "var")
    return [leaf for path, leaf in jax.tree.leaves_with_path(drawn) if str(path[-1].key) not in statistics]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SIZES)
def test_models_have_the_size_of_their_papers(name: str) -> None:
    millions, arrays = SIZES[name]
    leaves = _weights(name)
    assert sum(leaf.size for leaf in leaves) / 1e6 == pytest.approx(millions, rel=0.01)
    assert arrays in (None, len(leaves))


def test_a_state_is_compared_by_its_change() -> None:
    """An error of a thousandth of the update is a thousandth, however large the weights are."""
    weights, x = catalog.drawn(catalog.SMOKE)
    exact = [weights + x.T @ x, np.asarray(1.0)]
    wrong = [weights + 1.001 * (x.T @ x), np.asarray(1.0)]
    assert distance(catalog.SMOKE, (weights, x), wrong, exact) == pytest.approx(1e-3, rel=0.01)
    assert distance(catalog.SMOKE, (weights, x), [*exact, exact[0]], exact) == float("inf")
    assert distance(catalog.SMOKE, (weights, x), [exact[0], np.asarray(np.nan)], exact) == float("inf")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_contenders_are_checked_and_measured(tmp_path: Path) -> None:
    file = tmp_path / "programs.json"
    arguments = (
        "--programs",
        "smoke",
        "--threads",
        "1",
        "--rounds",
        "3",
        "--budget",
        "0.05",
        "--clock",
        "cpu",
    )
    command = [sys.executable, "-m", "benchmarks.jax_programs", *arguments, "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    contenders = json.loads(file.read_text())["rows"]["smoke, 1 thread"]["contenders"]
    for name in ("kcache", "jax", "jax-donated"):
        assert len(contenders[name]["seconds"]) == 3, contenders[name]
    assert contenders["kcache-bound"]["reason"] == "it updates its weights"
