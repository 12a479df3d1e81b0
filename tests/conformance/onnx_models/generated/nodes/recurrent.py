"""Draws recurrent operators."""

from __future__ import annotations

import numpy as np

from tests.conformance.onnx_models.generated.draw import Draw, draws

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_ACTIVATIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}


@draws("RNN", "GRU", "LSTM")
def recurrent(d: Draw) -> None:
    d.special = False
    direction = d.one(["forward", "reverse", "bidirectional"])
    both = 2 if direction == "bidirectional" else 1
    length, batch, inner, hidden = d.int(1, 3), d.int(1, 2), d.int(1, 3), d.int(1, 3)
    gates = _GATES[d.op]
    layout = int(d.version >= 14 and d.coin(0.3))
    d.type("T", ("float", "float", "double", "float16", "bfloat16"))
    d.tensor((batch, length, inner) if layout else (length, batch, inner), "T", -1, 1)
    d.tensor((both, gates * hidden, inner), "T", -1, 1)
    d.tensor((both, gates * hidden, hidden), "T", -1, 1)
    count = d.int(0, 4)
    if count >= 1 and d.coin(0.8):
        d.tensor((both, 2 * gates * hidden), "T", -1, 1)
    elif count >= 1:
        d.skip()
    if count >= 2 and d.coin(0.3):
        lengths = [d.int(1, length) if d.coin(0.2) else length for _ in range(batch)]
        d.add(np.asarray(lengths, np.int32), True)
    elif count >= 2:
        d.skip()
    states = (batch, both, hidden) if layout else (both, batch, hidden)
    for index in range(2 if d.op == "LSTM" else 1):
        if count >= 3 and d.coin(0.8):
            d.tensor(states, "T", -1, 1)
        elif (count >= 3 and index == 0) or count >= 4:
            d.skip()
    if d.op == "LSTM" and count == 4 and len(d.inputs) == 7:
        d.tensor((both, 3 * hidden), "T", -1, 1)
    d.attributes = {"hidden_size": hidden, "direction": direction}
    _rare(d, both, layout)
    d.outputs = d.int(1, 3 if d.op == "LSTM" else 2)


def _rare(d: Draw, both: int, layout: int) -> None:
    """Attributes that most models leave out."""
    if layout:
        d.attributes["layout"] = 1
    if d.op == "GRU" and d.coin():
        d.attributes["linear_before_reset"] = 1
    if not layout and d.coin(0.3):  # the reference has the usual ones only, ONNX Runtime the usual layout
        names = ["Sigmoid", "Tanh", "Relu"] if d.coin(0.8) else ["HardSigmoid", "Softsign", "Elu", "Affine"]
        d.attributes["activations"] = [d.one(names) for _ in range(both * _ACTIVATIONS[d.op])]
    if d.coin(0.1):
        d.attributes["clip"] = 0.5
    if d.op == "LSTM" and d.coin(0.1):
        d.attributes["input_forget"] = 1
