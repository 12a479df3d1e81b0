"""One model by the backend, compared with eager mode."""

from __future__ import annotations

import copy
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch._dynamo.utils import counters

from kcache_grpc.integrations.torch.dynamo.backend import kcache
from kcache_grpc.integrations.torch.dynamo.lowering import decisions
from tests.conformance.torch_compile.model import Calls, Model, tensors_of, without_dropout

#: Largest difference from eager mode, relative to the largest value of a tensor, that is right for f32.
TOLERANCE = 1e-5
#: What is right where that is exceeded: the distance from f64, in multiples of that of eager mode.
FACTOR = 4.0
#: What is right in f64, relative to the largest value of a tensor.
TOLERANCE_F64 = 1e-7
_STRICT: dict[str, Any] = {"strict": True}


@dataclass(frozen=True)
class Outcome:
    """How far outputs and gradients are from eager mode, and what the backend did."""

    error: float
    gradient_error: float
    #: Why ``error`` and ``gradient_error`` are too large, or nothing.
    wrong: str
    graphs: int
    kernels: int
    share: float
    traffic_share: float
    left_out: Mapping[str, int]
    seconds: float


@dataclass(frozen=True)
class Values:
    """Results by name: outputs, buffers, and gradients of parameters."""

    outputs: Mapping[str, torch.Tensor]
    gradients: Mapping[str, torch.Tensor]


def instantiate(name: str, model: Model, train: bool) -> tuple[nn.Module, Calls]:
    """The module and its calls, from a seed of its own."""
    with torch.random.fork_rng():
        torch.manual_seed(zlib.crc32(name.encode()))
        module, calls = model.make()
        _randomize(without_dropout(module), calls)
    return module.train(train), calls


def _randomize(module: nn.Module, calls: Calls) -> None:
    """Add noise to constant parameters, so that all results depend on the inputs, and give batch norms the
    statistics of their inputs.
    """
    norms = [each for each in module.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() < 2 or not float(parameter.std()):
                parameter += 0.1 * torch.randn_like(parameter)
        if norms:
            momenta = [norm.momentum for norm in norms]
            for norm in norms:
                norm.momentum = 1.0
            calls(module.train())
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum


def values_of(module: nn.Module, function: Any, calls: Calls, train: bool) -> Values:
    """Outputs, updated buffers, and with ``train`` the gradients of the mean square of the outputs."""
    torch.manual_seed(0)
    with torch.set_grad_enabled(train):
        results = list(tensors_of(calls(function)))
    if train:
        wide = [
            each if each.dtype == torch.float64 else each.float() for each in results if each.requires_grad
        ]
        losses = [each.square().mean() for each in wide]
        torch.stack(losses).sum().backward()
    outputs = {f"output {index}": each.detach() for index, each in enumerate(results)}
    outputs |= {f"buffer {name}": buffer.detach() for name, buffer in module.named_buffers()}
    parameters = module.named_parameters()
    gradients = {f"gradient of {name}": each.grad for name, each in parameters if each.grad is not None}
    return Values(outputs, gradients)


def outcome(name: str, model: Model, train: bool, options: Mapping[str, Any]) -> Outcome:
    """What becomes of a model. Raises what the compile or a call raises: it is strict."""
    begin = time.perf_counter()
    module, calls = instantiate(name, model, train)
    reference, compiled = copy.deepcopy(module), copy.deepcopy(module)
    torch.compiler.reset()
    counters.clear()
    decisions.forget()
    expected = values_of(reference, reference, calls, train)
    function = torch.compile(compiled, backend=kcache, options={"strict": True, **options})
    actual = values_of(compiled, function, calls, train)
    error, wrong = _compared(actual.outputs, expected.outputs, 0.0)
    # A gradient that is 0 but for rounding has no scale of its own.
    least = 1e-3 * max(map(_scale, expected.gradients.values()), default=0.0)
    gradient_error, wrong_gradients = _compared(actual.gradients, expected.gradients, least)
    wrong += wrong_gradients
    result = _with_decisions(error, gradient_error, time.perf_counter() - begin)
    if wrong:  # which compiles the model again, in f64
        judged = _judged(wrong, module, calls, train, actual, expected)
        result = replace(result, wrong="; ".join(judged))
    return result


def _with_decisions(error: float, gradient_error: float, seconds: float) -> Outcome:
    all_decisions = decisions.decisions()
    inside = sum((each.inside for each in all_decisions), decisions.Cost())
    outside = sum((each.outside for each in all_decisions), decisions.Cost())
    left = Counter((each.operator, each.reason) for decision in all_decisions for each in decision.left_out)
    return Outcome(
        error,
        gradient_error,
        "",
        counters["stats"]["unique_graphs"],
        sum(len(each.kernels) for each in all_decisions),
        _share(inside.operations, outside.operations),
        _share(inside.bytes, outside.bytes),
        {f"{operator}: {reason}": count for (operator, reason), count in left.most_common()},
        seconds,
    )


def _share(inside: float, outside: float) -> float:
    return inside / (inside + outside) if inside + outside else 1.0


def _compared(
    actual: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], least: float
) -> tuple[float, list[str]]:
    """The largest difference relative to a tensor's scale, or to ``least``, and the tensors that differ by
    more than the tolerance.
    """
    if actual.keys() != expected.keys():
        return float("inf"), [f"not in both: {sorted(actual.keys() ^ expected.keys())}"]
    errors = {
        name: difference(actual[name], tensor) / max(_scale(tensor), least, 1e-30)
        for name, tensor in expected.items()
    }
    return max(errors.values(), default=0.0), [
        name for name, error in errors.items() if not error <= TOLERANCE
    ]


