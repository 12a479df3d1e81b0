"""Programs as ``torch.export.ExportedProgram``: the Torch dialect's text of the exported graph.

Parameters, buffers and constants are arguments behind the inputs. The text holds no weights, no names and no
source locations: other weights give the same digest. PyTorch is the caller's, never imported for him.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple

from kcache_grpc.errors import ArgumentError, UnsupportedOp
from kcache_grpc.programs.framework_versions import warn_if_untested
from kcache_grpc.programs.torch.decompositions.table import decompositions, reject_bag_places
from kcache_grpc.programs.torch.dynamic_shapes import (
    OpenAxis,
    at_sizes,
    open_axes,
    reject_counted,
    reject_steps,
    samples_of,
    symbols_of,
)
from kcache_grpc.programs.torch.guards import check_of
from kcache_grpc.programs.torch.negative_indices import count_from_the_end, count_truths
from kcache_grpc.programs.torch.origins import located_rejection, source_trace
from kcache_grpc.runtime.bound_kernel import BoundArguments, WrittenArgument
from kcache_grpc.runtime.updated_arguments import addresses, overlap

_INSTALL = "pip install 'kcache-grpc[torch]'"


class _Turns:
    """Tracing and import use state of PyTorch that all threads share: one at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        # Another thread may hold it when this process forks.
        os.register_at_fork(after_in_child=lambda: setattr(self, "lock", threading.Lock()))


_TURNS = _Turns()


def torch_program(exported: Any) -> tuple[bytes, BoundArguments]:
    """The first two of ``located_program``."""
    text, arguments, _ = located_program(exported)
    return text, arguments


def located_program(exported: Any) -> tuple[bytes, BoundArguments, Callable[[], bytes]]:
    """The text of an exported program, the arguments that it brings, and what gives the text with locations.

    A kernel of it takes the program's inputs, in order, and gives a tuple of tensors. The new values of what
    the program updates in place are its last results, which the arguments write back. Raises
    ``ArgumentError`` where torch-mlir is missing, ``UnsupportedOp`` for operations that it cannot read.
    """
    warn_if_untested("torch")
    torch_mlir = _torch_mlir()
    with _TURNS.lock, warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        stack.enter_context(located_rejection(exported.graph))
        reject_bag_places(exported.graph)
        program = _decomposed(exported)
        reject_effects(program.graph)
        updates = take_updates(program)
        reject_counted(program.graph)
        count_from_the_end(program.graph)
        count_truths(program.graph)
        symbols = symbols_of(program)
        if not symbols:
            signature = _Signature(program, program.graph)
            text, located = _text(torch_mlir, [signature], [])
            return text, signature.bound(exported, updates), located
        reject_steps(program.graph)
        axes = open_axes(_Signature(program, program.graph).inputs)
        samples = [at_sizes(program, sizes) for sizes in samples_of(program.graph, symbols)]
        signatures = [_Signature(program, graph) for graph in samples]
        bound = signatures[0].bound(exported, updates)
        text, located = _text(torch_mlir, signatures, axes)
        return text, replace(bound, check=check_of(exported, program)), located


def _torch_mlir() -> Any:
    """The namespace of what is used of torch-mlir."""
    try:
        importer = import_module("torch_mlir.extras.fx_importer")
        return importer, import_module("torch_mlir.ir"), import_module("torch_mlir.dialects.torch")
    except ImportError as error:
        raise ArgumentError(
            f"torch.export programs need torch-mlir, which is not installed here ({error}): {_INSTALL}"
        ) from error


def _decomposed(exported: Any) -> Any:
    """The program in ATen ops that torch-mlir lowers, without mutation inside."""
    try:
        return exported.run_decompositions(decompositions())
    except Exception as error:  # code of another project
        raise ArgumentError(f"PyTorch cannot decompose this program: {error}") from error


