"""The micro-kernel: one register tile of C over a block of K.

``tile_R(k, a, b, step, c, ldc, n, load)``: R rows, of which the first ``n`` columns are read and written.
Sums stay in registers; each element of C is summed in the order of K.
Tiles of prepacked B have two more arguments, ``ahead`` and ``stride``: what they prefetch into the
second-level cache meanwhile.
"""

from __future__ import annotations

from kcache_compiler.mlir.text_builder import Code, Name
from kcache_compiler.schedule.gemm_tiles import BYTES, Form

ARGUMENTS = (
    ("k", "i64"),
    ("a", "!llvm.ptr {llvm.noalias, llvm.readonly}"),
    ("b", "!llvm.ptr {llvm.noalias, llvm.readonly}"),
    ("step", "i64"),
    ("c", "!llvm.ptr {llvm.noalias}"),
    ("ldc", "i64"),
    ("n", "i64"),
    ("load", "i1"),
)

#: Bytes of a cache line.
LINE = 64
#: Prefetch distance of packed B into the first-level cache, in bytes.
BYTES_AHEAD = 8192
#: Steps of K, unrolled, for which a line is prefetched into the second-level cache.
STEPS_OF_LINE = 2
#: Additional arguments of the tiles of prepacked B: each step of K prefetches the line at ``ahead``, which
#: need not exist, and moves it by this number of bytes.
AHEAD = (("ahead", "!llvm.ptr"), ("stride", "i64"))


def tile_name(form: Form, rows: int, direct: bool = False, vectors: int = 0) -> str:
    kind = "direct" if direct else "tile"
    return f"{form.name}_{kind}_{rows}" + (f"x{vectors}" if vectors else "")


def row_counts(form: Form) -> list[int]:
    """The row counts of tiles: the full tile, and the powers of two that compose a partial panel."""
    return [form.rows, *(1 << bit for bit in reversed(range(8)) if 1 << bit < form.rows)]


def tile(form: Form, rows: int, direct: bool = False, vectors: int = 0) -> str:
    """The micro-kernel of ``rows`` rows; a ``direct`` one reads unpacked B and has all columns."""
    arguments = [*ARGUMENTS, *(AHEAD if form.prepacked else ())]
    code = Code(tile_name(form, rows, direct, vectors), arguments)
    vectors = vectors or form.vectors
    columns = [vector * form.lanes for vector in range(vectors)]
    starts = [code.at("%c", code.mul("%ldc", row), form.wide) for row in range(rows)]
    addresses = [code.at(start, column, form.wide) for start in starts for column in columns]
    masks = column_masks(code, form, columns) if form.masked and not direct else []
    zero = code.const("dense<0.0>", form.vector)
    if form.fused:
        for address in addresses if rows > 1 else ():
            code.prefetch(address)
        sums = [zero] * len(addresses)
    else:  # the sums start from C
        sums = _load_sums(code, form, addresses, masks)
    results = _products(code, form, rows, columns, direct, sums)
    if not masks:
        store_sums(code, form, addresses, results, [])
        return code.text()
    is_full = code.compare("eq", "%n", vectors * form.lanes)
    with code.when(is_full):  # masked stores are slow on some CPUs
        store_sums(code, form, addresses, results, [])
    with code.otherwise():
        store_sums(code, form, addresses, results, masks)
    return code.text()


def _products(
    code: Code, form: Form, rows: int, columns: list[int], direct: bool, sums: list[Name]
) -> list[Name]:
    """``sums`` with the products of all steps of K: whole iterations, then the steps that are left."""
    begin: Name = code.const(0)
    for steps in dict.fromkeys((form.unroll, 1)):
        end = "%k" if steps == 1 else code.mul(code.div("%k", steps), steps)
        with code.loop(begin, end, steps, carried=[(value, form.vector) for value in sums]) as loop:
            sums = loop.carried
            for step in range(steps):
                counter = code.add(loop.counter, step) if step else loop.counter
                ahead = form.prepacked and step % STEPS_OF_LINE == 0
                sums = _step(code, form, rows, columns, (direct, ahead), counter, sums)
            loop.following += sums
        begin, sums = end, loop.results
    return sums


