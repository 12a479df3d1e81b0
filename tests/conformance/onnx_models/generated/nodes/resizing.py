"""Draws resizing."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.onnx_models.generated.draw import Draw, draws

_WAYS = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


@draws("Upsample")
def upsample(d: Draw) -> None:
    d.special = False
    rank = d.int(1, 4)
    d.tensor(d.dims(rank, 2))
    scales = np.array([d.one([1.0, 1.0, 1.5, 2.0, 3.0]) for _ in range(rank)], np.float32)
    d.attributes["mode"] = d.one(["nearest", "linear"])
    if d.version < 9:
        d.attributes["scales"] = scales.tolist()
    else:
        d.add(scales, True)


@draws("Resize")
def resize(d: Draw) -> None:
    d.special = False
    rank = d.int(1, 4)
    mode = d.one(["nearest", "linear", "cubic"] if d.version >= 11 else ["nearest", "linear"])
    x = d.tensor(d.dims(rank, 2), d.schema.inputs[0].type_str)
    scaled = sorted(d.random.permutation(rank)[: d.int(1, min(rank, 2))].tolist())
    factors = [0.5, 0.6, 0.7, 1.0, 1.3, 1.5, 2.0, 3.0]
    scales = np.array([d.one(factors) if axis in scaled else 1 for axis in range(rank)], np.float32)
    d.attributes["mode"] = mode
    if d.version < 11:
        d.add(scales, True)
        return
    ways = [*_WAYS, "tf_crop_and_resize", *(["half_pixel_symmetric"] if d.version >= 19 else [])]
    way = d.one(ways)
    if d.coin(0.9):
        d.attributes["coordinate_transformation_mode"] = way
    if mode == "nearest" and d.coin(0.8):
        d.attributes["nearest_mode"] = d.one(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    elif mode == "cubic":
        d.attributes |= {"cubic_coeff_a": d.one([-0.5, -0.75]), "exclude_outside": d.int(0, 1)}
    if d.version >= 18 and mode != "nearest" and d.coin(0.3):
        d.attributes["antialias"] = 1
    axes = list(range(rank))
    if d.version >= 18 and d.coin(0.3):
        axes = [axis - rank if d.coin(0.3) else axis for axis in scaled]
        d.attributes["axes"] = axes
    _sizes(d, x.shape, scales, axes, d.attributes.get("coordinate_transformation_mode") == ways[4])


def _sizes(d: Draw, dims: tuple[int, ...], scales: Any, axes: list[int], cropped: bool) -> None:
    """Either scales or sizes, behind a region."""
    if cropped:
        starts = [d.one([0.0, 0.25, -0.5]) for _ in axes]
        ends = [d.one([1.0, 0.75, 1.5]) for _ in axes]
        d.add(np.array([*starts, *ends], np.float32), True)
        d.attributes["extrapolation_value"] = d.one([0.0, 7.5])
    else:
        _nothing(d)
    if d.coin():
        d.add(scales[np.array(axes)], True)
        return
    _nothing(d)
    if d.version >= 18 and d.coin(0.3):
        d.attributes["keep_aspect_ratio_policy"] = d.one(["not_larger", "not_smaller"])
    d.numbers([d.int(1, 6) if scales[axis] != 1 else dims[axis] for axis in axes])


def _nothing(d: Draw) -> None:
    if d.version >= 13:
        d.skip()
    else:
        d.add(np.zeros(0, np.float32), True)
