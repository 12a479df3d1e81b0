"""Recurrent layers as operators: ``kcache::lstm_layer``, ``kcache::gru_layer``, ``kcache::rnn_layer``.

PyTorch decomposes ``aten.lstm`` and its kind into the operations of every time step. Here a module of several
layers and directions becomes one operator for each layer and direction, which the service lowers to a loop.
Where an operator is not part of a kernel, it calls PyTorch's own implementation.

Shapes: ``input`` is ``[time, batch, features]``, states are ``[batch, size]``, weights and biases are those
of ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN``. Each returns the states of all steps, ``[time, batch, size]``, and
the last state (of an LSTM: hidden and cell state). ``reverse``: time runs backwards. All tensors have one
dtype.

Where gradients are recorded, the product of the inputs is an operator of ATen, and the rest of a layer is one
of those in ``recurrent_gradients``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from kcache_grpc.programs.torch import grouped_products, recurrent_gradients

NAMESPACE = "kcache"

_WEIGHTS = "Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh"
_SCHEMAS = (
    f"lstm_layer(Tensor input, Tensor hx, Tensor cx, {_WEIGHTS}, Tensor? w_hr, bool reverse)"
    " -> (Tensor, Tensor, Tensor)",
    f"gru_layer(Tensor input, Tensor hx, {_WEIGHTS}, bool reverse) -> (Tensor, Tensor)",
    f"rnn_layer(Tensor input, Tensor hx, {_WEIGHTS}, bool relu, bool reverse) -> (Tensor, Tensor)",
)
#: dtypes whose layers are lowered, in which PyTorch computes too.
_DTYPES = ("float32", "float64", "float16", "bfloat16")
#: Those of layers with gradients.
GRADIENT_DTYPES = ("float32", "float64")


@functools.cache
def operators() -> Any:
    """``torch.ops.kcache``, with the operators of this package defined."""
    torch: Any = import_module("torch")
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    _LIBRARIES.append(library)
    layers = zip(_SCHEMAS, ((_lstm, _fake_lstm), (_gru, _fake), (_rnn, _fake)), strict=True)
    others = (*recurrent_gradients.OPERATORS.items(), *grouped_products.OPERATORS.items())
    for schema, (kernel, fake) in (*layers, *others):
        name = schema.partition("(")[0]
        library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(name, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=library)
    for name, (gradients, save) in recurrent_gradients.GRADIENTS.items():
        torch.library.register_autograd(f"{NAMESPACE}::{name}", gradients, setup_context=save, lib=library)
    return torch.ops.kcache


#: PyTorch removes the operators of a library that is collected.
_LIBRARIES: list[Any] = []


def _lstm(
    x: Any, hx: Any, cx: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, w_hr: Any, reverse: bool
) -> tuple[Any, ...]:
    torch: Any = import_module("torch")
    weights = [w for w in (w_ih, w_hh, b_ih, b_hh, w_hr) if w is not None]
    state = (hx.unsqueeze(0), cx.unsqueeze(0))
    steps = x.flip(0) if reverse else x
    states, *last = torch.lstm(steps, state, weights, b_ih is not None, 1, 0.0, False, False, False)
    return _results(states, last, reverse)


def _gru(x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, reverse: bool) -> tuple[Any, ...]:
    torch: Any = import_module("torch")
    return _single_state(torch.gru, x, hx, [w_ih, w_hh, b_ih, b_hh], reverse)


def _rnn(
    x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, relu: bool, reverse: bool
) -> tuple[Any, ...]:
    torch: Any = import_module("torch")
    function = torch.rnn_relu if relu else torch.rnn_tanh
    return _single_state(function, x, hx, [w_ih, w_hh, b_ih, b_hh], reverse)


def _single_state(function: Any, x: Any, hx: Any, weights: Sequence[Any], reverse: bool) -> tuple[Any, ...]:
    present = [w for w in weights if w is not None]
    steps = x.flip(0) if reverse else x
    states, *last = function(steps, hx.unsqueeze(0), present, len(present) == 4, 1, 0.0, False, False, False)
    return _results(states, last, reverse)


def _results(states: Any, last: Sequence[Any], reverse: bool) -> tuple[Any, ...]:
    """Row-major results that share no memory."""
    torch: Any = import_module("torch")
    states = states.flip(0) if reverse else states.contiguous()
    return states, *(state.squeeze(0).clone(memory_format=torch.contiguous_format) for state in last)


def _fake(x: Any, hx: Any, *_: Any) -> tuple[Any, ...]:
    return x.new_empty((*x.shape[:2], hx.shape[1])), x.new_empty(hx.shape)


def _fake_lstm(x: Any, hx: Any, cx: Any, *_: Any) -> tuple[Any, ...]:
    return *_fake(x, hx), x.new_empty(cx.shape)


# Modules as layers.


def lstm(*args: Any, **kwargs: Any) -> Any:
    """``torch.lstm`` in layers; PyTorch's own where ``is_layered`` says so."""
    if kwargs or not is_layered("lstm", args):
        return import_module("torch").lstm(*args, **kwargs)
    hidden, cells = args[1]

    def layer(x: Any, state: Any, weights: Sequence[Any], reverse: bool) -> Any:
        w_ih, w_hh, *rest = weights
        b_ih, b_hh = rest[:2] if args[3] else (None, None)
        w_hr = rest[-1] if len(weights) % 2 else None
        if _has_gradients((x, *state, *weights)):
            inputs = _input_gates(x, w_ih, None if b_ih is None else b_ih + b_hh, reverse)
            states, cells, _ = operators().lstm_steps(inputs, *state, w_hh)
            return _in_order(states, reverse), states[-1], cells[-1]
        return operators().lstm_layer(x, *state, w_ih, w_hh, b_ih, b_hh, w_hr, reverse)

    initial = list(zip(hidden.unbind(0), cells.unbind(0), strict=True))
    return _layers(args, initial, 2 + 2 * bool(args[3]) + _is_projected("lstm", args), layer)


