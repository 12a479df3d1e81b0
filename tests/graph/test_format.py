"""The table of the op set: documentation and methods are made from it, and it is in order."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from kcache_compiler.frontends.graph.operations import FORMAT, GROUPS, OPS
from kcache_compiler.frontends.graph.table import DTYPE_CLASSES, REQUIRED, Op
from kcache_grpc import Graph
from kcache_grpc.graph.builder import FORMAT as CLIENT_FORMAT
from scripts.generate_graph_format import METHODS, PAGE, methods, page
from tests.graph.running import canonical_of


def test_the_documentation_is_fresh():
    assert PAGE.read_text() == page(), "run: python -m scripts.generate_graph_format write"


def test_the_methods_are_fresh():
    assert METHODS.read_text() == methods(), "run: python -m scripts.generate_graph_format write"


def test_client_and_compiler_mean_the_same_format():
    assert CLIENT_FORMAT == FORMAT


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_an_entry_says_what_its_builder_takes(op: Op):
    parameters = list(inspect.signature(op.build).parameters.values())[1:]
    positional = [p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    keywords = {p.name: p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert len(positional) == len(op.operands)
    for parameter, operand in zip(positional, op.operands, strict=True):
        assert (parameter.kind is inspect.Parameter.VAR_POSITIONAL) == operand.variadic
        assert (parameter.default is None) == operand.optional
        assert operand.dtypes in DTYPE_CLASSES
    assert set(keywords) == {attribute.name for attribute in op.attributes}
    for attribute in op.attributes:
        default = keywords[attribute.name].default
        wanted = inspect.Parameter.empty if attribute.default is REQUIRED else attribute.default
        assert default == wanted, attribute.name
        assert not attribute.choices or wanted in (*attribute.choices, inspect.Parameter.empty, None)


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_an_entry_is_documented(op: Op):
    for text in (op.doc, op.rule, op.stablehlo, *(attribute.doc for attribute in op.attributes)):
        assert text.strip() == text != ""
        assert "|" not in text or "`" in text or "|x|" in text or "|gamma" in text
    assert op.doc.endswith(".")
    assert hasattr(Graph, {"and": "and_", "or": "or_", "not": "not_"}.get(op.name, op.name))


def test_groups_are_disjoint_and_complete():
    names = [op.name for group in GROUPS for op in group.ops]
    assert len(names) == len(set(names)) == len(OPS)


def test_the_example_of_the_page_is_a_graph():
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example.partition("kernel = ")[0], names)
    assert len(canonical_of(names["g"]).results) == 2
