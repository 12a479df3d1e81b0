"""Traces inference graphs once that neither mutate their inputs nor return aliases.

AOTAutograd runs a graph twice: the first run finds which inputs it mutates and which outputs are views, which
the second, which is traced, depends on. Here the first run is of a function that returns new tensors of the
same shapes, which is quick, and the traced run is checked: inputs are not mutated, and each output has a
storage of its own. A graph whose operators mutate no tensor is also traced without functionalization, which
has no effect on it; that none does is checked by the schemas of all ATen operators in the trace.
Where a check fails, ``NotFunctional`` is raised, and the graph has to be traced as AOTAutograd does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

torch: Any = import_module("torch")

#: Functions of Python that mutate their first operand.
_UPDATES = frozenset(
    getattr(operator, f"i{name}")
    for name in (
        *("add", "and", "floordiv", "lshift", "matmul", "mod", "mul"),
        *("or", "pow", "rshift", "sub", "truediv", "xor"),
    )
) | {operator.setitem, operator.delitem}
#: Functions that mutate running statistics unless an argument is ``False``: its position and its name.
_STATISTICS = {"batch_norm": (5, "training"), "instance_norm": (5, "use_input_stats")}
#: Namespaces of operators whose schemas state what they mutate.
_NAMESPACES = ("aten", "prims")


class NotFunctional(Exception):
    """A graph may mutate an input, return an alias, or have other effects than its results."""


@dataclass(frozen=True)
class Expected:
    """What the trace of a graph has to confirm."""

    #: Fake tensors with the shapes, strides, dtypes and devices of the outputs.
    outputs: tuple[Any, ...]
    #: Whether operators may mutate tensors that are no inputs.
    updates: bool

    def empty_outputs(self, *_: Any) -> tuple[Any, ...]:
        """New tensors like the outputs."""
        return tuple(
            torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
            for value in self.outputs
        )


def expected_of(graph_module: Any) -> Expected:
    """What is expected of a graph of Dynamo, by its example values.

    Raises ``NotFunctional`` for a training graph, one with symbolic sizes, attributes, subgraphs or inputs of
    other classes than plain tensors, and where example values tell of aliases or of a written input.
    """
    nodes = graph_module.graph.nodes
    examples = [node.meta.get("example_value") for node in nodes if node.op == "placeholder"]
    check_inputs(examples)
    inputs = set(map(_storage, examples))
    if any(_is_complex(node.meta.get("example_value")) for node in nodes):
        raise NotFunctional("it has complex numbers, which may be lazy conjugates")
    writing = [node for node in nodes if _may_write(node)]
    for node in writing:
        first: Any = node.args[0] if node.args and "out" not in node.kwargs else None
        operands = [first] if isinstance(first, torch.fx.Node) else node.all_input_nodes
        if any(_storage(each.meta.get("example_value")) in inputs for each in operands):
            raise NotFunctional(f"{node.name} may write an input")
    return Expected(_outputs(graph_module.graph, inputs), bool(writing))


def check_inputs(values: Sequence[Any]) -> None:
    """Raises ``NotFunctional`` unless all are plain fake tensors of static shape without gradients."""
    if not all(map(_is_plain, values)):
        raise NotFunctional("inputs are no plain tensors of static shape")
    if any(value.item_memo is not None for value in values):
        raise NotFunctional("an input is a number of Python whose value is a symbol")
    if torch.is_grad_enabled() and any(value.requires_grad for value in values):
        raise NotFunctional("it may be differentiated")


def checked(
    function: Callable[..., Sequence[Any]], expected: Expected, fake_args: Sequence[Any]
) -> Callable[..., Sequence[Any]]:
    """``function``, which raises ``NotFunctional`` where a run does not do what is expected."""

    def run(*args: Any) -> Sequence[Any]:
        for value in args:
            value.__dict__.pop("detach", None)
        before = _global_state()
        results = function(*args)
        if _global_state() != before:
            torch.set_grad_enabled(before[0])  # the next trace begins as this one did
            raise NotFunctional("it changes a mode of PyTorch")
        if len(results) != len(expected.outputs) or not all(map(_is_like, results, expected.outputs)):
            raise NotFunctional("its example values have other shapes")
        storages = [_storage(value) for value in results]
        if len({*storages}) != len(storages) or not {*storages}.isdisjoint(map(_storage, args)):
            raise NotFunctional("outputs are aliases")
        if any(map(_is_written, args, fake_args)):
            raise NotFunctional("inputs are written")
        return results

    return run


def check_operators(graph: Any, *, updates: bool) -> None:
    """Raises ``NotFunctional`` unless all operators of an ATen graph are known, and none is complex.

    Without ``updates``, they must not mutate tensors.
    """
    for node in graph.nodes:
        if _is_complex(node.meta.get("val")):
            raise NotFunctional(f"{node.name} is complex")
        if node.op in ("placeholder", "get_attr", "output") or node.target is operator.getitem:
            continue
        schema = getattr(node.target, "_schema", None)
        if schema is None or schema.name.partition("::")[0] not in _NAMESPACES or not schema.returns:
            raise NotFunctional(f"{node.name} may have other effects than its results")
        if schema.is_mutable and not updates:
            raise NotFunctional(f"{node.name} writes a tensor")


def _outputs(graph: Any, inputs: set[Any]) -> tuple[Any, ...]:
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    values: list[Any] = []
    for node in cast("Sequence[Any]", output.args[0]):
        value: Any = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
        if not _is_plain(value) or value.requires_grad:
            raise NotFunctional("outputs are no plain tensors of static shape without gradients")
        values.append(value)
    storages = {_storage(value) for value in values}
    if len(storages) != len(values) or not storages.isdisjoint(inputs):
        raise NotFunctional("outputs are aliases")
    return tuple(values)


def _may_write(node: Any) -> bool:
    """Whether a node of Dynamo may mutate an operand: a guess, which ``check_operators`` confirms.

    Raises ``NotFunctional`` for attributes and subgraphs.
    """
    if node.op in ("placeholder", "output"):
        return False
    if node.op not in ("call_function", "call_method") or isinstance(
        node.target, torch._ops.HigherOrderOperator
    ):
        raise NotFunctional(f"{node.name} is no call of a function")
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    if name in _STATISTICS:
        position, keyword = _STATISTICS[name]
        flag = node.args[position] if len(node.args) > position else node.kwargs.get(keyword)
        return flag is not False
    if node.kwargs.get("inplace") or node.kwargs.get("out") is not None or node.target in _UPDATES:
        return True
    return name.endswith("_") and not name.endswith("__")


def _is_plain(value: Any) -> bool:
    """Whether a value is a fake tensor with static sizes and a storage."""
    fakes: Any = import_module("torch._subclasses.fake_tensor")
    return (
        type(value) is fakes.FakeTensor
        and value.layout is torch.strided
        and all(type(size) is int for size in (*value.shape, *value.stride()))
    )


def _is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype.is_complex


def _is_like(value: Any, expected: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and not value.requires_grad
        and (value.shape, value.dtype, value.device) == (expected.shape, expected.dtype, expected.device)
    )


def _is_written(value: Any, fake: Any) -> bool:
    """Whether functionalization saw that an input was written. A tensor without it has not been."""
    functional: Any = import_module("torch._functorch._aot_autograd.functional_utils")
    if type(value) is not functional.FunctionalTensor:
        return False
    return functional.has_data_mutation(value) or functional.has_metadata_mutation(
        value, fake, check_only_storage_mutation=False
    )


def _storage(value: Any) -> Any:
    """What identifies a tensor's storage, of a tensor of ``torch.func`` that of what it wraps.

    ``None`` without one.
    """
    if not isinstance(value, torch.Tensor):
        return None
    value = _unwrapped(value)
    if value.layout is not torch.strided:
        return None
    references: Any = import_module("torch.multiprocessing.reductions")
    return references.StorageWeakRef(value.untyped_storage())


def _unwrapped(value: Any) -> Any:
    functorch: Any = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(value):
        value = functorch.get_unwrapped(value)
    return value


def _global_state() -> tuple[Any, ...]:
    utils: Any = import_module("torch._functorch._aot_autograd.utils")
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), utils._get_autocast_states()
