"""Graphs of the corpus, exported here at sizes that the corpus does not hold, have the key of the corpus."""

from __future__ import annotations

import importlib
import random

import pytest

from tests.recognition.exports.corpus import read
from tests.recognition.exports.graphs import GRAPHS, Graph, Sizes
from tests.recognition.measured import key

for framework in ("jax", "torch", "onnx"):
    pytest.importorskip(framework)

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]


def fresh(graph: Graph, count: int) -> list[Sizes]:
    rng = random.Random(graph.name)
    tuples: list[Sizes] = []
    while len(tuples) < count:
        sizes = {name: rng.randint(2, 17) for name in graph.free} | dict(graph.fixed)
        if sizes not in graph.sizes and sizes not in tuples:
            tuples.append(sizes)
    return tuples


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_other_sizes_have_the_key(graph: Graph) -> None:
    wanted = key(read(graph.name).texts[0])
    export = getattr(importlib.import_module(f"tests.recognition.exported_{graph.framework}"), graph.name)
    lost = [sizes for sizes in fresh(graph, 8) if key(export(sizes)) != wanted]
    assert lost == []
