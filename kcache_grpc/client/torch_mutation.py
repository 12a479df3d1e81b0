"""Programs that do more than give results: refused, unless what they write is what was there."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kcache_grpc.errors import ArgumentError, UnsupportedOp


def refuse_effects(graph: Any) -> None:
    """Raise ``UnsupportedOp`` for operations that may stop a program, or print."""
    for node in graph.nodes:
        if node.op == "call_function" and str(node.target) == "with_effects":
            op = f"torch.{node.args[1]}".removesuffix(".default")
            reason = "it has an effect beside its results, as an error or a print, and kernels have none"
            raise UnsupportedOp(f"unsupported op {op}: {reason}", op=op)


def refuse_mutation(program: Any) -> None:
    """Raise ``ArgumentError`` for a decomposed program that changes its buffers or inputs. Results that only
    write what was there, as those of a batch norm out of training, are taken from its graph in place.
    """
    signature = program.graph_signature
    inputs = {
        **signature.user_inputs_to_mutate,
        **getattr(signature, "parameters_to_mutate", {}),
    }
    written = {**signature.buffers_to_mutate, **inputs}
    if not written:
        return
    names = {**signature.inputs_to_buffers, **signature.inputs_to_parameters}
    output = next(node for node in reversed(program.graph.nodes) if node.op == "output")
    results = list(output.args[0])
    count = len(results) - len(signature.user_outputs)
    same = {written[result.name] for result in results[:count] if _writes_itself(result, written, names)}
    _refuse_buffers([name for name in signature.buffers_to_mutate.values() if name not in same])
    _refuse_inputs([name for name in inputs.values() if name not in same])
    output.args = (tuple(results[count:]),)


def _writes_itself(result: Any, written: dict[str, str], names: dict[str, str]) -> bool:
    source = _source(result)
    return source.op == "placeholder" and names.get(source.name, source.name) == written.get(result.name)


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


def _refuse_buffers(changed: list[str]) -> None:
    if changed:
        raise ArgumentError(
            f"the program changes its buffers {', '.join(sorted(changed))}, and kernels change nothing: "
            "export the module in inference mode (module.eval()), or return the new values as results"
        )


def _refuse_inputs(changed: list[str]) -> None:
    if changed:
        raise ArgumentError(
            f"the program changes its arguments {', '.join(sorted(changed))} in place, and kernels change "
            "nothing: use the out-of-place operations (add instead of add_), and return the new values"
        )
