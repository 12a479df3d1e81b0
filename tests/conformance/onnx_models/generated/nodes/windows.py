"""Draws operators over windows and grids: convolutions, pools, sampling."""

from __future__ import annotations

import numpy as np

from tests.conformance.onnx_models.generated.draw import Draw, draws, dtype_of


def windows(d: Draw, spatial: int, dilated: bool = True) -> list[int]:
    """Draws ``kernel_shape`` and what goes with it; returns the kernel."""
    kernel = [d.int(1, 3) for _ in range(spatial)]
    d.attributes["kernel_shape"] = kernel
    if d.coin(0.6):
        d.attributes["strides"] = [d.int(1, 3) for _ in kernel]
    if dilated and d.coin(0.4):
        d.attributes["dilations"] = [d.int(1, 2) for _ in kernel]
    if d.coin(0.2) and "dilations" not in d.attributes:
        d.attributes["auto_pad"] = d.one(["SAME_UPPER", "SAME_LOWER", "VALID"])
    elif d.coin(0.6):
        d.attributes["pads"] = [d.int(0, size - 1) for size in kernel * 2]
    return kernel


@draws("Conv", "ConvInteger")
def conv(d: Draw) -> None:
    d.special = False
    spatial, group = d.int(1, 3), d.one([1, 1, 2])
    first, second = d.schema.inputs[0].type_str, d.schema.inputs[1].type_str
    inner, outer = d.int(1, 3), d.int(1, 2) * group
    d.tensor((d.int(1, 2), inner * group, *[d.int(5, 7) for _ in range(spatial)]), first)
    kernel = windows(d, spatial)
    d.tensor((outer, inner, *kernel), second)
    if group > 1:
        d.attributes["group"] = group
    if d.op == "ConvInteger":
        if d.coin():
            d.add(d.array(d.type("T1"), (), 0, 3))
            if d.coin():
                d.add(d.array(d.type("T2"), (), 0, 3))
    elif d.coin():
        d.tensor((outer,))


@draws("ConvTranspose")
def conv_transpose(d: Draw) -> None:
    d.special = False
    spatial, group = d.int(1, 2), d.one([1, 1, 2])
    inner, outer = d.int(1, 2) * group, d.int(1, 2)
    d.tensor((d.int(1, 2), inner, *[d.int(2, 4) for _ in range(spatial)]))
    kernel = windows(d, spatial)
    d.tensor((inner, outer, *kernel))
    strides = d.attributes.get("strides", [1] * spatial)
    if group > 1:
        d.attributes["group"] = group
    if d.coin(0.3) and "auto_pad" not in d.attributes:
        d.attributes["output_padding"] = [d.int(0, stride - 1) for stride in strides]
    elif d.coin(0.2) and "pads" not in d.attributes:
        sizes = zip(strides, d.given(0).shape[2:], strict=True)
        d.attributes["output_shape"] = [stride * size for stride, size in sizes]
    if d.coin():
        d.tensor((outer * group,))