class _Signature:
    """What the graph's placeholders are: inputs, values that never change, and what the program brings."""

    def __init__(self, program: Any, graph: Any) -> None:
        self.graph = graph
        nodes = [node for node in graph.nodes if node.op == "placeholder"]
        self.inputs: list[Any] = []
        self.fixed: list[Any] = []
        self.brought: list[tuple[Any, Any]] = []
        #: One for each leaf of the inputs: its node, or the value that the export fixed.
        self.leaves: list[tuple[Any, Any]] = []
        for spec, node in zip(program.graph_signature.input_specs, nodes, strict=True):
            self._sort(spec, node)

    def _sort(self, spec: Any, node: Any) -> None:
        kind, form = spec.kind.name, type(spec.arg).__name__
        if kind == "USER_INPUT" and form == "TensorArgument":
            self.inputs.append(node)
            self.leaves.append((node, None))
        elif kind == "USER_INPUT" and form == "ConstantArgument":
            self.fixed.append(node)
            self.leaves.append((None, spec.arg.value))
        elif kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            if node.users:
                self.brought.append((node, spec))
            else:
                self.fixed.append(node)
        else:
            raise ArgumentError(
                f"the program's input {spec.arg.name} is a {form} ({kind.lower()}); kernels take tensors: "
                "pass it as a tensor, or make it a constant of the module"
            )

    def bound(self, exported: Any, updates: Sequence[Update]) -> BoundArguments:
        """The arguments behind the inputs, from the program as its caller has it."""
        names = [node.name for node in self.inputs]
        names += [spec.target for _, spec in self.brought]
        tensors = [_stored(exported, spec.target) for _, spec in self.brought]
        values = tuple(tensor.detach().contiguous() for tensor in tensors)
        return BoundArguments(
            tuple(names),
            values,
            None if self._is_flat(exported) else self._flatten(exported),
            _keywords(exported),
            weights={
                spec.target: tensor
                for (_, spec), tensor in zip(self.brought, tensors, strict=True)
                if tensor.is_floating_point() or tensor.is_complex()
            },
            written=tuple(self._written(exported, update, values) for update in updates),
        )

    def _written(self, exported: Any, update: Update, values: Sequence[Any]) -> WrittenArgument:
        """What the new value is written to: an input, or the caller's tensor and the copy that is bound."""
        names = [node.name for node in self.inputs]
        if update.is_input:
            return WrittenArgument(update.target, names.index(update.target))
        tensor = _stored(exported, update.target).detach()
        place = addresses(tensor)
        position: int | None = None
        copies: list[Any] = []
        for index, ((_, spec), value) in enumerate(zip(self.brought, values, strict=True), len(names)):
            if spec.target == update.target:
                position = index
                copies = [] if value.data_ptr() == tensor.data_ptr() else [value]
            elif overlap(place, addresses(value)):
                raise ArgumentError(
                    f"the program updates {update.target} in place, which shares memory with {spec.target}: "
                    "give the module a copy of one of them"
                )
        return WrittenArgument(update.target, position, (tensor, *copies))

    def _is_flat(self, exported: Any) -> bool:
        """Whether the inputs are tensors, side by side."""
        if len(self.inputs) != len(self.leaves):
            return False
        spec = exported.call_spec.in_spec
        if spec is None or spec.num_leaves != len(self.leaves):
            return False
        positional, named = _children(spec)
        return not _children(named) and all(child.is_leaf() for child in _children(positional))

    def _flatten(self, exported: Any) -> Any:
        """From a call's arguments, nested as in the export or flat, to the tensors among them."""
        leaves: Sequence[tuple[Any, Any]] = tuple(self.leaves)
        tensors = len(self.inputs)
        pytree: Any = import_module("torch.utils._pytree")

        def flatten(arrays: tuple[Any, ...]) -> Sequence[Any]:
            values: list[Any] = pytree.tree_leaves(arrays)
            if len(values) != len(leaves):
                values = [value for value in values if value is not None]
                if len(values) != tensors:
                    raise ArgumentError(
                        f"the program takes {tensors} tensors"
                        f"{_fixed_text(leaves)}, nested as in its export or flat; got {len(values)}"
                    )
                return values
            for index, (value, (node, fixed)) in enumerate(zip(values, leaves, strict=True)):
                if node is None and (type(value) is not type(fixed) or value != fixed):
                    raise ArgumentError(
                        f"input {index} is {value!r}, and the program was exported for {fixed!r} only: "
                        "export it again for another value",
                        argument=str(index),
                    )
            return [value for value, (node, _) in zip(values, leaves, strict=True) if node is not None]

        return flatten


