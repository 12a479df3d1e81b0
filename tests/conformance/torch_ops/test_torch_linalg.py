"""``torch.linalg`` gives what eager mode gives; where eager mode raises, NaN."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import torch
from torch import linalg

from tests.compiler.torch_modules import Function
from tests.conformance.torch_ops.harness.judge import judge, results
from tests.conformance.torch_ops.harness.samples import Sample

pytestmark = [
    pytest.mark.issue(number=19, point=18),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

_SEED = torch.Generator().manual_seed(3)


def _random(*shape: int) -> Any:
    return torch.randn(*shape, generator=_SEED)


_MATRIX = _random(2, 4, 4)
_POSITIVE = _MATRIX @ _MATRIX.mT + torch.eye(4)
_TALL, _WIDE = _random(5, 3), _random(3, 5)
_RIGHT, _LEFT = _random(2, 4, 3), _random(2, 3, 4)


def _eigen(x: Any) -> Any:
    """What does not depend on the signs of vectors."""
    values, vectors = linalg.eigh(x)
    return values, (vectors * values.unsqueeze(-2)) @ vectors.mT


def _singular(full: bool) -> Any:
    def decomposed(x: Any) -> Any:
        left, values, right = linalg.svd(x, full_matrices=full)
        count = values.shape[-1]
        product = (left[..., :count] * values.unsqueeze(-2)) @ right[..., :count, :]
        return values, product, left.mT @ left, right @ right.mT

    return decomposed


_CASES: dict[str, tuple[Any, ...]] = {
    "cholesky": (linalg.cholesky, _POSITIVE),
    "lu": (linalg.lu, _TALL),
    "solve": (linalg.solve, _MATRIX, _RIGHT),
    "qr": (linalg.qr, _TALL),
    "svd": (_singular(False), _TALL),
}
_MORE: dict[str, tuple[Any, ...]] = {
    "eigh": (_eigen, _POSITIVE),
    "inv": (linalg.inv, _MATRIX),
    "slogdet": (linalg.slogdet, _MATRIX),
    "upper cholesky": (lambda x: linalg.cholesky_ex(x, upper=True), _POSITIVE),
    "lu of wide": (linalg.lu, _WIDE),
    "lu_factor": (linalg.lu_factor, _MATRIX),
    "lu_solve": (lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b), _MATRIX, _RIGHT),
    "solve from the right": (lambda a, b: linalg.solve(a, b, left=False), _MATRIX, _LEFT),
    "solve of a vector": (linalg.solve, _MATRIX[0], _RIGHT[0, :, 0]),
    "solve of a batch": (linalg.solve, _MATRIX, _RIGHT[:1]),
    "complete qr": (lambda x: linalg.qr(x, "complete"), _TALL),
    "qr of wide": (linalg.qr, _WIDE),
    "r": (lambda x: linalg.qr(x, "r")[1], _TALL),
    "eigvalsh": (lambda x: linalg.eigvalsh(x, UPLO="U"), _POSITIVE),
    "full svd": (_singular(True), _WIDE),
    "svdvals": (linalg.svdvals, _TALL),
    "det": (linalg.det, _MATRIX),
    "det of a singular matrix": (linalg.det, torch.ones(3, 3)),
    "logdet": (torch.logdet, _POSITIVE),
    "pinv": (linalg.pinv, _TALL),
    "pinv of a singular matrix": (lambda x: linalg.pinv(torch.cat([x, x], -1)), _TALL),
    "cond": (linalg.cond, _MATRIX[0]),
    "matrix_rank": (linalg.matrix_rank, _TALL),
    "nuclear norm": (lambda x: linalg.matrix_norm(x, "nuc"), _TALL),
    "matrix_power": (lambda x: linalg.matrix_power(x, -2), _MATRIX),
    "tensorinv": (lambda x: linalg.tensorinv(x.reshape(2, 2, 4)), _MATRIX[0]),
    "triangular": (lambda a, b: linalg.solve_triangular(a.triu(), b, upper=True), _MATRIX, _RIGHT),
    "cholesky_solve": (lambda a, b: torch.cholesky_solve(b, linalg.cholesky(a)), _POSITIVE, _RIGHT),
    "cholesky_inverse": (lambda a: torch.cholesky_inverse(linalg.cholesky(a)), _POSITIVE),
}


def _outcome(case: tuple[Any, ...], dtype: Any) -> str:
    function, *tensors = case
    verdict, _ = judge(Sample.of(function, tuple(tensor.to(dtype) for tensor in tensors), {}))
    return f"{verdict.outcome} {verdict.reason}".strip()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", _CASES)
def test_functions(name: str) -> None:
    assert _outcome(_CASES[name], torch.float32) == "right"


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", _CASES | _MORE)
def test_more_functions(name: str, dtype: Any) -> None:
    assert _outcome((_CASES | _MORE)[name], dtype) == "right"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("function", [linalg.inv, linalg.cholesky, linalg.qr])
def test_matrices_without_elements_are_rejected(function: Any) -> None:
    outcome = _outcome((function, torch.ones(2, 0, 0)), torch.float32)
    assert outcome.startswith("rejected UnsupportedOp")
    assert outcome.endswith("its matrices have no elements")


def test_what_eager_mode_raises_is_nan() -> None:
    def both(x: Any) -> Any:
        return linalg.cholesky(x), linalg.inv(x)

    good = torch.tensor([[4.0, 2.0], [2.0, 5.0]])
    exported = torch.export.export(Function(both), (torch.stack([good, good]),))
    outputs = results(exported, (torch.stack([torch.ones(2, 2) * -1, good]),))
    for got, wanted in zip(outputs, both(good), strict=True):
        assert torch.from_numpy(got[0]).isnan().all()
        torch.testing.assert_close(torch.from_numpy(got[1]), wanted)


def _by_qr(a: Any, b: Any) -> Any:
    q, r = linalg.qr(a)
    return linalg.solve_triangular(r, q.mT @ b, upper=True)


@pytest.mark.parametrize(
    "function", [_by_qr, pytest.param(lambda a, b: linalg.pinv(a) @ b, marks=pytest.mark.long, id="pinv")]
)
def test_least_squares_as_documented(function: Any) -> None:
    """``torch.export`` rejects ``lstsq``; these stand for it, with its results."""
    a, b = torch.stack([_TALL, _TALL * 2 + 1]), _random(2, 5, 2)
    exported = torch.export.export(Function(function), (a, b))
    (solution,) = results(exported, (a, b))
    torch.testing.assert_close(torch.from_numpy(solution), linalg.lstsq(a, b).solution, rtol=1e-4, atol=1e-5)


def test_least_squares_itself_are_rejected() -> None:
    outcome = _outcome((lambda a, b: linalg.lstsq(a, b).solution, _TALL, _random(5, 2)), torch.float32)
    assert outcome.startswith(("no-oracle PyTorch: DynamicOutputShapeException", "rejected UnsupportedOp"))
