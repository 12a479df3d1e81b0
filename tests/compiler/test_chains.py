"""The chains of ``benchmarks.chains``: valid programs, and every operation of the support table is in one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.chains.programs import KINDS, MIXED, chain
from kcache_compiler import canonicalize

_OP = re.compile(r"\b(?:stablehlo|chlo)\.[a-z_0-9]+")
#: Operations that no chain has, and why.
_LEFT_OUT = {
    "chlo._asin_acos_kernel": "a part of others",
    "chlo.ragged_dot": "not measured yet",
    "chlo.scan": "a loop, as stablehlo.while",
    "stablehlo.custom_call": "as what it names",
    "stablehlo.set_dimension_size": "compiled of a size that is the axis's own only",
}


def _supported() -> set[str]:
    page = Path(__file__).parents[2] / "docs" / "reference" / "support.md"
    rows = [line.split("|")[1] for line in page.read_text().splitlines() if line.startswith("| `")]
    return {op for row in rows for op in _OP.findall(row)}


def test_every_operation_of_the_support_table_is_in_a_chain() -> None:
    covered = {op for kind in KINDS for op in _OP.findall(chain(kind, 2))}
    assert sorted(_supported() - covered - set(_LEFT_OUT)) == []


@pytest.mark.sampled(12)
@pytest.mark.parametrize("kind", [*KINDS, MIXED])
def test_chains_are_valid_programs(kind: str) -> None:
    assert canonicalize(chain(kind, 2).encode(), "stablehlo", "default").spec_text
