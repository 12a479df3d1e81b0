"""The micro-kernel of bf16 products on x86-64 processors with AMX, and the loop over its tiles.

Panels are packed as for ``vdpbf16ps``: pairs of elements along K, rows of A one after the other, steps of K
of B one after the other. A tile register holds 16 rows of 16 pairs. Four registers hold 32 x 32 sums, two a
part of A and two a part of B. ``run`` configures the registers once, for its thread.
"""

from __future__ import annotations

from kcache_compiler.lower.gemm.micro_kernel import AHEAD, tile_name
from kcache_compiler.lower.gemm.packing import lanes_below
from kcache_compiler.lower.gemm.strip import copy_block, prefetch_next_panel
from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, Form

_POINTER = "!llvm.ptr"
#: Rows of a tile register, and packed elements in each; both are the most that the hardware has.
SIDE = 16
#: Registers of parts of A and of B; those of sums come first.
_A, _B = 4, 6
#: The configuration: palette 1, 64 bytes in each row of eight registers, 16 rows of each.
_CONFIGURATION = ((0, 1), (2, 0x0040_0040_0040_0040), (3, 0x0040_0040_0040_0040), (6, 0x1010_1010_1010_1010))
_WORDS = 8


def configure(code: Code) -> None:
    """Emit the configuration of all eight tile registers."""
    table = code.stack(_WORDS, "i64")
    for word in range(_WORDS):
        code.store(code.const(dict(_CONFIGURATION).get(word, 0)), code.at(table, word, "i64"))
    code.do(f'llvm.call_intrinsic "llvm.x86.ldtilecfg"({table}) : ({_POINTER}) -> ()')


def release(code: Code) -> None:
    """Emit the return of the tile registers to their initial state."""
    code.do('llvm.call_intrinsic "llvm.x86.tilerelease"() : () -> ()')


