"""Steps of recurrent layers whose gradients are recorded, as operators, and the loops of their gradients.

Inputs are the gates of all steps, ``[time, batch, gates]``: the product of the layer's input with its weight,
and the biases. The operators also return what their gradients read: cell states, gates after activation.
Outside of kernels each step is run by PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

_torch: Any = import_module("torch")


def lstm_steps(x: Any, hx: Any, cx: Any, w_hh: Any) -> tuple[Any, ...]:
    """Hidden states, cell states and gates ``(i, f, g, o)`` of all steps."""
    h, c = hx, cx
    rows: list[tuple[Any, ...]] = []
    for row in x.unbind(0):
        i, f, g, o = (row + h @ w_hh.t()).chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        h = o * c.tanh()
        rows.append((h, c, _torch.cat((i, f, g, o), 1)))
    return _stacked(rows)


def gru_steps(x: Any, hx: Any, w_hh: Any, b_hh: Any) -> tuple[Any, ...]:
    """Hidden states, and ``(r, z, n)`` with the hidden state's part of ``n`` before activation."""
    h = hx
    rows: list[tuple[Any, ...]] = []
    for row in x.unbind(0):
        x_r, x_z, x_n = row.chunk(3, 1)
        h_r, h_z, h_n = _torch.nn.functional.linear(h, w_hh, b_hh).chunk(3, 1)
        r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
        n = (x_n + r * h_n).tanh()
        h = (h - n) * z + n
        rows.append((h, _torch.cat((r, z, n, h_n), 1)))
    return _stacked(rows)


def rnn_steps(x: Any, hx: Any, w_hh: Any, relu: bool) -> Any:
    """Hidden states of all steps."""
    h = hx
    rows: list[tuple[Any, ...]] = []
    for row in x.unbind(0):
        total = row + h @ w_hh.t()
        h = total.relu() if relu else total.tanh()
        rows.append((h,))
    return _stacked(rows)[0]


def lstm_steps_backward(
    grad: Any, grad_cells: Any, factors: Any, output: Any, forget: Any, w_hh: Any
) -> tuple[Any, ...]:
    """Gradients of the gates of all steps, and of the initial states.

    ``factors``: of the gradient of a step's cell state for ``(i, f, g)``, and of its hidden state for ``o``;
    ``output`` and ``forget``: of the hidden state for the cell state, and of that for the one before.
    """
    carried_h, carried_c = _torch.zeros_like(grad[0]), _torch.zeros_like(grad[0])
    rows: list[tuple[Any, ...]] = []
    for step in reversed(range(grad.shape[0])):
        h = grad[step] + carried_h
        c = grad_cells[step] + carried_c + h * output[step]
        gates = _torch.cat((c, c, c, h), 1) * factors[step]
        carried_h, carried_c = gates @ w_hh, c * forget[step]
        rows.append((gates,))
    return *_stacked(rows[::-1]), carried_h, carried_c


