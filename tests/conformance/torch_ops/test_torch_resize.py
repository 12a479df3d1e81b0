"""Images at other sizes are as in eager mode, of infinities too, and at sizes that an export leaves open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch
from torch.nn import functional

from kcache_compiler import CompileOptions, canonicalize, compile_spec
from kcache_grpc.model.target import host_target
from kcache_grpc.programs.torch.decompositions.table import decompositions
from kcache_grpc.programs.torch.export import torch_program
from tests.conformance.torch_ops.harness.calls import Call, judge_calls
from tests.conformance.torch_ops.harness.judge import judge
from tests.conformance.torch_ops.harness.samples import Sample
from tests.ops.harness.native import run

NAN, INF = float("nan"), float("inf")
#: (mode, its image, sizes: larger, smaller, and of one axis only)
LINES = [[0.0, 1.5, -2.0, INF, INF], [-INF, 3.0, NAN, 0.5, -INF]]
IMAGE = torch.tensor([[-INF, 1.0, 2.5, -INF], [INF, INF, -1.0, -INF], [0.5, NAN, 3.0, 4.0]])
MODES: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "linear": (torch.tensor(LINES)[None], [(9,), (3,), (5,)]),
    "bilinear": (IMAGE[None, None], [(5, 7), (2, 2), (3, 8)]),
    "trilinear": (torch.stack([IMAGE, IMAGE.flip(0)])[None, None], [(3, 5, 7), (2, 3, 6)]),
}


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_infinities_are_weighted_and_added(mode: str, align: bool, dtype: Any) -> None:
    image, sizes = MODES[mode]
    calls = [
        Call(str(size), lambda x, size=size: functional.interpolate(x, size, None, mode, align))
        for size in sizes
    ]
    scaled = Call("2.5", lambda x: functional.interpolate(x, None, 2.5, mode, align))
    verdict = judge_calls([*calls, scaled], (image.to(dtype),), edges=True)
    assert (verdict.outcome, verdict.reason) == ("right", str(len(calls) + 1))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_elements_are_copied_by_the_place_of_each_axis(dtype: Any) -> None:
    torch.manual_seed(3)
    x = torch.randint(0, 200, (2, 3, 5, 6)).to(dtype)
    calls = {
        "twice": lambda x: functional.interpolate(x, scale_factor=2, mode="nearest"),
        "odd": lambda x: functional.interpolate(x, size=(7, 4), mode="nearest"),
        "less": lambda x: functional.interpolate(x, scale_factor=0.4, mode="nearest"),
        "as large": lambda x: functional.interpolate(x, scale_factor=1.1, mode="nearest"),
        "line as large": lambda x: functional.interpolate(x[0], scale_factor=1.1, mode="nearest"),
        "solid as large": lambda x: functional.interpolate(x[None], scale_factor=1.1, mode="nearest"),
        "exact": lambda x: functional.interpolate(x, size=(7, 13), mode="nearest-exact"),
        "exact, scaled": lambda x: functional.interpolate(x, scale_factor=1.7, mode="nearest-exact"),
        "line": lambda x: functional.interpolate(x[0], size=11, mode="nearest"),
        "solid": lambda x: functional.interpolate(x[None], size=(5, 2, 9), mode="nearest"),
    }
    verdict = judge_calls([Call(*call) for call in calls.items()], (x,))
    assert (verdict.outcome, verdict.reason) == ("right", str(len(calls)))


@pytest.mark.long
@pytest.mark.parametrize("align", [False, pytest.param(True, marks=pytest.mark.long)])
def test_cubic_weights(align: bool) -> None:
    torch.manual_seed(4)

    def all_of_them(x: Any) -> tuple[Any, ...]:
        sizes = ((5, 6), (10, 12), (13, 1), (3, 4))
        resized = [functional.interpolate(x, size, None, "bicubic", align) for size in sizes]
        return *resized, functional.interpolate(x, None, 2.5, "bicubic", align)

    verdict, _ = judge(Sample(all_of_them, (torch.randn(2, 3, 5, 6),)))
    assert verdict.outcome == "right", verdict.reason


@pytest.mark.sampled(9)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_open_batches(mode: str) -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return functional.interpolate(x, scale_factor=2, mode=mode)

    batch = {0: torch.export.Dim("batch", min=1, max=64)}
    exported = torch.export.export(Twice(), (torch.randn(3, 2, 4, 5),), dynamic_shapes=(batch,))
    form = canonicalize(torch_program(exported)[0], "torch", "default")
    kernel = compile_spec(form.spec_text, form.arg_spec, host_target().isa, CompileOptions(), lambda _: None)
    for count in (1, 2, 7):
        x = torch.randn(count, 2, 4, 5)
        (content,) = run(kernel, [x.numpy().tobytes()], [c.content for c in form.constants], (count,))
        wanted = Twice()(x).numpy()
        got = np.frombuffer(content, np.float32).reshape(wanted.shape)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(9)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_the_size_of_the_export_says_nothing_of_open_heights(mode: str) -> None:
    """At the export the image is as high as the result."""

    class Resized(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return functional.interpolate(x, size=(8, 5), mode=mode)

    def exported(height: int) -> Any:
        image, opened = torch.randn(1, 1, height, 4), {2: torch.export.Dim.AUTO}
        return torch.export.export(Resized(), (image,), dynamic_shapes=(opened,))

    table = decompositions()
    graphs = [exported(height).run_decompositions(table).graph for height in (8, 9)]
    kept, other = ([str(node.target) for node in graph.nodes] for graph in graphs)
    assert kept == other
