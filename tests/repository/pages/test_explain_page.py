"""docs/guide/explain.md against the code: steps, weights, queries."""

from __future__ import annotations

import re

import pytest

from kcache_grpc._proto.kcache.v1 import explain_pb2
from kcache_grpc.service.explain import explain
from kcache_grpc.storage import open_store
from kcache_grpc.storage.contract.nearby import WEIGHTS
from tests.repository.sources import ROOT
from tests.storage.drafts import Time, kernel
from tests.storage.dump import fill
from tests.storage.inside import rows

PAGE = (ROOT / "docs" / "guide" / "explain.md").read_text()
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "store.sqlite"
    with open_store(f"sqlite:///{path}", migrate=True, clock=Time().clock) as opened:
        fill(opened)
        namespace = opened.get_or_create_namespace("default")
        draft = kernel(2)
        ingredients = (("spec", "another"), ("toolchain.llvm", "22.1"))
        opened.publish_kernel(
            namespace, type(draft)(draft.kernel, draft.manifest, draft.artifacts, ingredients)
        )
    return path


def test_every_step_has_a_line():
    table = PAGE[PAGE.index("| step |") :].split("\n\n")[0]
    named = set(re.findall(r"`([A-Z_]+)`", table))
    assert named == {name.removeprefix("EXPLAIN_STEP_") for name in explain_pb2.ExplainStep.keys()[1:]}


def test_weights_and_limits_are_those_of_the_code():
    assert dict(re.findall(r"\| (\w+) \| (\d+) \|", PAGE)) == {k: str(v) for k, v in WEIGHTS.items()}
    assert f"the {explain._CANDIDATES} specs whose texts" in PAGE
    assert f"{explain._CANDIDATE_BYTES >> 20} MiB of text" in PAGE
    assert f"Of another spec: {explain._OTHER_SPEC}, and" in PAGE


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_every_query_finds_rows(store, query):
    assert rows(store, query), query


def test_there_are_queries():
    assert len(QUERIES) >= 7
