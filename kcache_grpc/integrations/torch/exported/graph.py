"""The graph of an exported program as a plan, and the record that saves a later process the tracing."""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from kcache_grpc.errors import ArgumentError
from kcache_grpc.integrations.torch.dynamo.aot.json_codec import InvalidRecord, NotRecordable
from kcache_grpc.integrations.torch.dynamo.digest.source_digest import source_digest
from kcache_grpc.integrations.torch.dynamo.kernels import FAILURES
from kcache_grpc.integrations.torch.dynamo.lowering import decisions
from kcache_grpc.integrations.torch.dynamo.lowering.bound_inputs import is_bindable
from kcache_grpc.integrations.torch.dynamo.lowering.lower import Compile, Lowering, Rejected
from kcache_grpc.integrations.torch.dynamo.lowering.plan import (
    KernelStep,
    OperatorStep,
    Plan,
    PlanError,
    Program,
    Register,
)
from kcache_grpc.integrations.torch.dynamo.record import decode_graph, digest_of, encode_graph
from kcache_grpc.integrations.torch.dynamo.settings import Settings
from kcache_grpc.integrations.torch.dynamo.strides import WHOLE, like_eager, with_strides_of

torch: Any = import_module("torch")

#: Increased when the meaning of a record changes.
FORMAT = 2
_INPUTS = ("USER_INPUT", "PARAMETER", "BUFFER", "CONSTANT_TENSOR")
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_UPDATES = ("BUFFER_MUTATION", "USER_INPUT_MUTATION", "PARAMETER_MUTATION")

Kernels = Sequence[Callable[[list[Any]], Sequence[Any]]]


@dataclass(frozen=True)
class Graph:
    """``plan`` takes inputs of the exported program, and returns new values of updated ones, then results.

    ``feeds``: for each input of the plan the position of the program's input. ``updates``: for each update
    the position of the program's input that takes the new value.
    """

    plan: Plan
    feeds: tuple[int, ...]
    updates: tuple[int, ...]

    @property
    def programs(self) -> tuple[Program, ...]:
        return self.plan.programs

    @property
    def program_digests(self) -> tuple[bytes, ...]:
        """Digests of the plan's programs, each once."""
        return tuple(dict.fromkeys(map(digest_of, self.plan.programs)))


def use_own_threads(plan: Plan, kernels: Sequence[Any]) -> None:
    """Run the kernel of a ``plan`` that has only one on the threads of its own pool.

    No operator of PyTorch runs between its launches. A launch on PyTorch's OpenMP threads waits for all of
    them, so that other busy processes delay it by milliseconds; one on the pool ends without threads that
    are late.
    """
    if sum(isinstance(step, KernelStep) for step in plan.steps) == 1:
        for kernel in kernels:
            kernel.use_own_threads()


def lower(exported: Any, compile: Compile, rejected: Rejected, settings: Settings) -> tuple[Graph, Kernels]:
    """The graph of an exported program, with kernels for what they can compute.

    If ``settings`` are not strict, where compiling fails as a whole, PyTorch runs all operators, with a
    warning.
    """
    strict = settings.strict
    program = _decomposed(exported, strict)
    bound = frozenset[Any]() if settings.bound is None else _bindable(program)
    try:
        lowered = Lowering(program.graph_module, "inference", compile, rejected, bound=bound).lower()
    except Exception as error:
        if strict:
            raise
        FAILURES.add(f"load: {type(error).__name__}", error, "an exported program was left to PyTorch")
        program = _decomposed(exported, strict)
        left_out = dict.fromkeys(program.graph_module.graph.nodes, f"{type(error).__name__}: {error}")
        lowered = Lowering(program.graph_module, "inference", compile, rejected, left_out=left_out).lower()
    decisions.record(lowered.decision)
    return _graph(exported, program, lowered.plan), lowered.kernels


def _bindable(program: Any) -> frozenset[Any]:
    """The inputs that are tensors of the program itself, which it does not write."""
    signature = program.graph_signature
    written = {spec.target for spec in signature.output_specs if spec.kind.name in _UPDATES}
    tensors = {**program.state_dict, **program.constants}
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    return frozenset(
        node
        for node, spec in zip(placeholders, signature.input_specs, strict=True)
        if spec.kind.name != "USER_INPUT"
        and spec.target not in written
        and is_bindable(tensors.get(spec.target))
    )


