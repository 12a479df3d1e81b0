"""Dimensions that operations of the Torch dialect name: of tensors of rank 0, and those that none has."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch

from kcache_compiler import InvalidProgram, UnsupportedOp, canonicalize
from tests.conformance.torch_ops.harness.judge import judge
from tests.conformance.torch_ops.harness.samples import Sample

pytestmark = pytest.mark.issue(number=19, point=12)

#: Rejected for tensors of rank 0, by name.
_NONE_OF_RANK_0 = {
    *("torch.aten.unsqueeze_copy", "torch.aten.transpose_copy.int", "torch.aten.squeeze_copy.dim"),
    *("torch.aten.scatter_reduce.two", "torch.prims.prod", "torch.aten.cumprod", "torch.aten.logsumexp"),
    *("torch.aten.unfold", "torch.aten.unfold_copy", "torch.aten.topk", "torch.aten.kthvalue"),
    *("torch.aten.count_nonzero", "torch.aten.count_nonzero.dim_IntList", "torch.aten.cosine_similarity"),
}


class _Verdict(NamedTuple):
    name: str
    keepdim: bool
    has_oracle: bool
    outcome: str
    reason: str


def _verdicts(rank: int, dim: int) -> list[_Verdict]:
    command = [sys.executable, "-m", "tests.conformance.torch_ops.harness.dims", str(rank), str(dim)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, (run.returncode, run.stdout[-200:], run.stderr[-2000:])
    return [_Verdict(*json.loads(line)) for line in run.stdout.splitlines()]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("dim", [pytest.param(dim, marks=pytest.mark.long) for dim in (-1, 0)])
def test_every_operation_of_a_tensor_of_rank_0(dim: int) -> None:
    verdicts = _verdicts(0, dim)
    assert len(verdicts) > 90
    known = [verdict for verdict in verdicts if verdict.has_oracle]
    wrong = [v for v in known if v.outcome != "right" and v.name not in _NONE_OF_RANK_0]
    assert not wrong
    assert {v.outcome for v in known if v.name in _NONE_OF_RANK_0} <= {"UnsupportedOp", "InvalidProgram"}
    assert len([v for v in known if v.outcome == "right"]) > 60
    # What eager mode rejects never compiles; of prims it rejects negative dimensions.
    others = [v for v in verdicts if not v.has_oracle and not v.name.startswith("torch.prims.")]
    assert {v.outcome for v in others} <= {"UnsupportedOp", "InvalidProgram"}


@pytest.mark.timeout(400)
@pytest.mark.long
@pytest.mark.parametrize(("rank", "dim"), [(2, 5), (0, 1), (1, -3), (2, -7)])
def test_dimensions_that_a_tensor_does_not_have(rank: int, dim: int) -> None:
    verdicts = _verdicts(rank, dim)
    assert len(verdicts) > 90
    assert [verdict for verdict in verdicts if verdict.outcome != "InvalidProgram"] == []


_FUNCTIONS: dict[str, Any] = {
    "logsumexp": lambda x: torch.logsumexp(x, (0,), True),
    "softmax": lambda x: torch.softmax(x, 0),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "var_mean": lambda x: torch.var_mean(x, 0, correction=0, keepdim=True),
    "sort": lambda x: torch.sort(x, -1),
    "topk": lambda x: torch.topk(x, 1),
    "max": lambda x: torch.max(x, 0, True),
    "norm": lambda x: torch.linalg.vector_norm(x, 2, 0, True),
    "cumprod": lambda x: torch.cumprod(x, 0),
    "flatten": lambda x: torch.flatten(x) + x.flip(0),
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", _FUNCTIONS)
def test_functions_of_a_tensor_of_rank_0(name: str) -> None:
    verdict, _ = judge(Sample.of(_FUNCTIONS[name], (torch.tensor(1.5),), {}))
    assert verdict.outcome == "right", verdict


def _reduced(dims: str) -> bytes:
    return f"""module {{ func.func @main(%x: !torch.vtensor<[2,3],f32>, %n: !torch.vtensor<[],si64>)
      -> !torch.vtensor<[],f32> {{
  {dims}
  %keep = torch.constant.bool false
  %none = torch.constant.none
  %y = torch.aten.sum.dim_IntList %x, %dims, %keep, %none
    : !torch.vtensor<[2,3],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[],f32>
  return %y : !torch.vtensor<[],f32>
}} }}""".encode()


def test_a_dimension_that_is_out_of_range() -> None:
    text = _reduced(
        "%a = torch.constant.int -3\n%dims = torch.prim.ListConstruct %a : (!torch.int) -> !torch.list<int>"
    )
    with pytest.raises(InvalidProgram, match=r"dim is -3, but must be from -2 to 1 for a tensor of rank 2"):
        canonicalize(text, "torch", "strict")


def test_a_dimension_that_is_named_twice() -> None:
    text = _reduced(
        "%a = torch.constant.int 1\n%b = torch.constant.int -1\n"
        "%dims = torch.prim.ListConstruct %a, %b : (!torch.int, !torch.int) -> !torch.list<int>"
    )
    with pytest.raises(
        InvalidProgram, match=r"sum\.dim_IntList at .*: dim contains a dimension twice: \[1, -1\]"
    ):
        canonicalize(text, "torch", "strict")


def test_a_dimension_that_is_no_constant() -> None:
    text = _reduced(
        "%a = torch.aten.Int.Tensor %n : !torch.vtensor<[],si64> -> !torch.int\n"
        "%dims = torch.prim.ListConstruct %a : (!torch.int) -> !torch.list<int>"
    )
    with pytest.raises(UnsupportedOp, match="its operand dim must be a constant"):
        canonicalize(text, "torch", "strict")