def _step(
    code: Code,
    form: Form,
    rows: int,
    columns: list[int],
    prefetched: tuple[bool, bool],
    counter: Name,
    sums: list[Name],
) -> list[Name]:
    """``sums`` with the products of step ``counter`` of K; ``prefetched``: the next columns of a B that is
    not packed, and what is ``ahead``.
    """
    direct, ahead = prefetched
    width, results = BYTES[form.packed], list[Name]()
    start = code.at("%b", code.mul(counter, "%step"), form.packed)
    places = [code.at(start, column, form.packed) for column in columns]
    packed = [code.load(place, form.packed_vector, width) for place in places]
    for place in places if direct and rows > 1 else ():
        code.prefetch(code.at(place, len(columns) * form.lanes, form.packed))
    for line in range(0, form.columns * width if form.streams else 0, LINE):
        code.prefetch(code.at(start, BYTES_AHEAD + line, "i8"))
    if ahead:
        code.prefetch(code.at("%ahead", code.mul(counter, "%stride"), "i8"), level=2)
    column_of_a = code.at("%a", counter, form.packed)
    for row in range(rows):
        element = code.load(code.at(column_of_a, row * form.row_step, form.packed), form.packed, width)
        factor = spread(code, element, form.packed, form.lanes)
        for values in packed:
            results.append(multiply_add(code, form, factor, values, sums[len(results)]))
    return results


def _load(code: Code, form: Form, address: Name) -> Name:
    return code.load(address, form.vector, BYTES[form.wide])


def spread(code: Code, scalar: Name, kind: str, lanes: int) -> Name:
    """Broadcast a scalar to a vector."""
    vector = f"vector<{lanes}x{kind}>"
    poison = code.op(f"llvm.mlir.poison : {vector}")
    inserted = code.op(f"llvm.insertelement {scalar}, {poison}[{code.const(0, 'i32')} : i32] : {vector}")
    zeros = ", ".join(["0"] * lanes)
    return code.op(f"llvm.shufflevector {inserted}, {poison} [{zeros}] : {vector}")


def multiply_add(code: Code, form: Form, a: Name, b: Name, total: Name) -> Name:
    kind = form.vector
    if form.pairs:
        twice = f"vector<{2 * form.lanes}xbf16>"
        b, a = (code.op(f"llvm.bitcast {value} : {form.packed_vector} to {twice}") for value in (b, a))
        name = '"llvm.x86.avx512bf16.dpbf16ps.512"'
        return code.op(
            f"llvm.call_intrinsic {name}({total}, {a}, {b}) : ({kind}, {twice}, {twice}) -> {kind}"
        )
    if form.fused:
        return code.op(f"llvm.intr.fma({a}, {b}, {total}) : ({kind}, {kind}, {kind}) -> {kind}")
    product = code.op(f"llvm.fmul {a}, {b} : {kind}")
    return code.op(f"llvm.fadd {total}, {product} : {kind}")


def column_masks(code: Code, form: Form, columns: list[int]) -> list[Name]:
    """The masks of valid columns, by vector."""
    kind = f"vector<{form.lanes}xi64>"
    count = spread(code, "%n", "i64", form.lanes)
    masks: list[Name] = []
    for column in columns:
        numbers = ", ".join(str(column + lane) for lane in range(form.lanes))
        masks.append(code.op(f"arith.cmpi slt, {code.const(f'dense<[{numbers}]>', kind)}, {count} : {kind}"))
    return masks


def store_sums(code: Code, form: Form, addresses: list[Name], sums: list[Name], masks: list[Name]) -> None:
    """Store sums to C, added to what is there if they started from zero and ``%load``."""
    if form.fused:
        sums = add_to_sums(code, form, addresses, masks, sums)
    store_vectors(code, form, addresses, sums, masks)


def store_vectors(code: Code, form: Form, addresses: list[Name], sums: list[Name], masks: list[Name]) -> None:
    """Store ``sums``, those of each row under ``masks`` if there are any."""
    for number, (address, value) in enumerate(zip(addresses, sums, strict=True)):
        if masks:
            _masked_store(code, form, value, address, masks[number % len(masks)])
        else:
            code.store(value, address, form.vector, BYTES[form.wide])


def _load_sums(code: Code, form: Form, addresses: list[Name], masks: list[Name]) -> list[Name]:
    """Load the sums from C, or zeros if not ``%load``."""
    zero = code.const("dense<0.0>", form.vector)
    if masks:
        kind = f"vector<{form.lanes}xi1>"
        load_mask = spread(code, "%load", "i1", form.lanes)
        read = [code.op(f"arith.andi {mask}, {load_mask} : {kind}") for mask in masks]
        return [
            masked_load(code, form, address, read[k % len(masks)], zero)
            for k, address in enumerate(addresses)
        ]
    kinds = ", ".join([form.vector] * len(addresses))
    result = code.fresh()
    code.do(f"{result}:{len(addresses)} = scf.if %load -> ({kinds}) {{")
    code.do(f"scf.yield {', '.join(_load(code, form, address) for address in addresses)} : {kinds}")
    code.do("} else {")
    code.do(f"scf.yield {', '.join([zero] * len(addresses))} : {kinds}")
    code.do("}")
    return [f"{result}#{k}" for k in range(len(addresses))]