def _decomposed(exported: Any, strict: bool) -> Any:
    """The program without updates in place, in operators that kernels compute."""
    table = _decompositions()
    try:
        return _run_decompositions(exported, table)
    except Exception as error:
        if strict:
            raise ArgumentError(f"PyTorch cannot decompose this program: {error}") from error
        FAILURES.add("load: decompositions", error, "an exported program was not decomposed")
        return _run_decompositions(exported, {})


def _run_decompositions(exported: Any, table: Mapping[Any, Any]) -> Any:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch about its own code
        return exported.run_decompositions(table)


def _decompositions() -> dict[Any, Any]:
    """Those of programs, with the strides of eager mode.

    Except of operators that draw random numbers: PyTorch draws those of eager mode.
    """
    table = import_module("kcache_grpc.programs.torch.decompositions.table")
    rows = {
        operator: like_eager(operator, row)
        for operator, row in table.checked(table.decompositions()).items()
        if not _is_random(operator) and operator._schema.name.partition("::")[2] not in WHOLE
    }
    rows[torch.ops.aten.scaled_dot_product_attention.default] = _attention(table.attention)
    return rows | {getattr(torch.ops.aten, name).input: _recurrent(name) for name in _RECURRENT}


def _recurrent(name: str) -> Callable[..., Any]:
    """That of a recurrent function in layers, where these are operators; PyTorch's is of all time steps."""
    recurrent: Any = import_module("kcache_grpc.programs.torch.recurrent")

    def row(*args: Any) -> Any:
        return getattr(recurrent, name)(*args) if recurrent.is_layered(name, args) else NotImplemented

    return row


