"""``torch.export.ExportedProgram`` as a program: what its bytes hold, and what it brings."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch
from torch import nn
from torch.nn import functional

from kcache_grpc.errors import ArgumentError, UnsupportedOp
from kcache_grpc.model.program import ProgramFormat
from kcache_grpc.programs.source import read_source
from kcache_grpc.programs.torch.export import torch_program
from tests.compiler.torch_modules import Function, Mlp

X = torch.randn(4, 16)


def export(module: Any, *inputs: Any, **options: Any) -> Any:
    module = module if isinstance(module, nn.Module) else Function(module)
    return torch.export.export(module, inputs, **options)


def text_of(module: Any, *inputs: Any, **options: Any) -> str:
    return torch_program(export(module, *inputs, **options))[0].decode()


# Bytes.


def test_format_and_names() -> None:
    source = read_source(export(Mlp(), X), None)
    assert source.program.format is ProgramFormat.TORCH
    assert source.arguments is not None
    assert source.arguments.names == ("x", "first.weight", "first.bias", "second.weight", "second.bias")
    assert source.arguments.given == ("x",)


def test_another_format_cannot_be_stated() -> None:
    with pytest.raises(ArgumentError, match="has the format 'torch', not 'stablehlo'"):
        read_source(export(Mlp(), X), "stablehlo")
    assert read_source(export(Mlp(), X), "torch").program.format is ProgramFormat.TORCH


def test_weights_names_and_places_are_not_in_the_bytes() -> None:
    text = text_of(Mlp(), X)
    assert "dense" not in text
    assert "loc(" not in text
    assert "weight" not in text
    assert ".py" not in text
    renamed = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    assert text_of(renamed, X) == text == text_of(Mlp(), X)


_EXPORT = """
import hashlib, torch
from kcache_grpc.programs.torch.export import torch_program
{blank}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.table = torch.nn.Embedding(7, 16)
        self.register_buffer("shift", torch.randn(16))
    def forward(self, index, scale):
        return torch.softmax(self.norm(self.table(index)) * scale + self.shift + torch.tensor([2.0]), -1)
rows = torch.export.Dim("rows")
inputs = (torch.zeros(5, dtype=torch.int64), torch.ones(5, 1))
shapes = {{"index": {{0: rows}}, "scale": {{0: rows}}}}
for dynamic in (None, shapes):
    exported = torch.export.export(Net(), inputs, dynamic_shapes=dynamic)
    print(hashlib.sha256(torch_program(exported)[0]).hexdigest())
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_same_module_in_other_processes_has_the_same_bytes(tmp_path: Path) -> None:
    outputs = set[str]()
    for seed, blank in (("1", ""), ("2", "\n\n# moved down\n")):
        script = tmp_path / f"net{seed}.py"
        script.write_text(_EXPORT.format(blank=blank))
        run = subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        outputs.add(run.stdout)
    assert len(outputs) == 1
    assert len(set(outputs.pop().split())) == 2


def test_programs_that_differ_have_other_bytes() -> None:
    texts = {
        text_of(Mlp(), X),
        text_of(Mlp(24), X),
        text_of(Mlp(), X.repeat(2, 1)),
        text_of(Mlp().double(), X.double()),
    }
    assert len(texts) == 4


# Arguments.


def test_bound_arguments_are_the_modules_own_memory() -> None:
    module = Mlp()
    arguments = torch_program(export(module, X))[1]
    assert arguments.values[0].data_ptr() == module.first.weight.data_ptr()
    assert not arguments.values[0].requires_grad
    with torch.no_grad():
        assert len(arguments.complete((X,))) == 5