def _keywords(exported: Any) -> tuple[str, ...] | None:
    """Names of the arguments that the program was exported with by name, in the order of their leaves."""
    spec = exported.call_spec.in_spec
    if spec is None:
        return None
    return tuple(_children(spec)[1].context or ()) or None


def _children(spec: Any) -> list[Any]:
    """The parts of a tree's description; its name changed between versions of PyTorch."""
    parts: Any = getattr(spec, "children_specs", None)
    if parts is None:
        parts = spec.children()
    return list(parts)


def _fixed_text(leaves: Sequence[tuple[Any, Any]]) -> str:
    fixed = [repr(value) for node, value in leaves if node is None]
    return f" (and the fixed values {', '.join(fixed)})" if fixed else ""


def _stored(exported: Any, name: str) -> Any:
    """The caller's parameter, buffer or constant of a name: its own memory is read, if it is contiguous."""
    stores: tuple[Mapping[str, Any], ...] = (exported.state_dict, exported.constants)
    value = next((store[name] for store in stores if name in store), None)
    if value is None:
        raise ArgumentError(f"the exported program does not hold the value of {name}")
    return value


def _make_functional(signature: _Signature) -> None:
    """Make the graph a function of the inputs, then of what the program brings; only tensors come back."""
    graph = signature.graph
    for node in signature.fixed:
        if node.users:
            raise ArgumentError(f"the program computes with its input {node.name}, which is no tensor")
        graph.erase_node(node)
    ordered = [*signature.inputs, *(node for node, _ in signature.brought)]
    first = next(iter(graph.nodes))
    for node in ordered:
        if node is not first:
            first.prepend(node)
        else:
            first = node.next
    for node in graph.nodes:
        # Becomes the location, which is no part of the text: it changes with every edit.
        trace = source_trace(node)
        node.meta.pop("stack_trace", None)
        if trace:
            node.meta["stack_trace"] = trace
    _keep_tensors(graph)


def _keep_tensors(graph: Any) -> None:
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    results = [result for result in output.args[0] if result is not None]
    for index, result in enumerate(results):
        value = getattr(result, "meta", {}).get("val")
        if not hasattr(value, "dtype"):
            raise ArgumentError(
                f"result {index} of the program is {result!r}, which is no tensor; kernels give tensors only"
            )
    output.args = (tuple(results),)


def _text(
    torch_mlir: Any, signatures: Sequence[_Signature], axes: Sequence[OpenAxis]
) -> tuple[bytes, Callable[[], bytes]]:
    """The program, and what gives it with locations. Where axes are open it is written at two sizes, and says
    which axes these are.
    """
    importer, ir, dialect = torch_mlir
    context = ir.Context()
    context.allow_unregistered_dialects = True
    dialect.register_dialect(context)
    fx_importer = importer.FxImporter(context=context)
    for name, signature in zip(("main", "main_at_other_sizes"), signatures, strict=False):
        _make_functional(signature)
        try:
            fx_importer.import_stateless_graph(signature.graph, func_name=name)
        except Exception as error:  # code of another project
            raise _unreadable(signature.graph, error) from error
    if axes:
        listed = [f'[{axis.argument}, {axis.axis}, "{axis.name}"]' for axis in axes]
        attribute = ir.Attribute.parse(f"[{', '.join(listed)}]", context)
        fx_importer.module.operation.attributes["kcache.open_axes"] = attribute

    def located() -> bytes:
        return str(fx_importer.module.operation.get_asm(enable_debug_info=True)).encode()

    return str(fx_importer.module).encode(), located


def _unreadable(graph: Any, error: Exception) -> Exception:
    for node in graph.nodes:
        if node.op == "call_function" and type(node.target).__module__.startswith("torch._higher_order_ops"):
            name = f"torch.ops.higher_order.{node.target}"
            reason = "torch-mlir does not read it; write the program without control flow over tensors"
            return UnsupportedOp(f"unsupported op {name}: {reason}", op=name)
    return ArgumentError(f"torch-mlir cannot read this program: {type(error).__name__}: {error}")


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
            reason = (
                "it has an effect other than its results, such as an error or a print, and kernels have none"
            )
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
