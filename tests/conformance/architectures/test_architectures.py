"""Models of PyTorch give what eager mode gives: a few here, all of them in the long tests."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import kcache_grpc as kcache
from tests.conformance.architectures.corpus import MODELS
from tests.conformance.architectures.run import outcome

#: Keys and values that live past the copy of them; scatter; bags.
SAMPLE = ("Llama", "graph convolution", "DLRM")


@pytest.mark.long
@pytest.mark.parametrize("name", SAMPLE)
def test_a_few(client: kcache.Client, name: str) -> None:
    result = outcome(client, name)
    assert result.how == "right", result


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")
@pytest.mark.parametrize("name", [name for name in MODELS if name not in SAMPLE])
def test_the_others(client: kcache.Client, name: str) -> None:
    result = outcome(client, name)
    assert result.how == "right", result