def _scale(tensor: torch.Tensor) -> float:
    """The largest finite value of a tensor."""
    if not tensor.is_floating_point() or not tensor.numel():
        return 1.0
    return float(tensor.double().abs().nan_to_num(0.0, 0.0, 0.0).max())


def difference(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest absolute difference; infinite for another shape or dtype, or where one only is finite."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return float("inf")
    if torch.equal(actual, expected):
        return 0.0
    if not expected.is_floating_point():
        return float("inf")
    finite = torch.isfinite(expected)
    if not torch.equal(actual[~finite].nan_to_num(0.5), expected[~finite].nan_to_num(0.5)):
        return float("inf")
    apart = (actual[finite].double() - expected[finite].double()).abs().max()
    return float(apart) if bool(torch.isfinite(apart)) else float("inf")


def _judged(
    wrong: list[str], module: nn.Module, calls: Calls, train: bool, actual: Values, expected: Values
) -> list[str]:
    """Those of the tensors that are further from f64 than eager mode is, which rounds too.

    None if the model, compiled in f64, agrees with eager mode in f64: what is left is rounding of f32.
    """
    exact = _exact(module, calls, train)
    if exact is None:
        return wrong
    further = [name for name in wrong if not _as_close(name, actual, expected, exact)]
    return further if further and not _agrees_in_f64(module, calls, train, exact) else []


def _agrees_in_f64(module: nn.Module, calls: Calls, train: bool, exact: Values) -> bool:
    torch.compiler.reset()
    compiled = _exact(module, calls, train, lambda wide: torch.compile(wide, backend=kcache, options=_STRICT))
    if compiled is None:
        return False
    names = {**exact.outputs, **exact.gradients}
    values = {**compiled.outputs, **compiled.gradients}
    largest = max(map(_scale, exact.gradients.values()), default=0.0)
    return all(
        name in values
        and difference(values[name].double(), tensor.double())
        <= TOLERANCE_F64 * max(_scale(tensor), 1e-3 * largest)
        for name, tensor in names.items()
    )


def _as_close(name: str, actual: Values, expected: Values, exact: Values) -> bool:
    ours, eager, right = ({**each.outputs, **each.gradients}.get(name) for each in (actual, expected, exact))
    if ours is None or eager is None or right is None or ours.shape != right.shape:
        return False
    right = right.double()
    scale = _scale(right)
    limit = max(FACTOR * difference(eager.double(), right), TOLERANCE * scale)
    return difference(ours.double(), right) <= limit


def _exact(
    module: nn.Module, calls: Calls, train: bool, compiled: Callable[[Any], Any] = lambda wide: wide
) -> Values | None:
    """The values in f64; ``None`` where the model does not run in it."""
    wide = copy.deepcopy(module).double()
    call = compiled(wide)

    def function(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda each: each.double() if each.is_floating_point() else each, (args, kwargs)
        )
        return call(*args, **kwargs)

    torch.set_default_dtype(torch.float64)
    try:
        return values_of(wide, function, calls, train)
    except RuntimeError:
        return None
    finally:
        torch.set_default_dtype(torch.float32)