def steps_backward(grad: Any, factors: Any, kept: Any, w_hh: Any) -> tuple[Any, ...]:
    """Gradients of the hidden states of all steps, later steps included, and of the initial state.

    ``factors``: of the gradient of a hidden state for each gate; ``kept``: for the hidden state before,
    in addition to the product with ``w_hh``.
    """
    carried = _torch.zeros_like(grad[0])
    rows: list[tuple[Any, ...]] = []
    for step in reversed(range(grad.shape[0])):
        h = grad[step] + carried
        carried = (h.repeat(1, w_hh.shape[0] // w_hh.shape[1]) * factors[step]) @ w_hh
        if kept is not None:
            carried = carried + h * kept[step]
        rows.append((h,))
    return *_stacked(rows[::-1]), carried


def _stacked(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(_torch.stack(column) for column in zip(*rows, strict=True))


# Results of fake tensors.


def _like(x: Any, *widths: int) -> tuple[Any, ...]:
    return tuple(x.new_empty((*x.shape[:2], width)) for width in widths)


def _fake_lstm_steps(x: Any, hx: Any, *_: Any) -> tuple[Any, ...]:
    width = hx.shape[1]
    return _like(x, width, width, 4 * width)


def _fake_gru_steps(x: Any, hx: Any, *_: Any) -> tuple[Any, ...]:
    return _like(x, hx.shape[1], 4 * hx.shape[1])


def _fake_rnn_steps(x: Any, hx: Any, *_: Any) -> Any:
    return _like(x, hx.shape[1])[0]


def _fake_lstm_steps_backward(grad: Any, _: Any, factors: Any, *__: Any) -> tuple[Any, ...]:
    state = grad.shape[1:]
    return *_like(grad, factors.shape[2]), grad.new_empty(state), grad.new_empty(state)


def _fake_steps_backward(grad: Any, *_: Any) -> tuple[Any, ...]:
    return *_like(grad, grad.shape[2]), grad.new_empty(grad.shape[1:])


# Gradients.


def _save_lstm(ctx: Any, inputs: Sequence[Any], output: Sequence[Any]) -> None:
    ctx.mark_non_differentiable(output[2])
    ctx.save_for_backward(*inputs[1:], *output)


def _lstm_gradients(ctx: Any, grad: Any, grad_cells: Any, _: Any) -> tuple[Any, ...]:
    hx, cx, w_hh, states, cells, gates = ctx.saved_tensors
    i, f, g, o = gates.chunk(4, 2)
    bent = cells.tanh()
    for_gates = (g * i * (1 - i), _shifted(cx, cells) * f * (1 - f), i * (1 - g * g), bent * o * (1 - o))
    factors, output = _torch.cat(for_gates, 2), o * (1 - bent * bent)
    backward = _torch.ops.kcache.lstm_steps_backward
    grad_x, grad_hx, grad_cx = backward(grad, grad_cells, factors, output, f, w_hh)
    return grad_x, grad_hx, grad_cx, _weight_gradient(grad_x, hx, states)


def _save_gru(ctx: Any, inputs: Sequence[Any], output: Sequence[Any]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*inputs[1:3], *output)


def _gru_gradients(ctx: Any, grad: Any, _: Any) -> tuple[Any, ...]:
    hx, w_hh, states, gates = ctx.saved_tensors
    r, z, n, h_n = gates.chunk(4, 2)
    for_n = (1 - z) * (1 - n * n)
    for_z = (_shifted(hx, states) - n) * z * (1 - z)
    for_r = for_n * h_n * r * (1 - r)
    factors = _torch.cat((for_r, for_z, for_n * r), 2)
    total, grad_hx = _torch.ops.kcache.steps_backward(grad, factors, z, w_hh)
    grad_gates = total.repeat(1, 1, 3) * factors
    grad_x = _torch.cat((total * for_r, total * for_z, total * for_n), 2)
    grad_bias = grad_gates.sum((0, 1)) if ctx.needs_input_grad[3] else None
    return grad_x, grad_hx, _weight_gradient(grad_gates, hx, states), grad_bias


def _save_rnn(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
    ctx.relu = inputs[3]
    ctx.save_for_backward(*inputs[1:3], output)


def _rnn_gradients(ctx: Any, grad: Any) -> tuple[Any, ...]:
    hx, w_hh, states = ctx.saved_tensors
    factors = (states > 0).to(states.dtype) if ctx.relu else 1 - states * states
    total, grad_hx = _torch.ops.kcache.steps_backward(grad, factors, None, w_hh)
    grad_x = total * factors
    return grad_x, grad_hx, _weight_gradient(grad_x, hx, states), None


def _shifted(initial: Any, states: Any) -> Any:
    """For each step the state before it."""
    return _torch.cat((initial.unsqueeze(0), states[:-1]))


def _weight_gradient(grad_gates: Any, hx: Any, states: Any) -> Any:
    return grad_gates.flatten(0, 1).t() @ _shifted(hx, states).flatten(0, 1)


#: Schema of an operator -> its kernel outside of programs, and its results for fake tensors.
OPERATORS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "lstm_steps(Tensor input, Tensor hx, Tensor cx, Tensor w_hh) -> (Tensor, Tensor, Tensor)": (
        lstm_steps,
        _fake_lstm_steps,
    ),
    "gru_steps(Tensor input, Tensor hx, Tensor w_hh, Tensor? b_hh) -> (Tensor, Tensor)": (
        gru_steps,
        _fake_gru_steps,
    ),
    "rnn_steps(Tensor input, Tensor hx, Tensor w_hh, bool relu) -> Tensor": (rnn_steps, _fake_rnn_steps),
    "lstm_steps_backward(Tensor grad, Tensor grad_cells, Tensor factors, Tensor output, Tensor forget, "
    "Tensor w_hh) -> (Tensor, Tensor, Tensor)": (lstm_steps_backward, _fake_lstm_steps_backward),
    "steps_backward(Tensor grad, Tensor factors, Tensor? kept, Tensor w_hh) -> (Tensor, Tensor)": (
        steps_backward,
        _fake_steps_backward,
    ),
}
#: Operator -> its gradients, and what saves the values that these read.
GRADIENTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "lstm_steps": (_lstm_gradients, _save_lstm),
    "gru_steps": (_gru_gradients, _save_gru),
    "rnn_steps": (_rnn_gradients, _save_rnn),
}
