"""What AOTAutograd's runtime wrappers need, as JSON, and the callable that is rebuilt of it.

``encode_result`` takes the entry that ``capture.compile_with_aot`` returns. ``decode_result`` and
``RecordedResult.wrap`` rebuild in another process the callable that the compilation returned, with the same
wrappers of PyTorch, around other functions for the forward and the backward.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from kcache_grpc.integrations.torch.dynamo.aot.aot_schema import config_codec, metadata_codec, wrappers_codec
from kcache_grpc.integrations.torch.dynamo.aot.capture import callable_of
from kcache_grpc.integrations.torch.dynamo.aot.guard_text import is_guard_text, size_count
from kcache_grpc.integrations.torch.dynamo.aot.json_codec import (
    INT,
    INTS,
    STR,
    Codec,
    InvalidRecord,
    NotRecordable,
    Optional,
    invalid,
    not_recordable,
    private,
)

torch: Any = import_module("torch")

__all__ = ["InvalidRecord", "NotRecordable", "RecordedResult", "decode_result", "encode_result"]

#: Version of the JSON; PyTorch's version is a separate field.
_FORMAT = 1
_RESULT = "torch._functorch._aot_autograd.aot_autograd_result"

Boxed = Callable[[list[Any]], Any]


@dataclasses.dataclass(frozen=True)
class RecordedResult:
    """The metadata of one compilation by AOTAutograd."""

    runtime_metadata: Any
    dispatch_wrappers: list[Any]
    aot_config: Any
    indices_of_inps_to_detach: list[int]
    num_fw_outs_saved_for_bw: int | None
    #: ``None`` where the compilation has no backward.
    num_symints_saved_for_bw: int | None
    #: An expression of the symbolic sizes among the inputs, in order; ``None`` without guards.
    guards: str | None

    @property
    def has_backward(self) -> bool:
        return self.num_symints_saved_for_bw is not None

    def matches(self, example_inputs: Sequence[Any]) -> bool:
        """Whether the guards hold for the sizes of these inputs; adds no guard to Dynamo's."""
        if self.guards is None:
            return True
        hint = private("torch.fx.experimental.symbolic_shapes:guarding_hint_or_throw")
        return self._evaluate([hint(size) for size in _symbolic_sizes(example_inputs)])

    def wrap(
        self,
        compiled_fw: Boxed,
        compiled_bw: Boxed | None,
        example_inputs: Sequence[Any],
        graph_module: Any = None,
    ) -> Callable[..., Any]:
        """The callable around a forward and a backward, as the compilation returned it.

        Adds the record's guards to the shape environment of the compilation at hand. ``compiled_fw`` and
        ``compiled_bw`` take a list, which they may clear, and return a list or tuple. The result takes the
        graph's inputs as positional arguments; ``graph_module`` is the graph of Dynamo, whose parameters and
        buffers come before them. Raises ``InvalidRecord`` if guards do not hold or arguments do not fit.
        """
        if self.has_backward != (compiled_bw is not None):
            raise InvalidRecord(
                "either the record or the arguments have a backward: both must have it, or none"
            )
        if not self.matches(example_inputs):
            raise InvalidRecord(f"the guards of the record do not hold: {self.guards}")
        constants = constants_of(graph_module)
        if len(constants) != self.aot_config.num_params_buffers:
            raise InvalidRecord(
                f"the record has {self.aot_config.num_params_buffers} parameters and buffers inside of the "
                f"graph, and the graph has {len(constants)}"
            )
        backward = None if compiled_bw is None else _eager(compiled_bw)
        compiled = self._entry()._apply_runtime_wrappers(
            _function(compiled_fw), backward, self.has_backward, self._config()
        )
        if self.guards is not None and not self._evaluate(_symbolic_sizes(example_inputs)):
            raise InvalidRecord(f"the guards of the record do not hold: {self.guards}")
        return callable_of(compiled, constants)

    def _evaluate(self, sizes: Sequence[Any]) -> bool:
        if self.guards is None or size_count(self.guards) > len(sizes):
            return self.guards is None
        environment = private("torch.fx.experimental.symbolic_shapes:ShapeEnv")
        return bool(environment.evaluate_guards_expression(None, self.guards, sizes))

    def _entry(self) -> Any:
        """An entry of AOTAutograd's cache that has no code and is not shared with other callables."""
        backward = None
        if self.has_backward:
            backward = private(f"{_RESULT}:BundledCompiledBackward")(
                result=None,
                backward_state_indices=[],
                num_symints_saved_for_bw_=self.num_symints_saved_for_bw,
            )
        return private(f"{_RESULT}:GenericAOTAutogradResult")(
            compiled_fw=None,
            compiled_bw=backward,
            aot_joint_graph_str=None,
            aot_forward_graph_str=None,
            aot_backward_graph_str=None,
            min_cut_info_str=None,
            runtime_metadata=copy.copy(self.runtime_metadata),
            dispatch_wrappers=self.dispatch_wrappers,
            maybe_subclass_meta=None,
            num_fw_outs_saved_for_bw=self.num_fw_outs_saved_for_bw,
            indices_of_inps_to_detach=self.indices_of_inps_to_detach,
            forward_time_taken_ns=0,
            backward_time_taken_ns=0,
            sanitized_aot_config=self.aot_config,
            guards_expr=None,
            serialized_bw_module=None,
        )

    def _config(self) -> Any:
        """The recorded configuration with an identifier of this process."""
        return dataclasses.replace(
            self.aot_config, aot_id=next(private("torch._functorch.aot_autograd:AOT_COUNTER"))
        )


