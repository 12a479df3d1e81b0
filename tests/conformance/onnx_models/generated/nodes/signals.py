"""Draws transforms, windows of signals, and filters."""

from __future__ import annotations

import numpy as np

from tests.conformance.onnx_models.generated.draw import Draw, data_type, draws

_FLOATS = ("float", "double", "float16", "bfloat16")
_RESULTS = ("float", "double", "float16", "int32", "int64", "uint8")


@draws("DFT")
def dft(d: Draw) -> None:
    d.special = False
    inverse = d.coin(0.4)
    parts = 2 if inverse or d.coin() else 1
    rank = d.int(1, 3)
    x = d.add(d.array(d.type("T1", _FLOATS), (*(d.int(1, 6) for _ in range(rank)), parts)))
    axis = d.int(0, rank - 1)
    axis = axis - x.ndim if d.coin() else axis
    d.attributes["inverse"] = int(inverse)
    if (parts == 1 or (inverse and d.version >= 20)) and d.coin():
        d.attributes["onesided"] = 1
    if d.coin(0.4):
        d.add(np.asarray(d.int(2, 7), np.int64), True)
    elif d.version >= 20:
        d.skip()
    if d.version < 20:
        d.attributes["axis"] = axis
    elif d.coin(0.8):
        d.add(np.asarray(axis, np.int64), True)


@draws("STFT")
def stft(d: Draw) -> None:
    d.special = False
    length, parts = d.int(4, 12), d.one([1, 1, 2])
    x = d.add(d.array(d.type("T1", _FLOATS), (d.int(1, 2), length, parts)))
    frame = d.int(2, length)
    d.add(np.asarray(d.int(1, 4), np.int64), True)
    windowed = d.coin(0.7)
    if windowed:
        d.add(d.random.uniform(0.2, 1, (frame,)).astype(x.dtype))
    else:
        d.skip()
    if not windowed or d.coin():
        d.add(np.asarray(frame, np.int64), True)
    if parts == 2 or d.coin():
        d.attributes["onesided"] = d.int(0, 1) if parts == 1 else 0


@draws("HannWindow", "HammingWindow", "BlackmanWindow")
def window(d: Draw) -> None:
    d.add(np.asarray(d.int(2, 9), d.one([np.int32, np.int64])), True)
    _result(d, "T2")
    d.attributes["periodic"] = d.int(0, 1)


def _result(d: Draw, parameter: str) -> None:
    name = d.one(_RESULTS) if d.coin(0.4) else "float"
    d.bind(parameter, name)
    if name != "float":
        d.attributes["output_datatype"] = data_type(name)


@draws("MelWeightMatrix")
def mel(d: Draw) -> None:
    for number in (d.int(3, 8), d.int(16, 32), 8000):
        d.add(np.asarray(number, np.int64), True)
    for edge in (d.one([0.0, 20.0]), d.one([3000.0, 4000.0])):
        d.add(np.asarray(edge, np.float32), True)
    _result(d, "T3")
