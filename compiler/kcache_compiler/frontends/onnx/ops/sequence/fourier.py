"""DFT, STFT and MelWeightMatrix."""

from __future__ import annotations

import numpy as np

from kcache_compiler.frontends.limits import check
from kcache_compiler.frontends.onnx.emitter import (
    FLOATS,
    Array,
    Dims,
    Value,
    astype,
    constant_value,
    i64_array,
)
from kcache_compiler.frontends.onnx.node import OnnxNode, legalize
from kcache_compiler.frontends.onnx.ops.elementwise import element_of

#: Float element type -> its complex type; other floats are computed in f32.
_COMPLEX_OF = {"f32": "complex<f32>", "f64": "complex<f64>"}


@legalize(DFT=20)
def dft(n: OnnxNode) -> Value:
    """Lower ``DFT`` along an axis of an input whose last axis has 1 (real) or 2 (real and imaginary) floats.

    Axis and length must be constant.
    """
    x = n[0]
    if x.rank < 2 or x.dims[-1] not in (1, 2) or x.element not in FLOATS:
        n.invalid(f"its input is {x.type}, whose last dim is not of 1 or 2 floats")
    if n.version < 20:
        axis = n.axis(n.int("axis", 1), x.rank)
    else:
        axis = n.axis(-2 if n.get(2) is None else n.numbers(2, "axis")[0], x.rank)
    if axis == x.rank - 1:
        n.invalid("its axis must not be that of real and imaginary parts")
    inverse, one_sided = bool(n.int("inverse", 0)), bool(n.int("onesided", 0))
    length = 2 * (x.dims[axis] - 1) if inverse and one_sided else x.dims[axis]
    if n.get(1) is not None:
        length = n.numbers(1, "dft_length")[0]
    return _transform(n, x, axis, length, inverse, one_sided)


