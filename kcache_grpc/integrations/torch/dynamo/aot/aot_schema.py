"""The classes of AOTAutograd that a record has, and the codec of each: PyTorch 2.13 to 2.15.

Fields that only some versions have are taken where the class has them; another field is not recordable.
What is missing here is not recorded: tensor subclasses, opaque objects, effect tokens, functionalized
random number states, asynchronous collectives, duplicate and overlapping inputs, and symbolic sizes.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from kcache_grpc.integrations.torch.dynamo.aot.json_codec import (
    BOOL,
    INT,
    INTS,
    Codec,
    Constant,
    Dropped,
    Elements,
    Fields,
    Named,
    NotRecordable,
    Optional,
    Plain,
    Table,
    Union,
    invalid,
    not_recordable,
    private,
)

torch: Any = import_module("torch")

_AOT = "torch._functorch._aot_autograd"
#: Views of dense tensors that functionalization replays on a base.
_VIEWS = """alias as_strided as_strided_ detach detach_ diagonal expand permute select_int slice_Tensor
    split_Tensor split_with_sizes squeeze squeeze_ squeeze_dim squeeze__dim squeeze_dims squeeze__dims t t_
    transpose_int transpose_ unbind_int unfold unsqueeze unsqueeze_ view view_as_complex view_as_real
    view_dtype _conj _neg_view _reshape_alias _unsafe_view""".split()  # noqa: SIM905


def _present(kind: Any, fields: Mapping[str, Codec]) -> dict[str, Codec]:
    """Those of ``fields`` that the dataclass ``kind`` has in this PyTorch."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: codec for name, codec in fields.items() if name in names}


class View:
    """A ``ViewMeta`` of functionalization: a view operator with its arguments, as the class and a tuple."""

    def encode(self, value: Any, path: str) -> Any:
        name = type(value).__name__.removesuffix("_ViewMeta")
        if name not in _VIEWS or type(value) is not _view_class(name) or value.has_symbolic_inputs:
            raise not_recordable(path, value)
        arguments = value.as_tuple()
        data = [name, [_view_argument_codec().encode(argument, path) for argument in arguments]]
        if self.decode(data, path).as_tuple() != arguments:
            raise NotRecordable(f"{path}: the view {name} is not rebuilt by its arguments")
        return data

    def decode(self, data: Any, path: str) -> Any:
        match data:
            case [str() as name, arguments] if name in _VIEWS:
                decoded = Elements(_view_argument_codec(), tuple).decode(arguments, path)
            case _:
                raise invalid(path, "the name of a view and its arguments are expected")
        try:
            return _view_class(name)(decoded)
        except (TypeError, RuntimeError) as error:
            raise invalid(path, f"the view {name} rejects its arguments: {error}") from error


class ViewSequence:
    """A ``ViewMetaSequence``: views from a base to an output; its key for comparisons is left out."""

    _inner = Elements(View())

    def encode(self, value: Any, path: str) -> Any:
        kind = private(f"{_AOT}.functional_utils:ViewMetaSequence")
        if value.__class__ is not kind:
            raise not_recordable(path, value)
        if {*vars(value)} != {"sequence", "metadata"}:
            raise NotRecordable(f"{path}: ViewMetaSequence of this PyTorch has other fields")
        return self._inner.encode([*value.sequence], path)

    def decode(self, data: Any, path: str) -> Any:
        kind = private(f"{_AOT}.functional_utils:ViewMetaSequence")
        sequence = kind.__new__(kind)
        sequence.sequence = self._inner.decode(data, path)
        sequence.metadata = None
        return sequence


class Descriptors:
    """Descriptions of tangents, which only messages of errors have: their number."""

    def encode(self, value: Any, path: str) -> Any:
        return len(Elements(Dropped()).encode(value, path))

    def decode(self, data: Any, path: str) -> Any:
        return [None] * INT.decode(data, path)


@functools.cache
def metadata_codec() -> Codec:
    """The codec of ``ViewAndMutationMeta``."""
    schemas: Any = import_module(f"{_AOT}.schemas")
    plain = Elements(
        Fields(
            schemas.PlainTensorMeta,
            {
                "unwrapped_idx": INT,
                "memory_format": Optional(_memory_format_codec(schemas)),
                **_present(
                    schemas.PlainTensorMeta,
                    {"size_symbol_placeholders": Constant(()), "stride_symbol_placeholders": Constant(())},
                ),
            },
        )
    )
    return Fields(
        schemas.ViewAndMutationMeta,
        {
            "input_info": Elements(_input_codec(schemas)),
            "output_info": Elements(_output_codec(schemas)),
            "num_intermediate_bases": INT,
            "keep_input_mutations": BOOL,
            "traced_tangents": Constant([]),
            "traced_tangents_descs": Descriptors(),
            "subclass_inp_meta": plain,
            "subclass_fw_graph_out_meta": plain,
            "subclass_tangent_meta": plain,
            "traced_tangent_metas": Elements(Plain((type(None),))),
            "num_symints_saved_for_bw": Optional(INT),
            "num_tensors_saved_with_no_vc_check": Optional(INT),
            "num_opaque_objects_saved_for_bw": Optional(Named({"0": 0})),
            "grad_enabled_mutation": Optional(BOOL),
            "deterministic": Optional(BOOL),
            "static_input_indices": INTS,
            **_present(
                schemas.ViewAndMutationMeta,
                {
                    "act_input_indices": Constant([]),
                    "act_input_paths": Constant([]),
                    "saved_tensor_is_graph_input": Elements(BOOL),
                },
            ),
            "tokens": Constant({}),
            "indices_of_inputs_that_requires_grad_with_mutations_in_bw": INTS,
            "bw_donated_idxs": Optional(INTS),
            "num_backward_tokens": Constant(0),
            "num_graphsafe_rng_states": Constant(0),
            "graphsafe_rng_state_index": Constant(None),
            "graphsafe_rng_device": Constant(None),
            "mutated_inp_stream_indices": Optional(Elements(Plain((type(None),)))),
            "compile_id_str": Dropped(),
            "tangent_source_stack_traces": Dropped(),
        },
        {
            "dynamic_saved_tensors_idxs": Table(Elements(INT, set)),
            "output_types": Elements(Named({"torch.Tensor": torch.Tensor})),
            "is_rng_op_functionalized": Named({"false": False}),
        },
    )


