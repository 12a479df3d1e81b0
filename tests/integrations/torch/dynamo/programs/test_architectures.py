"""Architectures and training loops give what eager mode gives: a few here, all in the long tests."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from tests.conformance.torch_compile.corpus import MODELS
from tests.conformance.torch_compile.run import outcome
from tests.conformance.torch_compile.training import LOOPS, difference

#: Name, whether in training: buffers that are updated in place, sizes that grow, top-k, scatter, bags.
SAMPLE = (
    ("decoder, static cache", False),
    ("mixture of experts", False),
    ("graph convolution", True),
)
OTHERS = [
    (name, train)
    for name, model in MODELS.items()
    for train in ((False, True) if model.trains else (False,))
    if (name, train) not in SAMPLE
]


def _options(address: str) -> dict[str, Any]:
    return {"address": address, "warm_start": False}


def _is_as_eager(name: str, train: bool, address: str) -> None:
    model = MODELS[name]
    if model.missing:
        pytest.skip(model.missing)
    result = outcome(name, model, train, _options(address))
    assert not result.wrong, result


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "train"), SAMPLE)
def test_a_few(name: str, train: bool, address: str) -> None:
    _is_as_eager(name, train, address)


@pytest.mark.long
@pytest.mark.parametrize(("name", "train"), OTHERS)
def test_the_others(name: str, train: bool, address: str) -> None:
    _is_as_eager(name, train, address)


@pytest.mark.long
@pytest.mark.parametrize("name", LOOPS)
def test_losses(name: str, address: str) -> None:
    """Losses of 20 steps follow those of eager mode."""
    apart, losses = difference(LOOPS[name], _options(address))
    assert apart <= LOOPS[name].tolerance, losses
    assert len(losses) == 20
