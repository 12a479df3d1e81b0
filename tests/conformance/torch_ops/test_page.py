"""The page on ATen's core set is made from records."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from tests.conformance.torch_ops.harness import core
from tests.conformance.torch_ops.page import page


def cases(**outcomes: str) -> list[dict[str, Any]]:
    """Of every pair, right but in the dtypes that are named."""
    return [
        {"op": op, "dtype": dtype, "outcome": outcomes.get(dtype, "right"), "reason": "why", "classes": []}
        for op, dtype in core.pairs()
    ]


def test_the_page_says_where_an_operation_is_right() -> None:
    sample = {"op": "T", "dtype": "f32", "outcome": "right", "reason": "", "classes": ["aten.relu.default"]}
    text = page([*cases(u8="rejected", i1="no-oracle"), sample, sample])
    others = "i8, i16, i32, i64, f16, bf16, f32, f64"
    assert f"| `aten.relu.default` | {others} | u8 | i1 | 2 |" in text
    assert f"| `aten.add.Tensor` | {others} | u8 | i1 |  |" in text
    assert f"Of {len(core.names())} operations {len(core.names())} are right" in text


def test_no_page_of_what_is_wrong_or_missing() -> None:
    with pytest.raises(SystemExit, match=r"wrong: aten\..*why"):
        page(cases(bf16="wrong"))
    with pytest.raises(SystemExit, match="1 are missing"):
        page(cases()[1:])
