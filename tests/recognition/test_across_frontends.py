"""Each framework's own function, as clients send it (StableHLO, Torch dialect, ONNX model), has one key."""

from __future__ import annotations

from collections import defaultdict

import pytest

from kcache_compiler.spec import canonicalize
from tests.compiler.spec.rewrites.test_across import APART, EXACT, SIZED, TOLERANT

for framework in ("jax", "torch", "onnx"):
    pytest.importorskip(framework)

from tests.recognition.exports.exported_here import FRAMEWORKS, Program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def programs(function: str) -> dict[str, Program]:
    return dict(pair for exported in FRAMEWORKS.values() for pair in exported(function))


def keys(function: str, numerics: str) -> dict[str, list[str]]:
    """The programs of a function by the spec that they have."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    erasing = function not in SIZED
    for name, (format, content) in programs(function).items():
        names[canonicalize(content, format, numerics, erasing=erasing).spec_text].append(name)
    return names


@pytest.mark.sampled(9)
@pytest.mark.parametrize("numerics", ["strict", "default"])
@pytest.mark.parametrize("function", ["bias_relu", "softmax", "sigmoid_gate"])
def test_frameworks_meet_bit_for_bit(function: str, numerics: str) -> None:
    assert len(keys(function, numerics)) == 1, list(keys(function, numerics).values())


@pytest.mark.parametrize("function", ["gelu_erf", "layer_norm"])
def test_frameworks_meet_by_default(function: str) -> None:
    assert len(keys(function, "default")) == 1, list(keys(function, "default").values())


@pytest.mark.long
@pytest.mark.parametrize("numerics", ["strict", "default", "fast"])
@pytest.mark.parametrize("function", sorted(EXACT))
def test_all_that_is_exact_meets_bit_for_bit(function: str, numerics: str) -> None:
    assert len(keys(function, numerics)) == 1, list(keys(function, numerics).values())


@pytest.mark.long
@pytest.mark.parametrize("numerics", ["default", "fast"])
@pytest.mark.parametrize("function", sorted(TOLERANT))
def test_all_that_rounds_differently_meets_by_default(function: str, numerics: str) -> None:
    assert len(keys(function, numerics)) == 1, list(keys(function, numerics).values())


@pytest.mark.long
@pytest.mark.parametrize("function", sorted(EXACT | TOLERANT))
def test_every_function_comes_from_two_frameworks_or_more(function: str) -> None:
    assert len({name.rpartition(".")[2] for name in programs(function)}) >= 2


@pytest.mark.long
@pytest.mark.parametrize("function", sorted(APART))
def test_what_frameworks_mean_differently_stays_apart(function: str) -> None:
    assert len(keys(function, "fast")) > 1
