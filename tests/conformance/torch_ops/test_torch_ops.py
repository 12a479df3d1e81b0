"""PyTorch's operations give what eager mode gives, or are rejected by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch

from kcache_compiler import UnsupportedOp, canonicalize
from tests.conformance.torch_ops.harness.core import core_sample, names
from tests.conformance.torch_ops.harness.judge import judge
from tests.conformance.torch_ops.harness.samples import Sample

_SHARES = 48


def outcome(function: Callable[..., Any], *tensors: Any) -> str:
    verdict, _ = judge(Sample.of(function, tensors, {}))
    return f"{verdict.outcome} {verdict.reason}".strip()


@pytest.mark.parametrize(
    "share", [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, _SHARES))]
)
@pytest.mark.filterwarnings("ignore")
def test_core_operations(share: int) -> None:
    for name in names()[share::_SHARES]:
        verdict, _ = judge(core_sample(name))
        assert verdict.outcome == "right", (name, verdict)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
@pytest.mark.parametrize("name", ["max", "min", "amax", "amin", "argmax", "argmin", "max_dim", "min_dim"])
def test_extremes_of_unsigned_numbers(name: str, dtype: Any) -> None:
    if name.startswith("arg") and dtype == torch.bool:
        pytest.skip("PyTorch has none of truth values")
    functions: dict[str, Callable[[Any], Any]] = {
        "max": torch.max,
        "min": torch.min,
        "amax": lambda x: torch.amax(x, 1),
        "amin": lambda x: torch.amin(x, 1),
        "argmax": lambda x: torch.argmax(x, 1),
        "argmin": lambda x: torch.argmin(x, 1),
        "max_dim": lambda x: torch.max(x, 1),
        "min_dim": lambda x: torch.min(x, 1),
    }
    low, high = (
        torch.tensor(rows).to(dtype) for rows in ([[0, 0, 0], [0, 5, 3]], [[200, 255, 130], [1, 1, 0]])
    )
    assert outcome(functions[name], low) == "right"
    assert outcome(functions[name], high) == "right"


def test_extremes_of_unsigned_numbers_in_the_dialect_are_rejected() -> None:
    text = """func.func @main(%a: !torch.vtensor<[4],ui8>) -> !torch.vtensor<[],ui8> {
      %0 = torch.aten.max %a : !torch.vtensor<[4],ui8> -> !torch.vtensor<[],ui8>
      return %0 : !torch.vtensor<[],ui8> }"""
    with pytest.raises(UnsupportedOp, match="signed"):
        canonicalize(text.encode(), "torch")


@pytest.mark.sampled(9)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_quotients_are_rounded_down_once(dtype: Any) -> None:
    x = torch.tensor([8.1, -9.0, 9.0, 0.0, -0.0, float("inf"), 2.7, -0.3]).to(dtype)
    y = torch.tensor([0.9, 0.9, 0.0, -2.0, 3.0, 2.0, -0.9, float("inf")]).to(dtype)
    assert outcome(torch.floor_divide, x, y) == "right"
    assert outcome(lambda a, b: torch.div(a, b, rounding_mode="floor"), x, y) == "right"
    assert outcome(lambda a: a // 0.9, x) == "right"