@pytest.mark.issue(number=19, point=3)
def test_weights_that_require_grad_are_rejected_in_grad_mode() -> None:
    module = Mlp()
    arguments = torch_program(export(module, X))[1]
    with pytest.raises(
        ArgumentError, match=r"first\.weight and 3 more .* requires? grad.*torch\.no_grad\(\)"
    ):
        arguments.complete((X,))
    with torch.inference_mode():
        assert len(arguments.complete((X,))) == 5
    # NumPy's arrays have no graph to lose.
    assert len(arguments.complete((X.numpy(),))) == 5
    module.requires_grad_(False)
    assert len(arguments.complete((X,))) == 5
    module.second.bias.requires_grad_(True)
    with pytest.raises(ArgumentError, match=r"weight second\.bias of the program") as caught:
        arguments.complete((X,))
    assert caught.value.metadata["argument"] == "second.bias"


def test_what_a_graph_does_not_use_is_not_bound() -> None:
    norm = nn.BatchNorm1d(16).eval()
    names = torch_program(export(norm, X))[1].names
    assert names == ("input", "weight", "bias", "running_mean", "running_var")


def test_constants_and_buffers_are_bound() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shift", torch.randn(16))
            self.register_buffer("hidden", torch.randn(16), persistent=False)

        def forward(self, x: Any) -> Any:
            return x + self.shift + self.hidden + torch.tensor([2.0] * 16)

    text, arguments = torch_program(export(Shifted(), X))
    assert len(arguments.values) == 3
    assert "dense" not in text.decode()
    assert torch.equal(arguments.values[-1], torch.full((16,), 2.0))


def test_a_wrong_number_of_arguments_is_told() -> None:
    arguments = torch_program(export(Mlp(), X))[1]
    with pytest.raises(ArgumentError, match=r"takes 1 arguments \(x\), got 2; the other 4 .* are bound"):
        arguments.complete((X, X))


def test_nested_and_fixed_inputs() -> None:
    def function(pair: Any, times: int, options: Any) -> Any:
        return pair[0] * times + pair[1] + options["shift"]

    exported = export(function, (X, X), 3, {"shift": X})
    arguments = torch_program(exported)[1]
    first, two, three = X + 1, X + 2, X + 3
    nested = arguments.complete(((first, two), 3, {"shift": three}))
    flat = arguments.complete((first, two, three))
    assert [id(value) for value in nested] == [id(first), id(two), id(three)] == [id(value) for value in flat]
    with pytest.raises(ArgumentError, match="input 2 is 4, and the program was exported for 3 only"):
        arguments.complete(((first, two), 4, {"shift": three}))
    with pytest.raises(ArgumentError, match=r"takes 3 tensors .*fixed values 3.*got 2"):
        arguments.complete((first, two))


def test_keywords_follow_the_positions() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Any, *, scale: Any) -> Any:
            return x * scale

    exported = torch.export.export(Scaled(), (X,), {"scale": X})
    assert torch_program(exported)[1].given == ("x", "scale")


def test_results_that_are_nothing_are_left_out() -> None:
    attention = nn.MultiheadAttention(16, 2, batch_first=True).eval()

    def alone(x: Any) -> Any:
        return attention(x, x, x, need_weights=False)

    text = text_of(alone, torch.randn(2, 5, 16))
    assert (
        text.count("-> !torch.vtensor<[2,5,16],f32> attributes")
        + text.count("-> !torch.vtensor<[2,5,16],f32> {")
        == 1
    )


# Open sizes.


def test_open_sizes_are_two_samples() -> None:
    rows = torch.export.Dim("rows")
    text = text_of(lambda x: torch.softmax(x, -1), X, dynamic_shapes=(({0: rows},),))
    assert 'kcache.open_axes = [[0, 0, "axis 0 of input 0"]]' in text
    assert "@main_at_other_sizes" in text
    assert "?" not in text


def test_samples_are_no_numbers_of_the_program() -> None:
    rows = torch.export.Dim("rows")

    def function(x: Any) -> Any:
        return (x * 11.0).reshape(-1, 2, 8).sum(0) / 13

    text = text_of(function, X, dynamic_shapes=(({0: rows},),))
    assert "[17,16]" in text
    assert "[19,16]" in text


def test_bounds_without_two_samples_are_told() -> None:
    rows = torch.export.Dim("rows", min=3, max=4)
    exported = export(lambda x: x * 3, X, dynamic_shapes=(({0: rows},),))
    with pytest.raises(ArgumentError, match="no two values from 3 to 4"):
        torch_program(exported)


