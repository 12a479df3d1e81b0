"""Functions of JAX give what JAX gives: a few here, all of them in the long tests."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")

import jax.numpy as jnp
import numpy as np

from tests.conformance.jax_functions.compare import apart
from tests.conformance.jax_functions.drive import driven
from tests.conformance.jax_functions.record import BAD
from tests.conformance.jax_functions.run import FUNCTIONS, Outcome, outcomes

SAMPLE = ("lax.cumlogsumexp", "nn.softmax")
_PARTS = 16


def bad(results: list[Outcome]) -> list[Outcome]:
    return [outcome for outcome in results if outcome.how in BAD]


def test_a_few() -> None:
    results = list(outcomes(list(SAMPLE)))
    assert bad(results) == []
    assert [outcome.how for outcome in results] == ["right"] * 2 * len(SAMPLE)


@pytest.mark.parametrize("name", ["nn.relu", pytest.param("lax.reduce_window max", marks=pytest.mark.long)])
def test_one_with_sizes_that_are_symbols(name: str) -> None:
    results = list(outcomes([name], "symbolic"))
    assert [outcome.how for outcome in results] == ["right", "right"]


def test_one_among_edges() -> None:
    assert bad(list(outcomes(["jnp.logaddexp"], "edges"))) == []


def test_zeros_between_elements_are_multiplied_as_the_interpreter_does() -> None:
    assert bad(list(outcomes(["lax.conv_general_dilated"], "edges"))) == []


def test_what_differs_is_seen() -> None:
    ones, nan = np.ones(3, np.float32), np.array([1, np.nan, 1], np.float32)
    assert apart([ones], [ones]) == ""
    assert apart([nan], [nan]) == ""
    assert apart([ones], [nan]) != ""
    assert apart([ones], [-ones]) != ""
    assert apart([ones * np.inf], [-ones * np.inf]) != ""
    assert apart([ones], [ones * np.float32(1 + 1e-4)]) != ""
    assert apart([ones], [ones, ones]) != ""
    assert apart([ones], [ones.astype(np.float64)]) != ""
    assert apart([ones.astype(np.float64)], [ones.astype(np.float64) + 1e-7]) != ""
    assert apart([ones.astype(np.float64)], [ones.astype(np.float64) + 1e-7], widest=4) == ""
    assert apart([np.arange(3)], [np.arange(3) + 1]) != ""
    assert apart([ones + 1j * ones], [ones + 1j * nan]) != ""
    assert apart([ones * np.array([1e30, 1, 1], "f4")], [ones * np.array([1e30, 2, 1], "f4")]) == ""
    assert (
        apart([ones * np.array([1e30, 1, 1], "f4")], [ones * np.array([1e30, 2, 1], "f4")], singly=True) != ""
    )
    assert apart([np.asarray(jnp.ones(3, "bfloat16"))], [np.asarray(jnp.ones(3, "bfloat16") * 1.02)]) != ""


@pytest.mark.long
@pytest.mark.parametrize("part", range(_PARTS))
def test_all(part: int) -> None:
    """None is wrong, and of each part nearly all compile; the list is of more than 600."""
    names = list(FUNCTIONS)[part::_PARTS]
    results = [outcome for outcomes in driven(names, "f32") for outcome in outcomes]
    assert [outcome for outcome in results if outcome.how in BAD and outcome.how != "rejected"] == []
    rejected = {outcome.name for outcome in bad(results)}
    assert len(rejected) <= 0.1 * len(names), bad(results)
    assert len(FUNCTIONS) >= 600
