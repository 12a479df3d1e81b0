"""Which products read rows of A unpacked, and where the rows of padded images begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kcache_compiler.lower.conv.padding import Padding
from kcache_compiler.lower.gemm.in_place.driver import IMAGE, most_rows
from kcache_compiler.lower.gemm.in_place.tile import lower_panel
from kcache_compiler.lower.gemm.match import Contraction, GemmAxis, Groups, InPlace, grid
from kcache_compiler.lower.gemm.packing import SHORT_RUN
from kcache_compiler.lower.loops.buffer_shapes import Shapes
from kcache_compiler.schedule.gemm_tiles import BYTES, FEW_CELLS, FEW_COLUMNS, Form
from kcache_compiler.shapes.formula import Formula, product

#: Rows of a tile where the registers hold as many sums: images are often 7 times a power of two wide.
ROWS = 14
#: Contiguous elements along K at least.
RUN = SHORT_RUN
#: Panels of rows up to which one more of two threads' rows is a share that matters.
MOST_PANELS = 24
#: Bytes of the rows of pixels that a chunk reads: preferred, and at most.
WISHED_BYTES, MOST_BYTES = 1 << 19, 1 << 22


@dataclass(frozen=True)
class _Image:
    """A padded image as rows of pixels: the words of ``IMAGE``, and elements of a row with its zeros."""

    pitch: int
    words: dict[str, Formula]


def in_place(contraction: Contraction, padding: Padding | None, shapes: Shapes) -> Contraction | None:
    """``contraction``, whose B is prepacked, with rows of A that are read unpacked, or copied with
    ``padding``; None if they are better packed.
    """
    form, groups = contraction.form, contraction.groups
    if not _suits(form, groups):
        return None
    form = replace(form, in_place=True, rows=ROWS if form.masked else form.rows)
    m, step = groups.sizes("m"), groups.m[-1].a
    few = isinstance(m, int) and m < form.rows // 2
    if not isinstance(step, int) or (few and (padding is not None or not _is_plain(form, groups))):
        return None
    panel = form.rows if padding is not None else _panel(form, groups)
    words: dict[str, Formula] = {"chunk": most_rows(form), "panel": panel, "step": step}
    scratch = 0
    if padding is not None:
        image = _image(padding, shapes)
        if image is None:
            groups, image = _with_planes(groups, padding, shapes)
        followed = image is not None and _follows(contraction, groups)
        chunk = chunk_of(form, groups, image.pitch) if image is not None and followed else None
        if image is None or chunk is None:
            return None
        words |= {"chunk": chunk[0], "pitch": image.pitch, "reach": _reach(groups), **image.words}
        scratch = chunk[1]
    nest = grid(contraction.nest, groups, form, panel)
    return replace(contraction, form=form, nest=nest, groups=groups, in_place=InPlace(words, scratch))


def suits_few_rows(form: Form, groups: Groups) -> bool:
    """Whether few rows of A, but not one, in place times panels of B take less time than times unpacked rows
    of B.

    Measured with AVX2 and AVX-512. More rows than these reuse rows of B enough.
    """
    m, n = groups.sizes("m"), groups.sizes("n")
    if not (isinstance(m, int) and isinstance(n, int) and n >= FEW_COLUMNS):
        return False
    most = ROWS // 2 if form.masked else form.rows - 1
    plain = _suits(form, groups) and _is_plain(form, groups) and isinstance(groups.m[-1].a, int)
    return 1 < m <= most and plain


def _is_plain(form: Form, groups: Groups) -> bool:
    """Whether this is one product of matrices, on x86 with FMA."""
    return form.bits > 128 and len(groups.k) == 1 and not groups.batch


def _panel(form: Form, groups: Groups) -> int:
    """Rows of a panel: fewer if two threads then share the rows of a single block of columns more evenly."""
    m, n, lower = groups.sizes("m"), groups.sizes("n"), lower_panel(form)
    if not (isinstance(m, int) and isinstance(n, int)) or n > form.width or groups.batch:
        return form.rows
    if not FEW_CELLS * form.rows < m <= MOST_PANELS * form.rows:
        return form.rows
    shares = [(m + 2 * rows - 1) // (2 * rows) * rows for rows in (lower, form.rows)]
    return lower if shares[0] < shares[1] else form.rows


def _suits(form: Form, groups: Groups) -> bool:
    """Whether elements of A need no conversion, those of a row are contiguous, and vectors of C are whole or
    masked.
    """
    if (
        not (form.prepacked and form.fused)
        or form.pairs
        or {form.a, form.c} != {form.wide}
        or not (groups.m and groups.k)
    ):
        return False
    n, run = groups.sizes("n"), groups.k[-1]
    whole = isinstance(n, int) and n % form.lanes == 0
    steps = [axis.a for axis in groups.k]
    if not (form.masked or whole) or not all(isinstance(step, int) for step in steps):
        return False
    return run.a == 1 and isinstance(run.size, int) and run.size >= RUN


def _follows(contraction: Contraction, groups: Groups) -> bool:
    """Whether rows of A are in the order of those of the image, from its start on, at known distances."""
    sizes = [axis.size for axis in groups.m[1:]]
    strides = [axis.a for axis in groups.m]
    known = all(isinstance(word, int) for word in (*sizes, *strides))
    ordered = known and all(int(str(a)) > int(str(b)) for a, b in pairwise(strides))
    return ordered and not groups.batch and contraction.offsets[0] == 0


def _reach(groups: Groups) -> int:
    """The last offset of a step of K."""
    return sum((int(str(axis.size)) - 1) * int(str(axis.a)) for axis in groups.k)


def _image(padding: Padding, shapes: Shapes) -> _Image | None:
    """The rows of pixels of an image ``[images, rows, columns, channels]``; the first two may be absent."""
    padded, extents = shapes.sizes(padding.padded), shapes.sizes(padding.image)
    rank = len(padded)
    if not 2 <= rank <= 4 or padded[-1] != extents[-1] or padding.before[-1] != 0:
        return None
    lacking: list[Formula] = [1] * (4 - rank)
    padded, extents = [*lacking, *padded], [*lacking, *extents]
    strides = [*([0] * (4 - rank)), *shapes.strides(padding.image)]
    _, rows_before, before, _ = (*([0] * (4 - rank)), *padding.before)
    if padded[0] != extents[0] or strides[3] != 1:
        return None
    if padded[0] == 1 and padded[1] == extents[1] and _is_long(padded[2:]):
        padded, extents = [padded[1], padded[2], 1, padded[3]], [extents[1], extents[2], 1, extents[3]]
        strides, rows_before, before = [*strides[1:3], 0, 1], before, 0
    sizes = [*padded[1:], *extents[1:3], *strides[:3]]
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < len(sizes):
        return None
    padded_rows, columns, channels, image_rows, inside, image_stride, row_stride, pixel_stride = known
    numbers = (padded_rows, image_rows, rows_before, before * channels, inside * channels)
    pixel = inside * channels if pixel_stride == channels else channels
    words = (*numbers, row_stride, image_stride, 1, 0, pixel, pixel_stride)
    return _Image(columns * channels, dict(zip(IMAGE, words, strict=True)))


def _is_long(sizes: Sequence[Formula]) -> bool:
    """Whether two rows of pixels of these ``sizes`` are more bytes than a chunk should read: each pixel of a
    sequence, whose rows have no padding above and below, is then a row of its own.
    """
    size = product(list(sizes))
    return isinstance(size, int) and 2 * size * BYTES["f32"] > WISHED_BYTES


def _with_planes(groups: Groups, padding: Padding, shapes: Shapes) -> tuple[Groups, _Image | None]:
    """The rows of pixels of an image ``[images, channels, rows, columns]``; the first may be absent. Also
    ``groups`` with the strides of A where each row is copied as the rows of its channels, one after another.
    """
    padded, extents = shapes.sizes(padding.padded), shapes.sizes(padding.image)
    lacking: list[Formula] = [1] * (4 - len(padded))
    padded, extents = [*lacking, *padded], [*lacking, *extents]
    strides = [*([0] * len(lacking)), *shapes.strides(padding.image)]
    if len(padded) != 4 or padded[:2] != extents[:2] or padding.before[-3] != 0 or strides[3] != 1:
        return groups, None
    words = [*padded[1:], *extents[2:], *strides[:3]]
    known = [word for word in words if isinstance(word, int)]
    planes, padded_rows, columns, image_rows, inside, image_stride, plane_stride, row_stride = (
        known if len(known) == len(words) else [0] * len(words)
    )
    moved = _moved(groups, (planes, padded_rows, columns)) if planes else None
    if moved is None:
        return groups, None
    numbers = (padded_rows, image_rows, padding.before[-2], padding.before[-1], inside)
    values = (*numbers, row_stride, image_stride, planes, plane_stride, inside, inside)
    return moved, _Image(planes * columns, dict(zip(IMAGE, values, strict=True)))


def _moved(groups: Groups, sizes: tuple[int, int, int]) -> Groups | None:
    """``groups`` whose strides of A are those of ``[images, rows, channels, columns]`` instead of
    ``[images, channels, rows, columns]``, of these ``sizes``; None if an axis is along several of them.
    """
    planes, rows, columns = sizes

    def place(offset: int) -> int:
        outer, column = divmod(offset, columns)
        outer, row = divmod(outer, rows)
        number, plane = divmod(outer, planes)
        return ((number * rows + row) * planes + plane) * columns + column

    moved: list[tuple[GemmAxis, ...]] = []
    for axes in (groups.m, groups.k):
        for axis in axes:
            if not isinstance(axis.a, int):
                return None
            last = axis.size - 1 if isinstance(axis.size, int) else 1
            whole = isinstance(axis.size, int) or axis.a % (planes * rows * columns) == 0
            if not whole or place(last * axis.a) != last * place(axis.a):
                return None
        moved.append(tuple(replace(axis, a=place(int(str(axis.a)))) for axis in axes))
    return replace(groups, m=moved[0], k=moved[1])


def chunk_of(form: Form, groups: Groups, pitch: int) -> tuple[int, int] | None:
    """Rows of a chunk, and the bytes of the rows of pixels that they read; None if those are too many."""
    for rows in range(most_rows(form), 0, -form.rows):
        lines = (span_of(groups, rows) + _reach(groups)) // pitch + 2
        size = lines * pitch * BYTES[form.a]
        if size <= (WISHED_BYTES if rows > form.rows else MOST_BYTES):
            return rows, size
    return None


def span_of(groups: Groups, rows: int) -> int:
    """The distance of the first and the last of this many rows of A, at most.

    A step along the innermost axis adds its stride; a carry to the next axis also what that stride is more
    than the extent of the axis.
    """
    distance, inner = (rows - 1) * int(str(groups.m[-1].a)), 1
    for axis, outer in pairwise(reversed(groups.m)):
        inner *= int(str(axis.size))
        more = int(str(outer.a)) - int(str(axis.size)) * int(str(axis.a))
        carries = -(-(rows - 1) // inner) if more > 0 else (rows - 1) // inner
        distance += carries * more
    return distance