@functools.cache
def wrappers_codec() -> Codec:
    """The codec of the wrappers around the compiled function; both are idle in what is recorded."""
    wrappers: Any = import_module(f"{_AOT}.runtime_wrappers")
    dedupe = Fields(
        wrappers.AOTDedupeWrapper,
        {
            "keep_arg_mask": Constant([]),
            "add_dupe_map": Constant([]),
            "old_input_metadata": Constant([]),
            "needs_post_compile": Constant(False),
        },
    )
    synthetic_base = Fields(
        wrappers.AOTSyntheticBaseWrapper,
        {
            "trace_joint": BOOL,
            "needs_post_compile": Constant(False),
            "aliased_arg_idx_with_metadata_mutations": Constant([]),
            "base_groups": Constant(collections.defaultdict[int, list[int]](list)),
            "other_arg_indices": Constant([]),
        },
    )
    choices = {codec.kind.__name__: (codec.kind, codec) for codec in (dedupe, synthetic_base)}
    return Elements(Union(choices))


@functools.cache
def config_codec() -> Codec:
    """The codec of ``CacheableAOTConfig``: sources of inputs, which name variables, are left out."""
    schemas: Any = import_module(f"{_AOT}.schemas")
    return Fields(
        schemas.CacheableAOTConfig,
        {
            "num_params_buffers": INT,
            "aot_id": Dropped(-1),
            "keep_inference_input_mutations": BOOL,
            "is_export": Constant(False),
            "no_tangents": Constant(False),
            "dynamic_shapes": BOOL,
            "aot_autograd_arg_pos_to_source": Dropped(),
            "static_input_indices": Optional(INTS),
            "enable_log": BOOL,
            "pre_dispatch": Constant(False),
            "precompile_backend_id": Dropped(),
        },
    )


def _input_codec(schemas: Any) -> Codec:
    names = """is_leaf mutates_data mutates_metadata mutations_hidden_from_autograd
        mutations_under_no_grad_or_inference_mode mutation_inductor_storage_resize mutates_storage_metadata
        requires_grad keep_input_mutations""".split()  # noqa: SIM905
    later = _present(schemas.InputAliasInfo, {"mutation_is_shallow_copy_data": BOOL})
    return Fields(schemas.InputAliasInfo, {**dict.fromkeys(names, BOOL), **later})


def _output_codec(schemas: Any) -> Codec:
    return Fields(
        schemas.OutputAliasInfo,
        {
            "output_type": Named(dict(schemas.OutputType.__members__)),
            "raw_type": Named(_raw_types()),
            "base_idx": Optional(INT),
            "dynamic_dims": Optional(Elements(INT, set)),
            "requires_grad": BOOL,
            "requires_grad_for_backward": BOOL,
            "view_meta_sequence": Optional(ViewSequence()),
        },
    )


def _memory_format_codec(schemas: Any) -> Codec:
    sizes = Union({"Size": (torch.Size, Elements(INT, torch.Size)), "tuple": (tuple, Elements(INT, tuple))})
    return Fields(
        schemas.MemoryFormatMeta,
        {
            "size": Optional(sizes),
            "stride": Optional(sizes),
            "memory_format": Optional(Named(_torch_values(torch.memory_format))),
        },
    )


def _raw_types() -> dict[str, type]:
    kinds = (type(None), bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool, torch.Tensor)
    functional = private("torch._subclasses.functional_tensor:FunctionalTensor")
    return {kind.__name__: kind for kind in (*kinds, torch.nn.Parameter, functional)}


@functools.cache
def _view_argument_codec() -> Codec:
    mode = private("torch._C._functionalization:InverseReturnMode")
    layouts = {**_torch_values(torch.layout), **_torch_values(torch.memory_format)}
    return Union(
        {
            "bool": (bool, BOOL),
            "int": (int, INT),
            "None": (type(None), Plain((type(None),))),
            "list": (list, Elements(Plain((bool, int)))),
            "dtype": (torch.dtype, Named(_torch_values(torch.dtype))),
            "mode": (mode, Named(dict(mode.__members__))),
            "layout": (torch.layout, Named(layouts)),
        }
    )


def _view_class(name: str) -> Any:
    return getattr(import_module("torch._C._functionalization"), f"{name}_ViewMeta", None)


def _torch_values(kind: Any) -> Mapping[str, Any]:
    names: list[str] = dir(torch)
    values = [getattr(torch, name) for name in names]
    return {str(value): value for value in values if isinstance(value, kind)}