def _transform(n: OnnxNode, x: Value, axis: int, length: int, inverse: bool, one_sided: bool) -> Value:
    """Transform along an axis, truncated or zero-padded to ``length``; the last axis is (real, imaginary)."""
    if length < 1:
        n.invalid(f"a transform of length {length}")
    b, element = n.b, x.element
    wide = x if element in _COMPLEX_OF else b.convert(x, "f32")
    last = x.rank - 2
    order = [i for i in range(last + 1) if i != axis] + [axis]
    wide = b.transpose(wide, [*order, last + 1])
    wide = _resize_axis(n, wide, last, length // 2 + 1 if inverse and one_sided else length)
    dims = (*wide.dims[:last], length)
    components = [
        b.reshape(b.slice_axis(wide, last + 1, i, i + 1), wide.dims[:-1]) for i in range(x.dims[-1])
    ]
    if one_sided and not inverse and len(components) == 1:
        results = _split_complex(n, _fft(n, "RFFT", components[0], length, (*dims[:-1], length // 2 + 1)))
    else:
        imaginary = components[1] if len(components) == 2 else b.full(0, wide.element, components[0].dims)
        complex_input = b.emit(
            "stablehlo.complex", [components[0], imaginary], _COMPLEX_OF[wide.element], components[0].dims
        )
        if one_sided and inverse:
            results = [_fft(n, "IRFFT", complex_input, length, dims)]
        else:
            spectrum = _fft(n, "IFFT" if inverse else "FFT", complex_input, length, dims)
            results = _split_complex(
                n, b.slice_axis(spectrum, last, 0, length // 2 + 1) if one_sided else spectrum
            )
    joined = b.concatenate([b.reshape(r, (*r.dims, 1)) for r in results], last + 1)
    inverse_order = [order.index(i) for i in range(last + 1)]
    return b.convert(b.transpose(joined, [*inverse_order, last + 1]), element)


def _resize_axis(n: OnnxNode, x: Value, axis: int, length: int) -> Value:
    """Truncate an axis, or pad it with zeros."""
    high = [0] * x.rank
    high[axis] = length - x.dims[axis]
    return n.b.pad(x, n.b.full(0, x.element), [0] * x.rank, high)


def _fft(n: OnnxNode, kind: str, x: Value, length: int, dims: Dims) -> Value:
    element = x.element
    if kind == "RFFT":
        element = _COMPLEX_OF[element]
    elif kind == "IRFFT":
        element = "f32" if element == "complex<f32>" else "f64"
    if 0 in dims:
        return n.b.full(0, element, dims)
    properties = f"fft_length = {i64_array([length])}, fft_type = #stablehlo<fft_type {kind}>"
    return n.b.emit("stablehlo.fft", [x], element, dims, properties)


def _split_complex(n: OnnxNode, x: Value) -> list[Value]:
    element = "f32" if x.element == "complex<f32>" else "f64"
    return [n.b.unary(part, x, element) for part in ("real", "imag")]


@legalize(STFT=17)
def stft(n: OnnxNode) -> Value:
    """Lower ``STFT``: Fourier transforms of frames of a signal of shape (batch, length, 1 or 2).

    The result has shape (batch, frames, bins, 2). Frame step and length must be constant; the window
    multiplies each frame.
    """
    b, x, window = n.b, n[0], n.get(2)
    if x.rank != 3 or x.dims[2] not in (1, 2) or x.element not in FLOATS:
        n.invalid(f"its signal is {x.type}, not (batch, length, 1 or 2) of floats")
    step = n.numbers(1, "frame_step")[0]
    length = x.dims[1] if window is None else window.dims[0]
    if n.get(3) is not None:
        length = n.numbers(3, "frame_length")[0]
    if step < 1 or not 1 <= length <= x.dims[1] or (window is not None and window.dims != (length,)):
        n.invalid(f"frames of {length} every {step} of a signal of shape {list(x.dims)}")
    count = (x.dims[1] - length) // step + 1
    frames = _frames(n, x, constant_value(np.arange(count, dtype=np.int64) * step), length)
    if window is not None:
        frames = b.binary("multiply", frames, b.broadcast_in_dim(window, [2], frames.dims))
    return _transform(n, frames, 2, length, inverse=False, one_sided=bool(n.int("onesided", 1)))


def _frames(n: OnnxNode, x: Value, starts: Value, length: int) -> Value:
    """Return (batch, frame, position, component) of the frames that begin at ``starts``."""
    dims = (x.dims[0], *starts.dims, length, x.dims[2])
    if 0 in dims:
        return n.b.full(0, x.element, dims)
    dimension_numbers = "offset_dims = [0, 2, 3], start_index_map = [1], index_vector_dim = 1"
    properties = (
        f"dimension_numbers = #stablehlo.gather<{dimension_numbers}>, indices_are_sorted = false, "
        f"slice_sizes = {i64_array([x.dims[0], length, x.dims[2]])}"
    )
    return n.b.emit("stablehlo.gather", [x, starts], x.element, dims, properties)


@legalize(MelWeightMatrix=17)
def mel_weight_matrix(n: OnnxNode) -> Value:
    """Return triangular filters over the bins of a spectrum, from constant sizes."""
    bins, length, rate, low, high = (n.constant(i, "its inputs").reshape(-1)[0] for i in range(5))
    bins, rows = int(bins), int(length) // 2 + 1
    check("bytes of constants", 8 * max(bins, 1) * max(rows, 1), n.b.limits.constant_bytes)
    mels = [2595 * np.log1p(hertz / 700) / np.log(10) for hertz in (low, high)]
    step = (mels[1] - mels[0]) / (bins + 2)
    hertz = 700 * np.expm1((np.arange(bins + 2) * step + mels[0]) / 2595 * np.log(10))
    corners: list[int] = ((length + 1) * hertz // rate).astype(int).tolist()
    if bins < 0 or (bins and (min(corners) < 0 or max(corners) >= rows)):
        n.invalid(f"its {bins} triangular filters exceed the {rows} bins of a spectrum")
    weights = np.zeros((rows, bins))
    for i, (start, peak, end) in enumerate(zip(corners, corners[1:], corners[2:], strict=False)):
        rising: Array = np.arange(start, peak + 1)
        falling: Array = np.arange(peak, end)
        weights[rising, i] = (rising - start) / (peak - start) if peak > start else 1
        weights[falling, i] = (end - falling) / max(1, end - peak)
    return constant_value(astype(weights, element_of(n, n.int("output_datatype", 1))))
