"""Functions of JAX give what JAX gives: a few here, all of them in the long tests."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")

from tests.jax_functions.run import FUNCTIONS, Outcome, outcomes

SAMPLE = ("jnp.cumsum", "jnp.interp", "lax.cumlogsumexp", "nn.softmax", "special.betaln")
_PARTS = 16


def bad(found: list[Outcome]) -> list[Outcome]:
    return [one for one in found if one.how in ("refused", "wrong")]


def test_a_few() -> None:
    found = list(outcomes(list(SAMPLE)))
    assert bad(found) == []
    assert [one.how for one in found].count("right") >= len(SAMPLE) + 3


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(_PARTS))
def test_all(part: int) -> None:
    """None is wrong, and of each part nearly all compile; the list is of more than 300."""
    names = list(FUNCTIONS)[part::_PARTS]
    found = list(outcomes(names))
    assert [one for one in found if one.how == "wrong"] == []
    refused = {one.name for one in bad(found)}
    assert len(refused) <= 0.1 * len(names), bad(found)
    assert len(FUNCTIONS) >= 300