# What is rejected.


@pytest.mark.issue(number=19, point=18)
def test_updates_of_buffers_are_the_last_results() -> None:
    norm = nn.BatchNorm1d(16)
    text, arguments = torch_program(export(norm, X))
    assert [w.name for w in arguments.written] == ["running_mean", "running_var", "num_batches_tracked"]
    assert arguments.written[0].tensors[0].data_ptr() == norm.get_buffer("running_mean").data_ptr()
    assert [arguments.names[w.position or 0] for w in arguments.written] == [
        w.name for w in arguments.written
    ]
    results = (
        "vtensor<[4,16],f32>, !torch.vtensor<[16],f32>, !torch.vtensor<[16],f32>, !torch.vtensor<[],si64>)"
    )
    assert results in text.decode()


@pytest.mark.issue(number=19, point=18)
def test_updates_of_inputs_are_the_last_results() -> None:
    exported = export(lambda x, y: (y.add_(1.0), x.mul_(y), x + y)[2], X.clone(), X.clone())
    arguments = torch_program(exported)[1]
    assert sorted((w.position, w.tensors) for w in arguments.written) == [(0, ()), (1, ())]


@pytest.mark.issue(number=19, point=18)
def test_updates_of_buffers_that_share_memory_are_rejected() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            whole = torch.zeros(4)
            self.register_buffer("whole", whole)
            self.register_buffer("part", whole[1:])

        def forward(self, x: Any) -> Any:
            self.get_buffer("part").add_(1.0)
            return x + self.get_buffer("whole")

    with pytest.raises(ArgumentError, match=r"cannot decompose|shares memory with whole"):
        torch_program(export(Shared(), torch.ones(4)))


def test_what_writes_what_was_there_changes_nothing() -> None:
    norm = torch.ops.aten._native_batch_norm_legit.default

    def normalized(x: Any, mean: Any, variance: Any) -> Any:
        return norm(x, None, None, mean, variance, False, 0.1, 1e-5)[0]

    inputs = X, X[0].clone(), X[1].clone()
    text, bound = torch_program(export(normalized, *inputs))
    assert len(bound.complete(inputs)) == 3
    assert text.decode().count("-> !torch.vtensor<[4,16],f32> {") == 1
    assert text_of(lambda x: (x.copy_(x), x * 2)[1], X).count("-> !torch.vtensor<[4,16],f32> {") == 1


@pytest.mark.parametrize(
    "changed",
    [lambda x, y: x.copy_(y), lambda x, y: x.copy_(x.to(torch.int64)), lambda x, y: x.copy_(x[:1])],
)
def test_copies_of_something_else_are_updates(changed: Any) -> None:
    bound = torch_program(export(lambda x, y: (changed(x, y), x + 1)[1], X, X.clone()))[1]
    assert [w.position for w in bound.written] == [0]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x[x > 0], "aten.index.Tensor|aten.nonzero"),
        (lambda x: torch.masked_select(x, x > 0).sum(), "aten.masked_select"),
        (torch.argwhere, "aten.nonzero"),
    ],
)
def test_sizes_that_elements_decide_are_rejected(function: Any, name: str) -> None:
    with pytest.raises(UnsupportedOp, match=rf"unsupported op torch\.({name}): the elements decide"):
        torch_program(export(function, X))


def test_effects_are_rejected() -> None:
    def checked(x: Any) -> Any:
        factor, info = torch.linalg.cholesky_ex(x)
        torch.ops.aten._linalg_check_errors.default(info, "checked", is_matrix=True)
        return factor

    with pytest.raises(UnsupportedOp, match=r"torch\.aten\._linalg_check_errors: it has an effect"):
        torch_program(export(checked, torch.eye(3)))


