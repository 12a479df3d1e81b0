"""Child process of ``opinfo``: PyTorch's samples of one operation, in eager mode and with backend ``kcache``.

Reads batches from stdin, a line of JSON each: level, target, then operation, dtype, seed and number of each
case. Writes a line with outcome, reason and, for each operator of PyTorch's that was left out, its reason.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kcache_grpc.integrations.torch.dynamo.lowering.decisions import decisions, forget
from tests.conformance.torch_ops.harness import samples as opinfo

#: Samples of a case, spread over the first ``_LISTED`` of an operation.
_SAMPLES = 4
_LISTED = 40
_OPTIONS = {"strict": True, "least_operators": 0, "warm_start": False}
#: Operations, and the result of each that depends on the order of equal elements.
_UNSTABLE = {
    "argsort": "result 0: Tensor-likes",
    **dict.fromkeys(("sort", "topk", "mode", "kthvalue", "median", "nanmedian"), "result 1: Tensor-likes"),
}

#: Operations whose results have signs that are not defined: of these, PyTorch's tests compare magnitudes.
_ANY_SIGNS = ("linalg.eigh",)


@dataclass
class Sample:
    """A call: ``function`` of ``leaves``, of which tensors are replaced by new copies at each call."""

    function: Callable[..., Any]
    leaves: list[Any]
    spec: Any
    differentiable: bool

    def tensors(self) -> list[Any]:
        """Copies of the tensors with their strides, which require gradients where the sample's do."""
        return [_copy(leaf, self.differentiable) for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def __call__(self, tensors: Sequence[Any]) -> Any:
        remaining = iter(tensors)
        filled = [next(remaining) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        arguments, keywords = pytree.tree_unflatten(filled, self.spec)
        return self.function(*arguments, **keywords)


def _copy(tensor: Any, differentiable: bool) -> Any:
    copy: Any = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    if any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        copy = tensor.detach().clone()
    else:
        copy.copy_(tensor.detach())
    return copy.requires_grad_(differentiable and tensor.requires_grad)


@dataclass
class Results:
    """What a call leaves behind: ``values`` by role, and facts that are compared exactly."""

    values: list[tuple[str, Any]]
    facts: list[tuple[str, Any]]


def results_of(
    function: Callable[[Sequence[Sequence[Any]]], Sequence[Any]], groups: Sequence[Sequence[Any]]
) -> list[Results]:
    """Calls a function of the tensors of several samples; computes gradients where results have them."""
    torch.manual_seed(3)
    outputs = [_leaves(output) for output in function(groups)]
    gradients = _gradients(outputs, groups)
    return [_results(*values) for values in zip(outputs, groups, gradients, strict=True)]


def _leaves(outputs: Any) -> list[Any]:
    return [leaf for leaf in pytree.tree_leaves(outputs) if leaf is not None]


def _results(outputs: Sequence[Any], tensors: Sequence[Any], gradients: Sequence[Any]) -> Results:
    values: list[tuple[str, Any]] = []
    facts: list[tuple[str, Any]] = []
    for index, output in enumerate(outputs):
        if not isinstance(output, torch.Tensor):
            facts.append((f"result {index}", output))
            continue
        values.append((f"result {index}", output.detach().clone()))
        facts.append((f"dtype of result {index}", output.dtype))
        facts.append((f"shape of result {index}", tuple(output.shape)))
        facts.append((f"strides of result {index}", _strides(output)))
        facts.append((f"requires_grad of result {index}", output.requires_grad))
    values += [(f"gradient {index}", gradient) for index, gradient in enumerate(gradients)]
    values += [(f"operand {index} after the call", tensor.detach()) for index, tensor in enumerate(tensors)]
    return Results(values, facts)


def _strides(tensor: Any) -> tuple[int, ...] | None:
    """Strides of axes with more than one element."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return None
    return tuple(s for s, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)


def _gradients(outputs: Sequence[Sequence[Any]], groups: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Gradients of each group's tensors, in one backward pass."""
    roots: list[Any] = []
    seeds: list[Any] = []
    for results in outputs:
        generator = torch.Generator().manual_seed(5)
        for result in results:
            if isinstance(result, torch.Tensor) and result.requires_grad:
                seed = torch.randn(result.shape, generator=generator, dtype=torch.float64)
                roots.append(result)
                seeds.append(seed.to(result.dtype))
    operands = [[tensor for tensor in group if tensor.requires_grad] for group in groups]
    flat = [tensor for group in operands for tensor in group]
    if not roots or not flat:
        return [[] for _ in groups]
    gradients = iter(torch.autograd.grad(roots, flat, seeds, allow_unused=True))
    return [[next(gradients) for _ in group] for group in operands]


def difference(ours: Results, theirs: Results, exact: Callable[[], Results] | None = None) -> str | None:
    """What differs between results of the backend and of eager mode, or ``None``.

    Values are as near as ``torch.testing.assert_close`` wants them; else their error to ``exact``, the
    results in double precision, is not larger than twice that of eager mode.
    """
    if [name for name, _ in ours.facts] != [name for name, _ in theirs.facts]:
        return f"other results: {ours.facts} for {theirs.facts}"
    for (name, mine), (_, wanted) in zip(ours.facts, theirs.facts, strict=True):
        if mine != wanted and not (mine != mine and wanted != wanted):
            return f"{name}: {mine}, in eager mode {wanted}"
    for position, ((name, mine), (_, wanted)) in enumerate(zip(ours.values, theirs.values, strict=True)):
        if (mine is None) != (wanted is None):
            return f"{name}: {mine}, in eager mode {wanted}"
        try:
            torch.testing.assert_close(mine, wanted, equal_nan=True)
        except AssertionError as error:
            if not _as_exact(mine, wanted, position, exact):
                return f"{name}: {' '.join(str(error).split())[:200]}"
    return None


def _as_exact(mine: Any, wanted: Any, position: int, exact: Callable[[], Results] | None) -> bool:
    if exact is None or not (wanted.is_floating_point() or wanted.is_complex()):
        return False
    try:
        reference = exact().values[position][1]
    except Exception:  # PyTorch has no such operator in double precision
        return False
    wide = torch.complex128 if wanted.is_complex() else torch.float64
    if reference is None or reference.shape != wanted.shape:
        return False

    def error(value: Any) -> float:
        distance = (value.to(wide) - reference).abs()
        same = (value.to(wide) == reference) | (value.isnan() & reference.isnan())
        return (
            float(torch.where(same, 0.0, distance).nan_to_num(float("inf")).max()) if value.numel() else 0.0
        )

    scale = float(reference.abs().nan_to_num(0.0, 0.0, 0.0).max()) if reference.numel() else 0.0
    return error(mine) <= 2 * error(wanted) + torch.finfo(wanted.dtype).eps * scale


def listed(name: str, dtype: str, seed: int) -> list[Sample]:
    """Some samples of an operation, spread over its first ones."""
    info, kind = opinfo.info(name), opinfo.DTYPES[dtype]
    torch.manual_seed(seed)
    differentiable = kind is torch.float32 and info.supports_autograd
    chosen: list[Sample] = []
    drawn = []
    for sample in info.sample_inputs("cpu", kind, requires_grad=differentiable):
        drawn.append(sample)
        if len(drawn) == _LISTED:
            break
    step = max(1, len(drawn) // _SAMPLES)
    for sample in drawn[::step][:_SAMPLES]:
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if tensors and all(x.layout is torch.strided and not x.is_nested for x in tensors):
            function = info.get_op()
            if name in _ANY_SIGNS:
                function = _then(function, sample.output_process_fn_grad)
            chosen.append(Sample(function, leaves, spec, differentiable))
    return chosen


def _then(first: Callable[..., Any], second: Callable[[Any], Any]) -> Callable[..., Any]:
    def function(*arguments: Any, **keywords: Any) -> Any:
        return second(first(*arguments, **keywords))

    return function


def eager_results(sample: Sample) -> Results:
    """The results of eager mode."""
    return results_of(_together([sample]), [sample.tensors()])[0]


def _together(chosen: Sequence[Sample]) -> Callable[[Sequence[Sequence[Any]]], list[Any]]:
    """One function of the tensors of all samples."""

    def function(groups: Sequence[Sequence[Any]]) -> list[Any]:
        return [sample(tensors) for sample, tensors in zip(chosen, groups, strict=True)]

    return function


def _in_double(sample: Sample) -> Results:
    """The results of eager mode in double precision."""

    def widened(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            return leaf.detach().double().requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.Tensor) and leaf.is_complex():
            return leaf.detach().to(torch.complex128).requires_grad_(leaf.requires_grad)
        return torch.float64 if leaf in (torch.float32, torch.bfloat16) else leaf

    wide = Sample(sample.function, [widened(leaf) for leaf in sample.leaves], sample.spec, True)
    return eager_results(wide)


def judge(name: str, dtype: str, seed: int, dynamic: bool) -> list[str]:
    """The outcome of a case, its reason, and operators that were left to PyTorch."""
    fitting: list[Sample] = []
    eager: list[Results] = []
    for sample in listed(name, dtype, seed):
        try:
            eager.append(eager_results(sample))
        except Exception:  # the sample is for tests of errors, or writes to a leaf
            continue
        fitting.append(sample)
    if not fitting:
        return ["no-oracle", "no sample of strided tensors that eager mode takes"]
    try:
        verdict, left = _judged(fitting, eager, dynamic)
    except Exception as error:
        verdict, left = f"{type(error).__name__}: {error}", []
    if verdict is None:
        return [*_coverage(left), *left]
    for sample, wanted in zip(fitting, eager, strict=True):
        alone = _alone(name, sample, wanted, dynamic)
        if alone is not None:
            return alone
    return ["wrong", f"together with other samples: {verdict[:300]}"]


def _alone(name: str, sample: Sample, wanted: Results, dynamic: bool) -> list[str] | None:
    """The outcome where one sample is wrong or raises an error; ``None`` where it is right."""
    try:
        verdict, _ = _judged([sample], [wanted], dynamic)
        outcome = "wrong"
    except Exception as error:
        verdict, outcome = f"{type(error).__name__}: {' '.join(str(error).split())[:600]}", "error"
    if verdict is None:
        return None
    if outcome == "wrong" and name in _UNSTABLE and verdict.startswith(_UNSTABLE[name]):
        return ["expected", f"indices of equal elements are not defined: {verdict}"]
    operands = ", ".join(
        f"{leaf.dtype}{list(leaf.shape)}" if isinstance(leaf, torch.Tensor) else repr(leaf)
        for leaf in sample.leaves
    )
    verdict = f"{verdict} for {operands[:200]}"
    try:
        torch._dynamo.reset()
        compiled = torch.compile(_together([sample]), backend="aot_eager", dynamic=dynamic)
        [again] = results_of(compiled, [sample.tensors()])
        theirs = difference(again, wanted, lambda: _in_double(sample))
    except Exception as error:
        theirs = f"{type(error).__name__}: {error}"
    if theirs is not None:
        return ["pytorch", f"backend aot_eager too: {theirs[:150]}; {verdict}"]
    return [outcome, verdict]


def _judged(
    fitting: Sequence[Sample], eager: Sequence[Results], dynamic: bool
) -> tuple[str | None, list[str]]:
    """What differs when samples are compiled as one graph, and what was left to PyTorch."""
    torch._dynamo.reset()
    forget()
    compiled = torch.compile(_together(fitting), backend="kcache", options=_OPTIONS, dynamic=dynamic)
    results = results_of(compiled, [sample.tensors() for sample in fitting])
    verdict = None
    for sample, ours, wanted in zip(fitting, results, eager, strict=True):
        verdict = verdict or difference(ours, wanted, lambda sample=sample: _in_double(sample))
    return verdict, _left()


def _left() -> list[str]:
    left = {f"{each.operator}: {each.reason}": None for graph in decisions() for each in graph.left_out}
    kernels = any(graph.kernels for graph in decisions())
    return ["kernels" if kernels else "none", *left]


def _coverage(left: Sequence[str]) -> list[str]:
    if not decisions():
        return ["eager", "Dynamo traced no graph"]
    if left[0] == "none":
        reason = "; ".join(left[1:]) or "nothing to compute"
        return ["views" if not left[1:] else "left", reason[:300]]
    return ["kernel" if not left[1:] else "partly", "; ".join(left[1:])[:300]]


def main(dynamic: bool) -> None:
    """Judge until stdin ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for line in sys.stdin:
        _, _, asked = json.loads(line)
        out.write(json.dumps([_judged_case(case, dynamic) for case in asked]) + "\n")
        out.flush()


def _judged_case(case: tuple[str, str, int, int], dynamic: bool) -> list[str]:
    name, dtype, seed, _ = case
    try:
        return judge(name, dtype, seed, dynamic)
    except Exception as error:
        return ["no-oracle", f"{type(error).__name__}: {str(error)[:300]}"]


if __name__ == "__main__":
    main("dynamic" in sys.argv[1:])