def encode_result(entry: Any) -> dict[str, Any]:
    """The entry of a compilation as JSON values. Raises ``NotRecordable`` with the path of the field."""
    if entry.maybe_subclass_meta is not None:
        raise not_recordable("maybe_subclass_meta", entry.maybe_subclass_meta)
    backward = entry.compiled_bw
    if backward is not None and backward.backward_state_indices:
        raise NotRecordable("backward_state_indices: no record states inputs of compiled autograd")
    if entry.guards_expr is not None and not is_guard_text(entry.guards_expr):
        raise NotRecordable(f"guards_expr: no record states {entry.guards_expr!r}")
    values = {
        "runtime_metadata": entry.runtime_metadata,
        "dispatch_wrappers": entry.dispatch_wrappers,
        "aot_config": entry.sanitized_aot_config,
        "indices_of_inps_to_detach": entry.indices_of_inps_to_detach,
        "num_fw_outs_saved_for_bw": entry.num_fw_outs_saved_for_bw,
        "num_symints_saved_for_bw": None if backward is None else backward.num_symints_saved_for_bw_,
        "guards": entry.guards_expr or None,
    }
    data: dict[str, Any] = {"format": _FORMAT, "torch": _torch_version()}
    data |= {name: codec.encode(values[name], name) for name, codec in _codecs().items()}
    _verify(entry.runtime_metadata, decode_result(data).runtime_metadata)
    return data


def decode_result(data: Any) -> RecordedResult:
    """The record that ``encode_result`` wrote. Raises ``InvalidRecord`` with the path of the field."""
    codecs = _codecs()
    if not isinstance(data, Mapping):
        raise invalid("record", "an object is expected")
    table: Mapping[Any, Any] = data  # pyright: ignore[reportUnknownVariableType]
    if table.get("format") != _FORMAT or table.get("torch") != _torch_version():
        raise invalid("record", f"format {_FORMAT} of PyTorch {_torch_version()} is expected")
    if set(table) != {"format", "torch", *codecs}:
        other = sorted(str(name) for name in set(table) ^ {"format", "torch", *codecs})
        raise invalid("record", f"other fields: {', '.join(other)}")
    values = {name: codec.decode(table[name], name) for name, codec in codecs.items()}
    if values["guards"] is not None and not is_guard_text(values["guards"]):
        raise invalid("guards", "an expression of sizes is expected")
    if (values["num_symints_saved_for_bw"] is None) != (values["num_fw_outs_saved_for_bw"] is None):
        raise invalid("num_symints_saved_for_bw", "a record has both numbers of saved values or none")
    if _tensors_marked(values["runtime_metadata"]) not in (None, _tensors_saved(values)):
        raise invalid(
            "runtime_metadata.saved_tensor_is_graph_input", "a value for each saved tensor is expected"
        )
    return RecordedResult(**values)


def _tensors_saved(values: Mapping[str, Any]) -> int:
    """How many tensors the forward saves for the backward."""
    return (values["num_fw_outs_saved_for_bw"] or 0) - (values["num_symints_saved_for_bw"] or 0)


def _tensors_marked(metadata: Any) -> int | None:
    """How many saved tensors the metadata marks as inputs or not; ``None`` before PyTorch 2.14."""
    marks: list[bool] | None = getattr(metadata, "saved_tensor_is_graph_input", None)
    return None if marks is None else len(marks)


def _codecs() -> dict[str, Codec]:
    return {
        "runtime_metadata": metadata_codec(),
        "dispatch_wrappers": wrappers_codec(),
        "aot_config": config_codec(),
        "indices_of_inps_to_detach": INTS,
        "num_fw_outs_saved_for_bw": Optional(INT),
        "num_symints_saved_for_bw": Optional(INT),
        "guards": Optional(STR),
    }


def _verify(metadata: Any, rebuilt: Any) -> None:
    """Raises ``NotRecordable`` if any attribute of the metadata that results depend on was lost."""
    ours, theirs = _comparable(rebuilt), _comparable(metadata)
    different = sorted(
        name for name in {*ours, *theirs} if name not in ours or ours[name] != theirs.get(name)
    )
    if different:
        raise NotRecordable(f"runtime_metadata: the record loses {', '.join(different)}")


def _comparable(metadata: Any) -> dict[str, Any]:
    """All attributes of the metadata; views are verified one by one when they are encoded."""
    attributes: dict[str, Any] = {**vars(metadata)}
    for name in ("compile_id_str", "tangent_source_stack_traces"):
        attributes.pop(name, None)
    attributes["traced_tangents_descs"] = len(metadata.traced_tangents_descs)
    attributes["output_info"] = [
        dataclasses.replace(info, view_meta_sequence=None) for info in metadata.output_info
    ]
    return attributes


def _symbolic_sizes(example_inputs: Sequence[Any]) -> list[Any]:
    cache = private("torch._functorch._aot_autograd.autograd_cache:AOTAutogradCache")
    return cache._filter_backed_symints(example_inputs)


def constants_of(graph_module: Any) -> list[Any]:
    """The parameters and buffers of a graph, which AOTAutograd makes its first inputs."""
    if graph_module is None:
        return []
    parameters = graph_module.named_parameters(remove_duplicate=False)
    buffers = graph_module.named_buffers(remove_duplicate=False)
    return [*dict(parameters).values(), *dict(buffers).values()]


def _function(compiled: Boxed) -> Any:
    """A function of its own: the wrappers set attributes on it."""

    def boxed(args: list[Any]) -> Any:
        return compiled(args)

    function: Any = boxed
    function._boxed_call = True
    return function


def _eager(compiled: Boxed) -> Any:
    """A backward that Dynamo does not trace when autograd calls it."""
    return torch._dynamo.disable(_function(compiled), reason="do not trace generated backwards pass")


def _torch_version() -> str:
    return f"{torch.__version__} {torch.version.git_version}"