@draws("MaxPool", "AveragePool", "LpPool")
def pool(d: Draw) -> None:
    d.special = False
    spatial = d.int(1, 3)
    d.tensor((d.int(1, 2), d.int(1, 2), *[d.int(5, 7) for _ in range(spatial)]))
    dilated = d.version >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[d.op]
    windows(d, spatial, dilated)
    ceil = {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[d.op]
    if d.version >= ceil and "auto_pad" not in d.attributes and d.coin(0.4):
        d.attributes["ceil_mode"] = 1
    if d.op == "AveragePool" and d.coin():
        d.attributes["count_include_pad"] = 1
    if d.op == "LpPool" and d.coin():
        d.attributes["p"] = d.int(1, 3)
    if d.op == "MaxPool" and d.version >= 8 and d.coin(0.3):
        d.outputs = 2
        if d.coin():
            d.attributes["storage_order"] = d.int(0, 1)


@draws("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(d: Draw) -> None:
    d.special = False
    d.tensor((d.int(1, 2), d.int(1, 3), *d.dims(d.int(1, 3), 1)))
    if d.op == "GlobalLpPool" and d.coin():
        d.attributes["p"] = d.int(1, 3)


@draws("GridSample")
def grid_sample(d: Draw) -> None:
    d.special = False
    spatial = d.one([2, 2, 3]) if d.version >= 20 else 2
    batch = d.int(1, 2)
    d.tensor((batch, d.int(1, 2), *d.dims(spatial, 2)), "T1")
    d.tensor((batch, *d.dims(spatial, 1), spatial), "T2", -1.3, 1.3)
    modes = ["linear", "nearest", "cubic"] if d.version >= 20 else ["bilinear", "nearest", "bicubic"]
    d.attributes = {
        "mode": d.one(modes[: 2 if spatial == 3 else 3]),
        "padding_mode": d.one(["zeros", "border", "reflection"]),
        "align_corners": d.int(0, 1),
    }


@draws("AffineGrid")
def affine_grid(d: Draw) -> None:
    d.special = False
    batch, spatial = d.int(1, 2), d.int(2, 3)
    d.tensor((batch, spatial, spatial + 1), "T1")
    d.numbers([batch, d.int(1, 2), *[d.int(1, 4) for _ in range(spatial)]])
    d.attributes["align_corners"] = d.int(0, 1)


@draws("RoiAlign")
def roi_align(d: Draw) -> None:
    d.special = False
    batch, rois = d.int(1, 2), d.int(1, 3)
    d.tensor((batch, d.int(1, 2), 6, 7), "T1")
    corner = d.random.uniform(0, 3, (rois, 2))
    size = d.random.uniform(1, 3, (rois, 2))
    d.add(np.concatenate([corner, corner + size], 1).astype(dtype_of(d.type("T1"))))
    d.numbers([d.int(0, batch - 1) for _ in range(rois)], d.coin())
    d.attributes = {
        "output_height": d.int(1, 3),
        "output_width": d.int(1, 3),
        "sampling_ratio": d.int(1, 3),
        "spatial_scale": d.one([1.0, 0.5]),
        "mode": d.one(["avg", "max"]),
    }
    if d.version >= 16 and d.coin():
        d.attributes["coordinate_transformation_mode"] = d.one(["half_pixel", "output_half_pixel"])


@draws("Col2Im")
def col2im(d: Draw) -> None:
    d.special = False
    image, block = [d.int(4, 6), d.int(4, 6)], [d.int(1, 3), d.int(1, 3)]
    strides = [d.int(1, 2), d.int(1, 2)]
    pads = [d.int(0, 1) for _ in range(4)]
    dilations = [d.int(1, 2) if 2 * block[i] - 1 <= image[i] and d.coin(0.4) else 1 for i in range(2)]
    wide = [dilations[i] * (block[i] - 1) + 1 for i in range(2)]
    counts = [(image[i] + pads[i] + pads[i + 2] - wide[i]) // strides[i] + 1 for i in range(2)]
    d.tensor((d.int(1, 2), d.int(1, 2) * block[0] * block[1], counts[0] * counts[1]))
    d.numbers(image)
    d.numbers(block)
    d.attributes = {"strides": strides, "pads": pads}
    if dilations != [1, 1]:
        d.attributes["dilations"] = dilations


@draws("DeformConv")
def deform_conv(d: Draw) -> None:
    d.special = False
    batch, group, offsets = d.int(1, 2), d.one([1, 1, 2]), d.one([1, 1, 2])
    channels, outer = d.int(1, 2) * 2, d.int(1, 2) * group
    kernel, pads = [d.int(1, 2), d.int(1, 2)], [d.int(0, 1) for _ in range(4)]
    strides, dilations = ([d.int(1, 2) if d.coin(0.3) else 1 for _ in range(2)] for _ in range(2))
    high, wide = (
        (4 + pads[i] + pads[i + 2] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(2)
    )
    d.tensor((batch, channels, 4, 4))
    d.tensor((outer, channels // group, *kernel))
    count = offsets * kernel[0] * kernel[1]
    d.tensor((batch, 2 * count, high, wide), "T", -1, 1)
    if d.coin():
        d.tensor((outer,))
    else:
        d.skip()
    if d.coin():
        d.tensor((batch, count, high, wide), "T", 0, 1)
    d.attributes = {"kernel_shape": kernel, "pads": pads, "strides": strides, "dilations": dilations}
    d.attributes |= {"group": group, "offset_group": offsets}
