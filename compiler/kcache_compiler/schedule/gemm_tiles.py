"""Register tiles, cache blocks and element types of contractions, by target.

A tile of C is ``rows`` x ``vectors`` vector registers: enough independent sums to hide the latency of a
multiply-add, and registers left for one row of B and an element of A.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kcache_compiler.llvm.cpus import Tuning
from kcache_compiler.llvm.target import Target
from kcache_compiler.schedule.choices import USUAL_BLOCKS, Blocks

#: Packed elements along K in one block of A and B, unless chosen.
DEPTH = 256
#: Elements between packed rows of A beyond those: rows fall into different sets of the cache.
PADDING = 16
#: Bytes of a packed panel of A at most, which is on the stack, and columns of a block however it is chosen.
PANEL_BYTES, CHOSEN_COLUMNS = 32768, 2048
#: Vectors of a tile of one row: enough sums to hide the latency of adding to each.
ROW_VECTORS = 8
#: Bytes of a block of packed B at least, and its columns at most.
BLOCK_BYTES = 1 << 19
WIDEST = 1024
#: Columns of which more are two blocks at least, one for each of two threads.
LONE_COLUMNS = 256
#: Cells of a block of prepacked columns up to which there are two blocks of at least this number of columns,
#: so that two threads get equal shares. Rows of one tile whose B is read unpacked have two such blocks too.
FEW_CELLS, FEW_COLUMNS = 8, 128
#: Rows at most that are summed in scratch at a time, where C is narrower than its sums.
SUMMED_ROWS = 192
#: Steps of K in an iteration of a tile of 256-bit registers: such an iteration has two multiply-adds for each
#: row, few enough that counters and addresses of each step would take a fifth of the instructions.
UNROLL = 4
#: Panels of A that are multiplied by a panel of B together, at most, and their bytes on the stack if they are
#: packed.
TOGETHER, TOGETHER_BYTES = 9, 1 << 16
#: Bytes to which areas of scratch are aligned.
ALIGNMENT = 64

#: Rows and vectors of four tile registers of sums, and packed elements along K in a block: the panels of A
#: and of B that a tile reads fit the first-level cache.
MATRIX_TILE, MATRIX_DEPTH = (32, 2), 192

BYTES = {"f64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2}


@dataclass(frozen=True)
class Form:
    """How contractions of given element types are computed on a target.

    Elements of ``a`` and ``b`` are widened to ``wide`` when they are packed, or, if ``pairs``, packed two by
    two along K for an instruction that multiplies and adds pairs. Sums are ``wide``; ``c`` is what is stored.
    ``fused`` multiplies and adds in one rounding; ``masked`` says that loads and stores of part of a vector
    are instructions. ``width`` columns of B are packed at a time, ``steps`` elements along K; B is read
    unpacked for up to ``few`` panels of rows. ``matrix``: products are computed in tile registers
    (``lower/gemm/amx.py``). ``prepacked``: B is the packed panels of a bound operand
    (``lower/gemm/prepack.py``). ``in_place``: rows of A are read unpacked (``lower/gemm/in_place``).
    ``unroll``: steps of K in an iteration of a tile. A panel of B is multiplied by ``together`` panels of A,
    one after another, before the next one is read.
    """

    a: str
    b: str
    c: str
    wide: str
    lanes: int
    rows: int
    vectors: int
    width: int
    fused: bool
    masked: bool
    pairs: bool
    steps: int = DEPTH
    few: int = 2
    prepacked: bool = False
    matrix: bool = False
    in_place: bool = False
    unroll: int = 1
    together: int = 1

    @property
    def name(self) -> str:
        variant = ("" if self.fused else "_exact") + ("_matrix" if self.matrix else "")
        variant += ("_packed" if self.prepacked else "") + ("_in_place" if self.in_place else "")
        return f"gemm_{self.a}_{self.b}_{self.c}_{self.wide}{variant}"

    @property
    def bits(self) -> int:
        """Bits of a vector register."""
        return 8 * self.lanes * BYTES[self.wide]

    @property
    def quick_masks(self) -> bool:
        """Loads of some lanes are instructions for elements of B."""
        return self.masked or (self.bits == 256 and self.b == self.wide)

    @property
    def direct(self) -> bool:
        """Products of few rows may read B unpacked."""
        return not self.pairs and not self.summed and self.b == self.wide and not self.prepacked

    @property
    def group_rows(self) -> int:
        """Rows that are multiplied by a panel of B together."""
        return self.rows * self.together

    @property
    def streams(self) -> bool:
        """Whether panels of prepacked B come from the second-level cache again for each panel of A."""
        return self.prepacked and self.together == 1

    @property
    def narrow(self) -> bool:
        """Whether there is a tile of a single vector of columns: its rows are enough sums."""
        return self.masked and self.vectors > 1 and not self.matrix

    @property
    def narrower(self) -> tuple[int, ...]:
        """Vectors of tiles for the last columns, of every number of rows, where no mask ends a vector."""
        return tuple(range(1, self.vectors)) if self.in_place and not self.masked else ()

    @property
    def columns(self) -> int:
        """Columns of a tile."""
        return self.lanes * self.vectors

    @property
    def row_step(self) -> int:
        """Elements from one packed row of A to the next."""
        return self.steps + PADDING

    @property
    def group(self) -> int:
        """Steps of K in one packed element."""
        return 2 if self.pairs else 1

    @property
    def packed(self) -> str:
        """The type of a packed element."""
        return "i32" if self.pairs else self.wide

    @property
    def depth(self) -> int:
        """Steps of K in one block."""
        return self.steps * self.group

    @property
    def cell(self) -> int:
        """Rows of one cell of the grid that is split over threads."""
        return self.rows

    @property
    def summed(self) -> bool:
        """Sums are kept in scratch until they are complete."""
        return self.c != self.wide

    @property
    def summed_rows(self) -> int:
        """Rows that are summed in scratch at a time: whole tiles."""
        return max(SUMMED_ROWS // self.rows, 1) * self.rows

    @property
    def packed_bytes(self) -> int:
        """Bytes of scratch for a block of packed B."""
        return ALIGNMENT if self.prepacked else self.width * self.steps * BYTES[self.packed]

    @property
    def scratch(self) -> int:
        if self.summed:
            return self.packed_bytes + self.summed_rows * self.width * BYTES[self.wide]
        rows = (self.few + 1) * self.rows * self.row_step
        edge = max(ROW_VECTORS * self.lanes, self.columns) * self.steps
        return max(self.packed_bytes, (rows + edge) * BYTES[self.wide] if self.direct else 0)

    @property
    def vector(self) -> str:
        return f"vector<{self.lanes}x{self.wide}>"

    @property
    def packed_vector(self) -> str:
        return f"vector<{self.lanes}x{self.packed}>"


def form_for(
    target: Target,
    tuning: Tuning,
    kinds: tuple[str, str, str],
    wide: str,
    exact: bool,
    blocks: Blocks = USUAL_BLOCKS,
    *,
    vectors_only: bool = False,
) -> Form:
    """The form of a contraction of A, B and C of ``kinds``; ``exact`` keeps each product's own rounding.

    ``blocks`` choose rows and vectors, where the registers hold these sums and a row of B, and cache
    blocks, of which the stack holds a panel of A and a table of columns. ``vectors_only``: without tile
    registers.

    A block of packed B takes half of the second-level cache, or ``BLOCK_BYTES`` where that is more: it is
    read in order, and a wide block packs A less often.
    """
    features = target.features
    bits, rows, vectors, registers, masked, fma = 128, 6, 2, 16, False, False
    if target.architecture == "aarch64":
        rows, vectors, registers, fma = 8, 3, 32, True
    elif "avx512vl" in features and tuning.vector_bits >= 512:
        bits, rows, registers, masked, fma = 512, 12, 32, True, True
    elif "avx2" in features and "fma" in features:
        bits, fma = 256, True
    if blocks.tile is not None and (blocks.tile[0] + 1) * blocks.tile[1] < registers:
        rows, vectors = blocks.tile
    pairs = bits == 512 and "avx512bf16" in features and kinds[:2] == ("bf16", "bf16") and not exact
    matrix = pairs and "amx-bf16" in features and not vectors_only
    if matrix:
        rows, vectors = MATRIX_TILE
    lanes = bits // 8 // BYTES[wide]
    columns = lanes * vectors
    width = min(WIDEST, max(BLOCK_BYTES, tuning.l2 // 2) // (BYTES[wide] * DEPTH))
    more, less = blocks.columns
    if more > 1:
        width = max(width, min(CHOSEN_COLUMNS, width * more))
    width = max(width // less // columns, 1) * columns
    fused = fma and not exact
    form = Form(
        *kinds, wide, lanes, rows, vectors, width, fused, masked, pairs, few=blocks.direct, matrix=matrix
    )
    form = replace(form, steps=panel_steps(form, blocks.depth))
    if bits != 256:
        return form
    panel = form.rows * form.row_step * BYTES[form.packed]
    return replace(form, unroll=UNROLL, together=max(1, min(TOGETHER, TOGETHER_BYTES // panel)))


def panel_steps(form: Form, wished: int) -> int:
    """Packed elements along K: as ``wished``, or as many as the stack has room for."""
    if form.matrix:
        return min(wished, MATRIX_DEPTH)
    most = PANEL_BYTES // (form.rows * BYTES[form.packed]) - PADDING
    return min(wished, most // 64 * 64) if wished > DEPTH else wished
