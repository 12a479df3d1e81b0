"""Composite functions in Dynamo's graph: written out, so that AOTAutograd traces what kernels fuse.

PyTorch would trace operators of its own for them, whose gradients are opaque.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from types import FunctionType
from typing import Any

from kcache_grpc.programs.torch import recurrent
from kcache_grpc.programs.torch.decompositions.table import attention, embedding_bag

torch: Any = import_module("torch")
functional: Any = torch.nn.functional


def _embedding_bag(*args: Any, **kwargs: Any) -> Any:
    """``torch.embedding_bag`` and what it returns in addition to the sums: nothing reads that here."""
    results = embedding_bag(*args, **kwargs)
    return torch.embedding_bag(*args, **kwargs) if results is NotImplemented else results


def _rrelu(
    input: Any,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    *others: Any,
    **kwargs: Any,
) -> Any:
    """``torch.rrelu``: its results are row-major, where traced ones have the strides of ``input``.

    Only training draws random numbers: otherwise it is a leaky ReLU.
    """
    if training or not input.is_floating_point():
        return torch.rrelu(input.contiguous(), lower, upper, training, *others, **kwargs)
    return functional.leaky_relu(input, (lower + upper) / 2).contiguous()


class _Torch:
    """The module ``torch`` with other ``embedding_bag`` and ``rrelu``."""

    embedding_bag = staticmethod(_embedding_bag)
    rrelu = staticmethod(_rrelu)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _never(*_: Any) -> bool:
    return False


def _with_globals(function: Any, **names: Any) -> Callable[..., Any]:
    """A function of the same code, for which some names of its module mean something else.

    It does not hand itself over to ``__torch_function__``, which would call the original function.
    """
    names |= dict.fromkeys(
        ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"), _never
    )
    copy = FunctionType(
        function.__code__, {**function.__globals__, **names}, function.__name__, function.__defaults__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    # FX writes functions of PyTorch by name, and others by reference.
    copy.__module__ = __name__
    return copy


#: Kind of a mask -> the index that makes it ``[batch, heads, length, length]``, or of sizes 1: of positions,
#: of keys, of both.
_MASK_SHAPES = {0: (None, None), 1: (slice(None), None, None), 2: ()}


def _encoder_layer(
    source: Any,
    width: int,
    heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    projection_weight: Any,
    projection_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    """``torch._transformer_encoder_layer_fwd``, which ``nn.TransformerEncoderLayer`` calls out of training.

    Nested tensors are left to PyTorch's own operator.
    """
    arguments = (source, width, heads, qkv_weight, qkv_bias, projection_weight, projection_bias, use_gelu)
    arguments += (norm_first, eps, norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2)
    arguments += (ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2, mask, mask_type)
    if source.is_nested or source.dim() != 3 or (mask is not None and mask_type not in _MASK_SHAPES):
        return torch._transformer_encoder_layer_fwd(*arguments)
    # The operator excludes what is not zero in a mask of any dtype, and returns NaN where that is all.
    excluded = None if mask is None else mask.to(torch.bool)[_MASK_SHAPES[mask_type or 0]]

    def attended(x: Any) -> Any:
        batch, length, _ = x.shape
        projected = functional.linear(x, qkv_weight, qkv_bias).chunk(3, -1)
        query, key, value = (
            each.view(batch, length, heads, width // heads).transpose(1, 2) for each in projected
        )
        scores = query @ key.transpose(2, 3) * (width // heads) ** -0.5
        if excluded is not None:
            scores = torch.where(excluded, -math.inf, scores)
        joined = (torch.softmax(scores, -1) @ value).transpose(1, 2).reshape(batch, length, width)
        return functional.linear(joined, projection_weight, projection_bias)

    def fed_forward(x: Any) -> Any:
        activation = functional.gelu if use_gelu else torch.relu
        hidden = activation(functional.linear(x, ffn_weight_1, ffn_bias_1))
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    def first(x: Any) -> Any:
        return functional.layer_norm(x, (width,), norm_weight_1, norm_bias_1, eps)

    def second(x: Any) -> Any:
        return functional.layer_norm(x, (width,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = source + attended(first(source))
        return x + fed_forward(second(x))
    x = first(source + attended(source))
    return second(x + fed_forward(x))


#: Function of PyTorch -> what is traced in its place.
_TRACED: Mapping[Any, Callable[..., Any]] = {
    torch._C._nn.scaled_dot_product_attention: attention,
    torch.embedding_bag: _embedding_bag,
    torch._transformer_encoder_layer_fwd: _encoder_layer,
    functional.multi_head_attention_forward: _with_globals(
        functional.multi_head_attention_forward, scaled_dot_product_attention=attention
    ),
    functional.embedding_bag: _with_globals(functional.embedding_bag, torch=_Torch()),
    torch.rrelu: _rrelu,
    functional.rrelu: _with_globals(functional.rrelu, torch=_Torch()),
}
_RECURRENT: Mapping[Any, Callable[..., Any]] = {
    torch.lstm: recurrent.lstm,
    torch.gru: recurrent.gru,
    torch.rnn_tanh: recurrent.rnn_tanh,
    torch.rnn_relu: recurrent.rnn_relu,
}


def _with_read_strides(node: Any, definition: Callable[..., Any]) -> Callable[..., Any]:
    """``definition``, for attention with the strides of eager mode where these are read."""
    example = node.meta.get("example_value")
    if definition is not attention or not isinstance(example, torch.Tensor) or not _are_strides_read(node):
        return definition
    is_transposed = example.dim() == 4 and example.transpose(1, 2).is_contiguous()
    return _transposed_attention if is_transposed and not example.is_contiguous() else definition


def _transposed_attention(*args: Any, **kwargs: Any) -> Any:
    """Attention whose result has heads next to each other, as that of PyTorch's fused kernels."""
    return attention(*args, **kwargs).transpose(1, 2).contiguous().transpose(1, 2)


def _are_strides_read(node: Any) -> bool:
    """Whether the graph returns a tensor, or views it in a way that depends on its strides."""
    for user in node.users:
        if user.op == "output" or (user.op == "call_method" and user.target in ("view", "as_strided")):
            return True
        if user.op == "call_method" and user.target in ("transpose", "permute") and _are_strides_read(user):
            return True
    return False


def expand_composites(graph_module: Any) -> None:
    """Make composite functions call their definitions, in place.

    Recurrent functions in checkpointed regions, too: PyTorch would trace the operations of all steps.
    """
    _replace(graph_module, {**_TRACED, **_RECURRENT})
    checkpointed = torch.ops.higher_order.tag_activation_checkpoint
    for module in graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.target is checkpointed:
                _replace(getattr(module, node.args[0].target), _RECURRENT)


def _replace(graph_module: Any, definitions: Mapping[Any, Callable[..., Any]]) -> None:
    replaced = False
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and node.target in definitions:
            node.target = _with_read_strides(node, definitions[node.target])
            replaced = True
    if replaced:
        graph_module.recompile()