def gru(*args: Any, **kwargs: Any) -> Any:
    """``torch.gru`` in layers, as ``lstm``."""

    def steps(inputs: Any, hx: Any, w_hh: Any, b_hh: Any) -> Any:
        return operators().gru_steps(inputs, hx, w_hh, b_hh)[0]

    return _of_single_state("gru", "gru_layer", (), steps, args, kwargs)


def rnn_tanh(*args: Any, **kwargs: Any) -> Any:
    """``torch.rnn_tanh`` in layers, as ``lstm``."""
    return _of_single_state("rnn_tanh", "rnn_layer", (False,), _rnn_steps(False), args, kwargs)


def rnn_relu(*args: Any, **kwargs: Any) -> Any:
    """``torch.rnn_relu`` in layers, as ``lstm``."""
    return _of_single_state("rnn_relu", "rnn_layer", (True,), _rnn_steps(True), args, kwargs)


def _rnn_steps(relu: bool) -> Callable[..., Any]:
    def steps(inputs: Any, hx: Any, w_hh: Any, b_hh: Any) -> Any:
        return operators().rnn_steps(inputs if b_hh is None else inputs + b_hh, hx, w_hh, relu)

    return steps


def _of_single_state(
    function: str,
    operator: str,
    flags: tuple[bool, ...],
    steps: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    if kwargs or not is_layered(function, args):
        return getattr(import_module("torch"), function)(*args, **kwargs)

    def layer(x: Any, state: Any, weights: Sequence[Any], reverse: bool) -> Any:
        biases = weights[2:4] if args[3] else (None, None)
        if _has_gradients((x, *state, *weights)):
            states = steps(_input_gates(x, weights[0], biases[0], reverse), *state, weights[1], biases[1])
            return _in_order(states, reverse), states[-1]
        return getattr(operators(), operator)(x, *state, *weights[:2], *biases, *flags, reverse)

    return _layers(args, [(state,) for state in args[1].unbind(0)], 2 + 2 * bool(args[3]), layer)


def _has_gradients(tensors: Sequence[Any]) -> bool:
    """Whether gradients with respect to one of the tensors are recorded."""
    return import_module("torch").is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _input_gates(x: Any, weight: Any, bias: Any, reverse: bool) -> Any:
    """The gates of all steps, in the order in which these run."""
    return import_module("torch").nn.functional.linear(_in_order(x, reverse), weight, bias)


def _in_order(x: Any, reverse: bool) -> Any:
    return x.flip(0) if reverse else x


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def is_layered(function: str, args: Any) -> bool:
    """Whether the layers of a call of ``torch.lstm`` or its kind may be operators.

    Not those of packed sequences, whose lengths are values of a tensor, nor of calls under autocast, which
    are PyTorch's; nor on other devices than the CPU, for which loops are slow; nor under transforms such as
    ``torch.func.grad``. With gradients not those of half precision, with projections, or of a dynamic number
    of steps.
    """
    torch: Any = import_module("torch")
    if len(args) != 9 or not _is_sequence(args[2]) or not isinstance(args[3], bool):
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    tensors: list[Any] = [args[0], *(args[1] if function == "lstm" else args[1:2]), *args[2]]
    if torch.is_autocast_enabled("cpu") or any(tensor.device.type != "cpu" for tensor in tensors):
        return False
    dtypes = {tensor.dtype for tensor in tensors}
    sizes = args[0].shape
    if len(sizes) != 3:
        return False
    steps, has_gradients = sizes[bool(args[8])], _has_gradients(tensors)
    allowed = GRADIENT_DTYPES if has_gradients else _DTYPES
    if len(dtypes) != 1 or not dtypes <= {getattr(torch, name) for name in allowed}:
        return False
    if has_gradients and (not isinstance(steps, int) or _is_projected(function, args)):
        return False
    return not (isinstance(steps, int) and steps == 0)


def _is_projected(function: str, args: Any) -> bool:
    """Whether hidden states of an LSTM have another size than cell states."""
    return function == "lstm" and args[1][0].shape[2] != args[1][1].shape[2]


def _layers(
    args: Sequence[Any],
    initial: Sequence[tuple[Any, ...]],
    stride: int,
    layer: Callable[[Any, Any, Sequence[Any], bool], Any],
) -> tuple[Any, ...]:
    """Apply ``layer`` to each layer and direction; ``stride`` is the number of its weights and biases."""
    torch: Any = import_module("torch")
    x, _, weights, _, layers, dropout, training, bidirectional, batch_first = args
    x = x.transpose(0, 1) if batch_first else x
    directions = 1 + bool(bidirectional)
    last: list[tuple[Any, ...]] = []
    for number in range(layers):
        outputs: list[Any] = []
        for direction in range(directions):
            position = number * directions + direction
            own = weights[position * stride : (position + 1) * stride]
            states, *final = layer(x, initial[position], own, bool(direction))
            outputs.append(states)
            last.append(tuple(final))
        x = torch.cat(outputs, 2) if bidirectional else outputs[0]
        if dropout and training and number < layers - 1:
            x = torch.dropout(x, dropout, True)
    x = x.transpose(0, 1) if batch_first else x
    return x, *(torch.stack(states) for states in zip(*last, strict=True))
