"""Layouts of tensors, at static and at dynamic sizes."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from kcache_grpc.integrations.torch.dynamo.lowering.layout import is_row_major, layout_of
from kcache_grpc.integrations.torch.dynamo.lowering.plan import Layout


@pytest.mark.parametrize(
    ("tensor", "layout"),
    [
        (torch.empty(2, 3), None),
        (torch.empty(()), None),
        (torch.empty(0, 3).t(), None),
        (torch.empty(2, 3).t(), Layout((1, 0))),
        (torch.empty(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), Layout((0, 2, 3, 1))),
        (torch.empty(4, 6)[:, ::2], "copy"),
        (torch.empty(4, 6)[1:], None),
        (torch.empty(4, 6)[:, 1:], "copy"),
        (torch.empty(3, 1).expand(3, 4), "copy"),
        (torch.empty(1, 3).t(), None),
    ],
)
def test_layouts(tensor: Any, layout: Any) -> None:
    assert layout_of(tensor, ()) == layout


@given(st.permutations(range(4)), st.lists(st.integers(1, 3), min_size=4, max_size=4))
def test_a_permuted_tensor_is_row_major_in_its_order(order: list[int], sizes: list[int]) -> None:
    tensor = torch.empty(sizes).permute(order)
    layout = layout_of(tensor, ())
    assert layout is None or isinstance(layout, Layout)
    restored = tensor if layout is None else tensor.permute(layout.order)
    assert restored.is_contiguous()


@given(st.lists(st.integers(1, 3), max_size=4), st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_row_major_is_contiguous(sizes: list[int], strides: list[int]) -> None:
    tensor = torch.empty_strided(sizes, strides[: len(sizes)])
    assert is_row_major(tensor.shape, tensor.stride()) == tensor.is_contiguous()


def test_dynamic_sizes_have_the_layout_of_all_samples() -> None:
    module = make_fx(lambda x: x.t().sin(), tracing_mode="symbolic")(torch.empty(4, 6))
    x = next(iter(module.graph.nodes)).meta["val"]
    names = sorted(str(size.node.expr) for size in x.shape)
    samples = [dict(zip(names, sizes, strict=True)) for sizes in ((3, 5), (7, 11))]
    assert layout_of(x, samples) is None
    [view] = [node.meta["val"] for node in module.graph.nodes if str(node.target) == "aten.t.default"]
    assert layout_of(view, samples) == Layout((1, 0))
    assert layout_of(view, [{names[0]: 1, names[1]: 5}, samples[0]]) == "copy"