def matrix_tile(form: Form, rows: int) -> str:
    """``(k, a, b, c, ldc, load)``: ``rows`` rows, 16 or 32, and 32 columns, which are all read and written.

    That of prepacked B has the arguments of ``AHEAD``, too. Each element of C is summed in the order of K.
    """
    numbers, pointers = [("k", "i64")], [(name, _POINTER) for name in ("a", "b", "c")]
    arguments = [*numbers, *pointers, ("ldc", "i64"), ("load", "i1"), *(AHEAD if form.prepacked else ())]
    code = Code(tile_name(form, rows), arguments)
    padded_a, padded_b = code.stack(rows * SIDE, form.packed), code.stack(SIDE * form.columns, form.packed)
    bytes_of_c = code.mul("%ldc", BYTES[form.wide])
    sums = [
        (
            row * 2 + half,
            code.at(code.at("%c", code.mul("%ldc", row * SIDE), form.wide), half * SIDE, form.wide),
        )
        for row in range(rows // SIDE)
        for half in range(2)
    ]
    with code.when("%load"):
        for register, address in sums:
            _load(code, register, address, bytes_of_c)
    with code.otherwise():
        for register, _ in sums:
            code.do(f'llvm.call_intrinsic "llvm.x86.tilezero"({code.const(register, "i8")}) : (i8) -> ()')
    whole = code.div("%k", SIDE)
    with code.loop(0, whole) as loop:
        step = code.mul(loop.counter, SIDE)
        if form.prepacked:
            for line in range(SIDE):
                ahead = code.mul(code.add(step, line), "%stride")
                code.prefetch(code.at("%ahead", ahead, "i8"), level=2)
        a, b = code.at("%a", step, form.packed), code.at("%b", code.mul(step, form.columns), form.packed)
        _multiply(code, form, rows, (a, form.row_step), b)
    rest = code.rem("%k", SIDE)
    with code.when(code.compare("ne", rest, 0)):
        first = code.mul(whole, SIDE)
        _pad(code, form, rows, first, rest, padded_a, padded_b)
        _multiply(code, form, rows, (padded_a, SIDE), padded_b)
    for register, address in sums:
        _transfer(code, "tilestored64", register, address, bytes_of_c)
    return code.text()


def _multiply(code: Code, form: Form, rows: int, a: tuple[Name, int], b: Name) -> None:
    """Add the products of 16 steps of K; rows of A are this many packed elements apart."""
    start, step = a
    width = BYTES[form.packed]
    for half in range(2):
        stride = code.const(form.columns * width)
        _load(code, _B + half, code.at(b, half * SIDE, form.packed), stride)
    for row in range(rows // SIDE):
        _load(code, _A + row, code.at(start, row * SIDE * step, form.packed), code.const(step * width))
        for half in range(2):
            names = ", ".join(code.const(place, "i8") for place in (row * 2 + half, _A + row, _B + half))
            code.do(f'llvm.call_intrinsic "llvm.x86.tdpbf16ps"({names}) : (i8, i8, i8) -> ()')


def _pad(code: Code, form: Form, rows: int, first: Name, rest: Name, a: Name, b: Name) -> None:
    """Copy the last ``rest`` steps of K of A and B, from ``first`` on, and zeros behind them."""
    kind, width = form.packed_vector, BYTES[form.packed]
    zero = code.const("dense<0>", kind)
    mask = lanes_below(code, form, rest)
    with code.loop(0, rows) as row:
        source = code.at("%a", code.add(code.mul(row.counter, form.row_step), first), form.packed)
        part = code.op(
            f"llvm.intr.masked.load {source}, {mask}, {zero} {{alignment = {width} : i32}} : "
            f"({_POINTER}, vector<{form.lanes}xi1>, {kind}) -> {kind}"
        )
        code.store(part, code.at(a, code.mul(row.counter, SIDE), form.packed), kind, width)
    with code.loop(0, SIDE) as step:
        inside = code.compare("slt", step.counter, rest)
        number = code.add(first, code.choose(inside, step.counter, code.const(0)))
        for half in range(2):
            source = code.at("%b", code.add(code.mul(number, form.columns), half * SIDE), form.packed)
            part = code.choose(inside, code.load(source, kind, width), zero, kind)
            place = code.add(code.mul(step.counter, form.columns), half * SIDE)
            code.store(part, code.at(b, place, form.packed), kind, width)


def _load(code: Code, register: int, address: Name, stride: Name) -> None:
    _transfer(code, "tileloadd64", register, address, stride)


def _transfer(code: Code, name: str, register: int, address: Name, stride: Name) -> None:
    """Load or store a tile register, whose rows are ``stride`` bytes apart."""
    values = f"{code.const(register, 'i8')}, {address}, {stride}"
    code.do(f'llvm.call_intrinsic "llvm.x86.{name}"({values}) : (i8, {_POINTER}, i64) -> ()')


def matrix_strip(form: Form) -> str:
    """The ``strip`` of tiles: parts of tiles of C that is not in scratch are computed in a buffer."""
    numbers = [(name, "i64") for name in ("rows", "n", "k")]
    pointers = [(name, _POINTER) for name in ("a", "b", "c")]
    prefetched = [("next", _POINTER), ("step", "i64"), *(AHEAD if form.prepacked else ())]
    code = Code(f"{form.name}_strip", [*numbers, *pointers, ("ldc", "i64"), ("load", "i1"), *prefetched])
    spare = (code.stack(form.rows * form.columns, form.wide), code.const(form.columns))
    with code.loop(0, "%n", form.columns) as loop:
        depth = "%k" if form.prepacked else form.steps
        panel = code.at("%b", code.mul(loop.counter, depth), form.packed)
        target = (code.at("%c", loop.counter, form.wide), "%ldc")
        prefetch_next_panel(code, form, loop.counter)
        ahead = _ahead(code, form, loop.counter)
        if form.summed:
            _tile_of(code, form, panel, target, ahead)
        else:
            _clipped(code, form, panel, (target, spare), code.sub("%n", loop.counter), ahead)
    return code.text()


def _clipped(
    code: Code,
    form: Form,
    panel: Name,
    places: tuple[tuple[Name, Name], tuple[Name, Name]],
    columns: Name,
    ahead: list[tuple[Name, str]],
) -> None:
    """Emit the tile for ``places[0]``, of which ``columns`` are left; ``places[1]`` holds a whole tile."""
    target, spare = places
    width = code.min(columns, form.columns)
    whole = code.both(code.compare("eq", width, form.columns), code.compare("eq", "%rows", form.rows))
    with code.when(whole):
        _tile_of(code, form, panel, target, ahead)
    with code.otherwise():
        with code.when("%load"):
            copy_block(code, form, target, spare, ("%rows", width))
        _tile_of(code, form, panel, spare, ahead)
        copy_block(code, form, spare, target, ("%rows", width))


def _ahead(code: Code, form: Form, column: Name) -> list[tuple[Name, str]]:
    if not form.prepacked:
        return []
    steps_before = code.mul(code.div(column, form.columns), "%k")
    return [
        (code.at("%ahead", code.mul(steps_before, "%stride"), "i8"), _POINTER),
        ("%stride", "i64"),
    ]


def _tile_of(
    code: Code, form: Form, panel: Name, stored: tuple[Name, Name], ahead: list[tuple[Name, str]]
) -> None:
    """Emit the tile of the panel's rows: that of 16 where they are no more."""
    target, ldc = stored

    def call(rows: int) -> None:
        code.call(
            tile_name(form, rows),
            ("%k", "i64"),
            *((name, _POINTER) for name in ("%a", panel, target)),
            *((ldc, "i64"), ("%load", "i1"), *ahead),
        )

    with code.when(code.compare("sgt", "%rows", SIDE)):
        call(form.rows)
    with code.otherwise():
        call(SIDE)
