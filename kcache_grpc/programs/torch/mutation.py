"""Programs that do more than give results: updates in place are results, effects are rejected."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from kcache_grpc.errors import UnsupportedOp


class Update(NamedTuple):
    """An update in place; its new value is a result of the program."""

    #: Of an input its placeholder's name, else the name of a buffer or parameter.
    target: str
    is_input: bool


def reject_effects(graph: Any) -> None:
    """Raise ``UnsupportedOp`` for operations that may stop a program, or print."""
    for node in graph.nodes:
        if node.op == "call_function" and str(node.target) == "with_effects":
            op = f"torch.{node.args[1]}".removesuffix(".default")
            reason = "it has an effect beside its results, as an error or a print, and kernels have none"
            raise UnsupportedOp(f"unsupported op {op}: {reason}", op=op)


def take_updates(program: Any) -> tuple[Update, ...]:
    """The updates of inputs, buffers and parameters by a decomposed program, whose graph is changed in place.

    The new values are its last results. Results that only write what was there, as those of a batch norm out
    of training, are none.
    """
    signature = program.graph_signature
    inputs = dict(signature.user_inputs_to_mutate)
    stored = {**signature.buffers_to_mutate, **getattr(signature, "parameters_to_mutate", {})}
    written = {**stored, **inputs}
    if not written:
        return ()
    names = {**signature.inputs_to_buffers, **signature.inputs_to_parameters}
    output = next(node for node in reversed(program.graph.nodes) if node.op == "output")
    count = len(output.args[0]) - len(signature.user_outputs)
    # Outputs may share a node: its name is not enough to tell which of two it updates.
    targets = [
        spec for spec in signature.output_specs if spec.kind.name not in ("USER_OUTPUT", "LOSS_OUTPUT")
    ]
    updates: list[Update] = []
    results: list[Any] = []
    for spec, result in zip(targets, output.args[0][:count], strict=True):
        if not _writes_itself(result, spec.target, names):
            updates.append(Update(spec.target, spec.kind.name == "USER_INPUT_MUTATION"))
            results.append(result)
    output.args = ((*output.args[0][count:], *results),)
    return tuple(updates)


def _writes_itself(result: Any, target: str, names: dict[str, str]) -> bool:
    source = _source(result)
    return source.op == "placeholder" and names.get(source.name, source.name) == target


def _source(node: Any) -> Any:
    """What a node is a copy of, of the same dtype and shape; on the way it may have been of a wider dtype."""
    torch: Any = import_module("torch")
    aten, prims = torch.ops.aten, torch.ops.prims
    copies = (
        aten.clone.default,
        aten.alias.default,
        aten._to_copy.default,
        prims.convert_element_type.default,
    )
    result, source, passed = node.meta["val"], node, set[Any]()
    while source.op == "call_function" and source.target in (*copies, aten.copy.default):
        passed.add(source.meta["val"].dtype)
        source = source.args[1] if source.target == aten.copy.default else source.args[0]
    value = source.meta["val"]
    same = value.dtype == result.dtype and value.shape == result.shape
    return source if same and all(_holds(dtype, value.dtype) for dtype in passed) else node


def _holds(dtype: Any, other: Any) -> bool:
    """Whether a dtype has every number of another."""
    torch: Any = import_module("torch")
    wider = dtype.is_floating_point and other.is_floating_point and torch.promote_types(dtype, other) == dtype
    return dtype == other or wider