def _attention(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """That of attention, which draws random numbers with dropout only.

    With PyTorch's strides: where these allowed a view, the program has one.
    """
    operator: Any = torch.ops.aten.scaled_dot_product_attention.default
    proxies: Any = import_module("torch.fx.experimental.proxy_tensor")
    composite: Any = torch._C.DispatchKey.CompositeImplicitAutograd

    def row(
        query: Any, key: Any, value: Any, mask: Any = None, dropout: float = 0.0, *rest: Any, **named: Any
    ) -> Any:
        mask, dropout = named.pop("attn_mask", mask), named.pop("dropout_p", dropout)
        if dropout:
            return NotImplemented
        arguments = (query, key, value, mask, dropout, *rest)
        result = decomposition(*arguments, **named)
        with proxies.disable_proxy_modes_tracing():  # the operator itself would be decomposed by this row
            example = operator._op_dk(composite, *arguments, **named)
        return with_strides_of(result, example)

    return row


def _is_random(operator: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in operator.tags or "dropout" in operator._schema.name


def _graph(exported: Any, program: Any, plan: Plan) -> Graph:
    positions = _positions(exported)
    signature = program.graph_signature
    feeds = tuple(_position(positions, program, spec) for spec in signature.input_specs)
    targets: list[int] = []
    new_values: list[Any] = []
    results: list[Any] = []
    for spec, value in zip(signature.output_specs, plan.outputs, strict=True):
        if spec.kind.name in _UPDATES:
            targets.append(positions[_key(spec.kind.name == "USER_INPUT_MUTATION", spec.target)])
            new_values.append(value)
        elif spec.kind.name == "USER_OUTPUT":
            results.append(value)
        else:
            raise ArgumentError(f"the exported program has a result of kind {spec.kind.name.lower()}")
    plan = replace(plan, outputs=(*new_values, *results), steps=tuple(map(_any_strides(plan), plan.steps)))
    return Graph(plan, feeds, tuple(targets))


def _any_strides(plan: Plan) -> Callable[[OperatorStep | KernelStep], OperatorStep | KernelStep]:
    """Callers of the program may pass tensors of any strides, which kernels get as row-major copies."""

    def changed(step: OperatorStep | KernelStep) -> OperatorStep | KernelStep:
        if isinstance(step, OperatorStep):
            return step
        layouts = tuple(
            "copy" if layout is None and register < plan.inputs else layout
            for register, layout in zip(step.inputs, step.input_layouts, strict=True)
        )
        return replace(step, input_layouts=layouts)

    return changed


def _positions(exported: Any) -> dict[tuple[str, str], int]:
    """Name -> position of the program's input, for the caller's inputs and for its own tensors."""
    specs = exported.graph_signature.input_specs
    for spec in specs:
        if spec.kind.name not in _INPUTS:
            raise ArgumentError(
                f"input {spec.arg.name} of the exported program is of kind {spec.kind.name.lower()}; kcache "
                "takes tensors, integers and constants"
            )
    return {_input_key(spec): position for position, spec in enumerate(specs)}


def _input_key(spec: Any) -> tuple[str, str]:
    is_user = spec.kind.name == "USER_INPUT"
    return _key(is_user, spec.arg.name if is_user else spec.target)


def _key(is_user: bool, name: str) -> tuple[str, str]:
    return ("input" if is_user else "state", name)


def _position(positions: Mapping[tuple[str, str], int], program: Any, spec: Any) -> int:
    position = positions.get(_input_key(spec))
    if position is None:
        raise ArgumentError(f"decomposing the program added the input {spec.arg.name} to it")
    return position


# Records.


def exported_digest(exported: Any, ingredients: Mapping[str, str]) -> bytes:
    """The SHA-256 of the graph and its signature: of equal ones the graphs are equal. Names are not in it.

    Raises ``NotDigestible``.
    """
    placeholders = [node for node in exported.graph.nodes if node.op == "placeholder"]
    specs = exported.graph_signature.input_specs
    values = [
        node.meta.get("val") if isinstance(node.meta.get("val"), _SYMBOLIC) else None for node in placeholders
    ]
    positions = _positions(exported)
    inputs = [f"{spec.kind.name} {_constant(spec)}" for spec in specs]
    outputs = [_output_text(spec, positions) for spec in exported.graph_signature.output_specs]
    extra = {"exported": f"{FORMAT}", "inputs": "\n".join(inputs), "outputs": "\n".join(outputs)}
    return source_digest(exported.graph_module, values, {**ingredients, **extra})


_SYMBOLIC = (torch.Tensor, torch.SymInt)


def _constant(spec: Any) -> str:
    """The value of an input that is a constant; its name is none."""
    if type(spec.arg).__name__ != "ConstantArgument":
        return type(spec.arg).__name__
    value = spec.arg.value
    return f"{type(value).__name__} {value.hex() if type(value) is float else value!r}"


def _output_text(spec: Any, positions: Mapping[tuple[str, str], int]) -> str:
    kind = spec.kind.name
    if kind not in _UPDATES:
        return kind
    return f"{kind} {positions[_key(kind == 'USER_INPUT_MUTATION', spec.target)]}"


def encode_record(graph: Graph) -> bytes:
    """The graph as UTF-8 JSON, without weights, names and kernels. Raises ``NotRecordable``."""
    return json.dumps(graph_to_json(graph), sort_keys=True, separators=(",", ":")).encode()


def graph_to_json(graph: Graph) -> dict[str, Any]:
    """The graph as JSON values. Raises ``NotRecordable``."""
    try:
        body = encode_graph(graph.plan)
    except PlanError as error:
        raise NotRecordable(str(error)) from error
    return {
        "format": FORMAT,
        "torch": torch.__version__,
        "graph": body,
        "feeds": list(graph.feeds),
        "updates": list(graph.updates),
    }


def decode_record(body: bytes, inputs: int) -> Graph:
    """The graph for an exported program with this many inputs. Raises ``InvalidRecord``."""
    try:
        return graph_from_json(json.loads(body), inputs)
    except ValueError as error:
        raise InvalidRecord(f"not a record: {error}") from error


def graph_from_json(data: Any, inputs: int) -> Graph:
    """See ``decode_record``."""
    try:
        if data["format"] != FORMAT:
            raise InvalidRecord(f"the record has format {data['format']}, this version reads {FORMAT}")
        plan = decode_graph(data["graph"])
        feeds, updates = tuple(data["feeds"]), tuple(data["updates"])
    except (KeyError, TypeError, ValueError, AttributeError, PlanError, zlib.error) as error:
        raise InvalidRecord(f"not a record: {type(error).__name__}: {error}") from error
    known = all(type(position) is int and 0 <= position < inputs for position in (*feeds, *updates))
    if not known or len(feeds) != plan.inputs or len(updates) > len(plan.outputs):
        raise InvalidRecord("the record has inputs that the program does not have")
    return Graph(plan, feeds, updates)


def aliases(graph: Graph) -> dict[int, int]:
    """Result -> update whose new value it is: the caller gets the updated tensor itself, as in eager mode."""
    outputs = graph.plan.outputs
    count = len(graph.updates)
    numbers = {value: number for number, value in enumerate(outputs[:count]) if isinstance(value, Register)}
    return {
        position: numbers[value]
        for position, value in enumerate(outputs[count:])
        if isinstance(value, Register) and value in numbers
    }