def add_to_sums(
    code: Code, form: Form, addresses: list[Name], masks: list[Name], results: list[Name]
) -> list[Name]:
    """``results``, added to the sums in C if ``%load``."""
    kinds = ", ".join([form.vector] * len(addresses))
    total, zero = code.fresh(), code.const("dense<0.0>", form.vector)
    code.do(f"{total}:{len(addresses)} = scf.if %load -> ({kinds}) {{")
    sums: list[Name] = []
    for number, (address, result) in enumerate(zip(addresses, results, strict=True)):
        if masks:
            old = masked_load(code, form, address, masks[number % len(masks)], zero)
        else:
            old = _load(code, form, address)
        sums.append(code.op(f"arith.addf {old}, {result} : {form.vector}"))
    code.do(f"scf.yield {', '.join(sums)} : {kinds}")
    code.do("} else {")
    code.do(f"scf.yield {', '.join(results)} : {kinds}")
    code.do("}")
    return [f"{total}#{k}" for k in range(len(addresses))]


def masked_load(code: Code, form: Form, address: Name, mask: Name, otherwise: Name) -> Name:
    kind = form.vector
    return code.op(
        f"llvm.intr.masked.load {address}, {mask}, {otherwise} {{alignment = {BYTES[form.wide]} : i32}} : "
        f"(!llvm.ptr, vector<{form.lanes}xi1>, {kind}) -> {kind}"
    )


def _masked_store(code: Code, form: Form, value: Name, address: Name, mask: Name) -> None:
    code.do(
        f"llvm.intr.masked.store {value}, {address}, {mask} {{alignment = {BYTES[form.wide]} : i32}} : "
        f"{form.vector}, vector<{form.lanes}xi1> into !llvm.ptr"
    )


_POINTER = "!llvm.ptr"


def finish(form: Form) -> str:
    """``(rows, n, sums, c, ldc)``; ``sums`` has rows of ``form.width``."""
    arguments = [("rows", "i64"), ("n", "i64"), ("sums", _POINTER), ("c", _POINTER), ("ldc", "i64")]
    code = Code(f"{form.name}_finish", arguments)
    vector_end = code.mul(code.div("%n", form.lanes), form.lanes)
    with code.loop(0, "%rows") as row:
        source = code.at("%sums", code.mul(row.counter, form.width), form.wide)
        target = code.at("%c", code.mul(row.counter, "%ldc"), "i16")
        for low, high, lanes in (("0", vector_end, form.lanes), (vector_end, "%n", 0)):
            with code.loop(0 if low == "0" else low, high, lanes or 1) as loop:
                kind = form.vector if lanes else form.wide
                value = code.load(code.at(source, loop.counter, form.wide), kind, BYTES[form.wide])
                narrow = _narrow(code, form, value, lanes)
                kind = f"vector<{lanes}xi16>" if lanes else "i16"
                code.store(narrow, code.at(target, loop.counter, "i16"), kind, BYTES[form.c])
    return code.text()


def _narrow(code: Code, form: Form, value: Name, lanes: int) -> Name:
    """The bits of ``value``, an f32 or a vector of f32, rounded to nearest even in ``form.c``."""

    def shaped(element: str) -> str:
        return f"vector<{lanes}x{element}>" if lanes else element

    def const(number: int) -> Name:
        return code.const(f"dense<{number}>" if lanes else number, shaped("i32"))

    if form.c == "f16":
        half = code.op(f"arith.truncf {value} : {shaped('f32')} to {shaped('f16')}")
        return code.op(f"arith.bitcast {half} : {shaped('f16')} to {shaped('i16')}")
    kind = shaped("i32")
    bits = code.op(f"arith.bitcast {value} : {shaped('f32')} to {kind}")
    high = code.op(f"arith.shrui {bits}, {const(16)} : {kind}")
    odd = code.op(f"arith.andi {high}, {const(1)} : {kind}")
    half = code.op(f"arith.addi {odd}, {const(0x7FFF)} : {kind}")
    rounded = code.op(f"arith.shrui {code.op(f'arith.addi {bits}, {half} : {kind}')}, {const(16)} : {kind}")
    quiet = code.op(f"arith.ori {high}, {const(0x40)} : {kind}")
    unordered = code.op(f"arith.cmpf uno, {value}, {value} : {shaped('f32')}")
    mask = shaped("i1")
    chosen = code.op(
        f"arith.select {unordered}, {quiet}, {rounded} : {mask}, {kind}"
        if lanes
        else f"arith.select {unordered}, {quiet}, {rounded} : {kind}"
    )
    return code.op(f"arith.trunci {chosen} : {kind} to {shaped('i16')}")
