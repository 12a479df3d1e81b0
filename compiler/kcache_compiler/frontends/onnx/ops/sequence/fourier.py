"""DFT, STFT and what stands beside them, over the transforms of StableHLO."""

from __future__ import annotations

import numpy as np

from kcache_compiler.frontends.limits import check
from kcache_compiler.frontends.onnx.emitter import FLOATS, Array, Dims, Value, astype, i64s, known
from kcache_compiler.frontends.onnx.ops.elementwise import element_of
from kcache_compiler.frontends.onnx.site import Site, legalizes

#: Element of a part -> of the pair; other floats are computed as f32.
_PAIRS = {"f32": "complex<f32>", "f64": "complex<f64>"}


@legalizes(DFT=20)
def dft(n: Site) -> Value:
    x = n[0]
    if x.rank < 2 or x.dims[-1] not in (1, 2) or x.element not in FLOATS:
        n.invalid(f"its input is {x.type}, whose last dim is not of 1 or 2 floats")
    if n.version < 20:
        axis = n.axis(n.int("axis", 1), x.rank)
    else:
        axis = n.axis(-2 if n.get(2) is None else n.numbers(2, "axis")[0], x.rank)
    if axis == x.rank - 1:
        n.invalid("its axis is that of real and imaginary parts")
    inverse, half = bool(n.int("inverse", 0)), bool(n.int("onesided", 0))
    length = 2 * (x.dims[axis] - 1) if inverse and half else x.dims[axis]
    if n.get(1) is not None:
        length = n.numbers(1, "dft_length")[0]
    return _transformed(n, x, axis, length, inverse, half)


def _transformed(n: Site, x: Value, axis: int, length: int, inverse: bool, half: bool) -> Value:
    """Transform along an axis that is cut or filled up with zeros; (real, imaginary) lie along the last."""
    if length < 1:
        n.invalid(f"a transform of length {length}")
    b, element = n.b, x.element
    wide = x if element in _PAIRS else b.convert(x, "f32")
    last = x.rank - 2
    order = [i for i in range(last + 1) if i != axis] + [axis]
    wide = b.transpose(wide, [*order, last + 1])
    wide = _sized(n, wide, last, length // 2 + 1 if inverse and half else length)
    dims = (*wide.dims[:last], length)
    parts = [b.reshape(b.along(wide, last + 1, i, i + 1), wide.dims[:-1]) for i in range(x.dims[-1])]
    if half and not inverse and len(parts) == 1:
        results = _pair(n, _fft(n, "RFFT", parts[0], length, (*dims[:-1], length // 2 + 1)))
    else:
        imaginary = parts[1] if len(parts) == 2 else b.full(0, wide.element, parts[0].dims)
        whole = b.emit("stablehlo.complex", [parts[0], imaginary], _PAIRS[wide.element], parts[0].dims)
        if half and inverse:
            results = [_fft(n, "IRFFT", whole, length, dims)]
        else:
            made = _fft(n, "IFFT" if inverse else "FFT", whole, length, dims)
            results = _pair(n, b.along(made, last, 0, length // 2 + 1) if half else made)
    joined = b.concatenate([b.reshape(r, (*r.dims, 1)) for r in results], last + 1)
    back = [order.index(i) for i in range(last + 1)]
    return b.convert(b.transpose(joined, [*back, last + 1]), element)


def _sized(n: Site, x: Value, axis: int, length: int) -> Value:
    """Cut an axis, or fill it up with zeros."""
    high = [0] * x.rank
    high[axis] = length - x.dims[axis]
    return n.b.pad(x, n.b.full(0, x.element), [0] * x.rank, high)


def _fft(n: Site, kind: str, x: Value, length: int, dims: Dims) -> Value:
    element = x.element
    if kind == "RFFT":
        element = _PAIRS[element]
    elif kind == "IRFFT":
        element = "f32" if element == "complex<f32>" else "f64"
    if 0 in dims:
        return n.b.full(0, element, dims)
    properties = f"fft_length = {i64s([length])}, fft_type = #stablehlo<fft_type {kind}>"
    return n.b.emit("stablehlo.fft", [x], element, dims, properties)


def _pair(n: Site, x: Value) -> list[Value]:
    element = "f32" if x.element == "complex<f32>" else "f64"
    return [n.b.unary(part, x, element) for part in ("real", "imag")]


@legalizes(STFT=17)
def stft(n: Site) -> Value:
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
    frames = _frames(n, x, known(np.arange(count, dtype=np.int64) * step), length)
    if window is not None:
        frames = b.binary("multiply", frames, b.broadcast_in_dim(window, [2], frames.dims))
    return _transformed(n, frames, 2, length, inverse=False, half=bool(n.int("onesided", 1)))


def _frames(n: Site, x: Value, starts: Value, length: int) -> Value:
    """Return (batch, frame, place, part) of what begins at ``starts``."""
    dims = (x.dims[0], *starts.dims, length, x.dims[2])
    if 0 in dims:
        return n.b.full(0, x.element, dims)
    numbers = "offset_dims = [0, 2, 3], start_index_map = [1], index_vector_dim = 1"
    properties = (
        f"dimension_numbers = #stablehlo.gather<{numbers}>, indices_are_sorted = false, "
        f"slice_sizes = {i64s([x.dims[0], length, x.dims[2]])}"
    )
    return n.b.emit("stablehlo.gather", [x, starts], x.element, dims, properties)


@legalizes(MelWeightMatrix=17)
def mel_weight_matrix(n: Site) -> Value:
    """Triangles over the bins of a spectrum, from sizes that must be known."""
    bins, length, rate, low, high = (n.known(i, "its inputs").reshape(-1)[0] for i in range(5))
    bins, rows = int(bins), int(length) // 2 + 1
    check("bytes of constants", 8 * max(bins, 1) * max(rows, 1), n.b.limits.constant_bytes)
    mels = [2595 * np.log1p(hertz / 700) / np.log(10) for hertz in (low, high)]
    step = (mels[1] - mels[0]) / (bins + 2)
    hertz = 700 * np.expm1((np.arange(bins + 2) * step + mels[0]) / 2595 * np.log(10))
    corners: list[int] = ((length + 1) * hertz // rate).astype(int).tolist()
    if bins < 0 or (bins and (min(corners) < 0 or max(corners) >= rows)):
        n.invalid(f"its {bins} triangles lie outside the {rows} bins of a spectrum")
    weights = np.zeros((rows, bins))
    for i, (left, top, right) in enumerate(zip(corners, corners[1:], corners[2:], strict=False)):
        rising: Array = np.arange(left, top + 1)
        falling: Array = np.arange(top, right)
        weights[rising, i] = (rising - left) / (top - left) if top > left else 1
        weights[falling, i] = (right - falling) / max(1, right - top)
    return known(astype(weights, element_of(n, n.int("output_datatype", 1))))
