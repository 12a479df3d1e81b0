"""AffineGrid: the places of a grid, moved by a matrix for each image.

Not by the standard's definition, which takes no single image, and rounds in the element of the matrices.
"""

from __future__ import annotations

from kcache_compiler.frontends.onnx.emitter import Value
from kcache_compiler.frontends.onnx.site import Site, legalizes


@legalizes(AffineGrid=20)
def affine_grid(n: Site) -> Value:
    b, theta = n.b, n[0]
    sizes = n.numbers(1, "its size")
    images, spatial = sizes[:1], sizes[2:]
    rank = len(spatial)
    if rank not in (2, 3) or theta.dims != (*images, rank, rank + 1):
        n.invalid(f"matrices of shape {list(theta.dims)} do not move a grid of size {sizes}")
    aligned = bool(n.int("align_corners", 0))
    if aligned and 1 in spatial:
        n.unsupported(
            "align_corners along an axis of one element, which is placed differently by each runtime"
        )
    element = "f64" if theta.element == "f64" else "f32"
    matrices = b.convert(theta, element)
    dims = (*images, *spatial, rank)

    def column(index: int) -> Value:
        numbers = b.reshape(b.along(matrices, 2, index, index + 1), (*images, rank))
        return b.broadcast_in_dim(numbers, [0, rank + 1], dims)

    moved = column(rank)
    for index, size in enumerate(reversed(spatial)):
        places = b.broadcast_in_dim(_places(n, size, aligned, element), [rank - index], dims)
        moved = b.binary("add", moved, b.binary("multiply", column(index), places))
    return b.convert(moved, theta.element)


def _places(n: Site, size: int, aligned: bool, element: str) -> Value:
    """Places from -1 to 1: of the middles of elements, or where ``aligned`` of the first and last one's."""
    twice = n.b.scalar("multiply", n.b.iota(element, (size,), 0), 2)
    return n.b.scalar("divide", n.b.scalar("add", twice, 1 - size), size - 1 if aligned else size)