def test_sizes_as_inputs_and_results_are_rejected() -> None:
    rows = torch.export.Dim("rows")
    exported = export(lambda x: (x, x.shape[0]), X, dynamic_shapes=(({0: rows},),))
    with pytest.raises(ArgumentError, match="which is no tensor"):
        torch_program(exported)


def test_control_flow_over_tensors_is_named() -> None:
    def function(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

    with pytest.raises(UnsupportedOp, match=r"higher_order\.cond") as caught:
        torch_program(export(function, X))
    assert caught.value.op == "torch.ops.higher_order.cond"


def test_without_torch_mlir_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = export(Mlp(), X)
    monkeypatch.setitem(sys.modules, "torch_mlir.extras.fx_importer", None)
    with pytest.raises(ArgumentError, match=r"pip install 'kcache-grpc\[torch\]'"):
        torch_program(exported)


def test_the_callers_program_stays_as_it_was() -> None:
    exported = export(lambda x: functional.gelu(x) @ torch.eye(16), X)
    before = str(exported.graph)
    first = hashlib.sha256(torch_program(exported)[0]).digest()
    assert str(exported.graph) == before
    assert hashlib.sha256(torch_program(exported)[0]).digest() == first


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * (1 + x.shape[0] % 2),
        lambda x: x + x.shape[0] // 64,
        lambda x: x * torch.sym_min(x.shape[0], 512),
    ],
    ids=["remainder", "quotient", "bound"],
)
def test_steps_of_open_sizes_are_rejected(function: Any) -> None:
    rows = torch.export.Dim.DYNAMIC
    exported = export(function, X, dynamic_shapes=(({0: rows},),))
    with pytest.raises(UnsupportedOp, match="of sizes that the program leaves open"):
        torch_program(exported)


def test_one_sample_is_above_the_numbers_of_the_program() -> None:
    rows = torch.export.Dim.DYNAMIC
    text = text_of(
        lambda x: torch.where(torch.full((1,), x.shape[0]) > 100, x, -x), X, dynamic_shapes=(({0: rows},),)
    )
    assert "[11,16]" in text
    assert "[101,16]" in text or "[103,16]" in text


# Indices.


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("function", "wrapped"),
    [
        (lambda x, i: x[i], True),
        (lambda x, i: x[i.abs()], False),
        (lambda x, i: x[torch.arange(3), i], True),
        (lambda x, i: x[torch.arange(3).unsqueeze(1), i.clamp(min=0)], False),
        (lambda x, i: x[x.argmax(0)], False),
        (lambda x, i: x[i + torch.arange(3)], True),
    ],
)
def test_indices_that_may_be_negative_count_from_the_end(function: Any, wrapped: bool) -> None:
    text = text_of(function, X, torch.tensor([0, -1, 2]))
    assert ("torch.aten.where" in text) == wrapped


@pytest.mark.issue(number=19, point=28)
def test_inputs_by_name() -> None:
    arguments = read_source(export(lambda x, y: x - 2 * y, X, X + 1), None).arguments
    assert arguments is not None
    first, two = object(), object()
    assert arguments.complete((first,), {arguments.given[1]: two}) == (first, two)
    with pytest.raises(ArgumentError, match="no input 'z'"):
        arguments.complete((first,), {"z": two})


@pytest.mark.issue(number=19, point=28)
def test_nested_keywords_of_the_export() -> None:
    class Module(nn.Module):
        def forward(self, x: Any, *, pair: Any, scale: Any) -> Any:
            return pair["a"] * x + pair["b"] * scale

    pair = {"a": X + 1, "b": X + 2}
    exported = export(Module(), X, kwargs={"pair": pair, "scale": X + 3})
    arguments = read_source(exported, None).arguments
    assert arguments is not None
    arrays = arguments.complete((X,), {"scale": X + 3, "pair": pair})
    assert [
        array is expected for array, expected in zip(arrays, (X, pair["a"], pair["b"]), strict=False)
    ] == [True] * 3
    assert torch.equal(arrays[3], X + 3)
    named = dict(zip(arguments.given, arrays, strict=True))
    assert all(map(torch.equal, arguments.complete((), named), arrays))
