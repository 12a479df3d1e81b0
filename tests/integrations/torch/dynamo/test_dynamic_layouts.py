"""Operands whose strides are dynamic."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

from kcache_grpc.integrations.torch.dynamo import decisions
from kcache_grpc.integrations.torch.dynamo.backend import kcache


def test_static_sizes_with_dynamic_strides(address: str) -> None:
    """A view of one column has the strides of its base, which no program has as sizes."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 + 1).sum(0)

    torch.compiler.reset()
    decisions.forget()
    compiled = torch.compile(
        function, backend=kcache, options={"strict": True, "address": address, "warm_start": False}
    )
    base = torch.arange(24.0).view(3, 8) - 9
    for view in (base[:, :4], base[:, 4:5], base.repeat(1, 2)[:, 4:5]):
        torch.testing.assert_close(compiled(view), function(view))
    assert [decision.left_out for decision in decisions.decisions()] == [[]] * len(decisions.decisions())
    assert len(decisions.decisions()) >= 2
