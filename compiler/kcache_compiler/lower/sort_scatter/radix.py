"""Radix sort of unsigned keys with positions, as functions in the LLVM dialect next to the launches.

A *word* has a key in its high bits and the position of its element in the row in its low bits, so words are
distinct, and their order is the stable order of the keys. Keys of 64 bits have positions in a separate array.
Words are sorted by 8-bit digits, least significant first, without digits that all words share; a few words
are sorted by a network (``bitonic.py``), or by counting the smaller words of each. The least few of many
words are kept sorted in one pass over the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcache_compiler.lower.gemm.micro_kernel import spread
from kcache_compiler.mlir.text_builder import Code, Name

_POINTER = "!llvm.ptr"
#: Values of a digit; histograms, one for every other word, so that equal digits do not depend on each other.
DIGITS, _TABLES = 256, 2
#: Words that are compared at once.
_BLOCK = 16
#: Maximum number of least words that are kept sorted in one pass.
_LEAST = 128


@dataclass(frozen=True)
class Words:
    """Keys of ``bits`` bits with their positions."""

    bits: int

    @property
    def arrays(self) -> tuple[str, ...]:
        """The element type of each array: of words, or of keys and positions."""
        return ("i64", "i32") if self.bits == 64 else ("i64",)

    @property
    def shift(self) -> int:
        """The first bit of the key in a word."""
        return 0 if self.bits == 64 else 32

    @property
    def bytes(self) -> int:
        """The bytes of a word."""
        return 12 if self.bits == 64 else 8

    def keeps_least(self, first: int, count: int) -> bool:
        """Whether to select the least ``first`` of ``count`` words instead of sorting all."""
        return self.bits < 64 and first <= _LEAST and first * first <= 4 * count

    @property
    def name(self) -> str:
        return f"kcache_sort_{self.bits}"

    @property
    def few_name(self) -> str:
        return f"kcache_sort_few_{self.bits}"

    @property
    def least_name(self) -> str:
        return f"kcache_least_{self.bits}"


def sort_text(words: Words) -> str:
    """``kcache_sort_W(from..., to..., n) -> i1``: sorts; returns whether the result is in ``to``."""
    arrays = [f"{side}{number}" for side in ("from", "to") for number in range(len(words.arrays))]
    arguments = [*((name, _POINTER) for name in arrays), ("n", "i64")]
    code = Code(words.name, arguments, "i1", small=False)
    digits = words.bits // 8
    table = code.stack(_TABLES * digits * DIGITS, "i32")
    with code.loop(0, _TABLES * digits * DIGITS) as values:
        code.store(code.const(0, "i32"), code.at(table, values.counter, "i32"), "i32", 4)
    _count_digits(code, words, table)
    places = [(f"%{name}", _POINTER) for name in arrays]
    start = [*places, (code.const(0, "i1"), "i1")]
    with code.loop(0, digits, carried=start) as digit:
        *buffers, moved = digit.carried
        counts = code.at(table, code.mul(digit.counter, _TABLES * DIGITS), "i32")
        shift = code.add(code.mul(digit.counter, 8), words.shift)
        half = len(words.arrays)
        key = code.load(buffers[0])
        value = digit_of(code, key, shift)
        count = widened(code, code.load(code.at(counts, value, "i32"), "i32", 4))
        odd_count = code.load(code.at(counts, code.add(value, DIGITS), "i32"), "i32", 4)
        common = code.compare("eq", code.add(count, widened(code, odd_count)), "%n")
        differs = code.op(f"arith.xori {common}, {code.const(1, 'i1')} : i1")
        with code.when(differs):
            _starts(code, counts)
            _distribute(code, words, buffers[:half], buffers[half:], counts, shift)
        swapped = [*buffers[half:], *buffers[:half]]
        digit.following = [
            *(code.choose(common, a, b, _POINTER) for a, b in zip(buffers, swapped, strict=True)),
            code.op(f"arith.xori {moved}, {differs} : i1"),
        ]
    return code.text(f"{digit.results[-1]} : i1")


def digit_of(code: Code, key: Name, shift: Name) -> Name:
    return code.bits(code.op(f"arith.shrui {key}, {shift} : i64"), DIGITS - 1)


def widened(code: Code, number: Name) -> Name:
    return code.op(f"arith.extui {number} : i32 to i64")


def _count_digits(code: Code, words: Words, table: Name) -> None:
    """Emit the histograms of all digits, separate for words at even and odd positions."""

    def note(place: Name, odd: int) -> None:
        key = code.load(code.at("%from0", place, "i64"))
        for digit in range(words.bits // 8):
            value = digit_of(code, key, code.const(words.shift + 8 * digit))
            at = code.at(table, code.add(value, (_TABLES * digit + odd) * DIGITS), "i32")
            count = code.load(at, "i32", 4)
            code.store(code.op(f"arith.addi {count}, {code.const(1, 'i32')} : i32"), at, "i32", 4)

    even = code.sub("%n", code.bits("%n", 1))
    with code.loop(0, even, 2) as pair:
        note(pair.counter, 0)
        note(code.add(pair.counter, 1), 1)
    with code.loop(even, "%n") as last:
        note(last.counter, 0)


def _starts(code: Code, counts_start: Name) -> None:
    """Replace the histogram of a digit by its exclusive prefix sums."""
    with code.loop(0, DIGITS, carried=[(code.const(0, "i32"), "i32")]) as value:
        at = code.at(counts_start, value.counter, "i32")
        counts = [
            code.load(address, "i32", 4)
            for address in (at, code.at(counts_start, code.add(value.counter, DIGITS), "i32"))
        ]
        total = code.op(f"arith.addi {counts[0]}, {counts[1]} : i32")
        code.store(value.carried[0], at, "i32", 4)
        value.following = [code.op(f"arith.addi {value.carried[0]}, {total} : i32")]


def _distribute(
    code: Code, words: Words, sources: Sequence[Name], targets: Sequence[Name], starts: Name, shift: Name
) -> None:
    with code.loop(0, "%n") as word:
        parts = [
            code.load(code.at(source, word.counter, kind), kind, 4)
            for source, kind in zip(sources, words.arrays, strict=True)
        ]
        at = code.at(starts, digit_of(code, parts[0], shift), "i32")
        place = code.load(at, "i32", 4)
        code.store(code.op(f"arith.addi {place}, {code.const(1, 'i32')} : i32"), at, "i32", 4)
        wide = widened(code, place)
        for target, part, kind in zip(targets, parts, words.arrays, strict=True):
            code.store(part, code.at(target, wide, kind), kind, 4)


def counted_text(words: Words) -> str:
    """``kcache_sort_few_64(from0, from1, to0, to1, n)``: sorts to ``to`` by counting smaller keys."""
    half = len(words.arrays)
    arrays = [f"{side}{number}" for side in ("from", "to") for number in range(half)]
    code = Code(words.few_name, [*((name, _POINTER) for name in arrays), ("n", "i64")], small=False)
    with code.loop(0, "%n") as word:
        key = code.load(code.at("%from0", word.counter, "i64"))
        with code.loop(0, "%n", carried=[(code.const(0), "i64")]) as others:
            other_key = code.load(code.at("%from0", others.counter, "i64"))
            is_less = code.op(f"arith.cmpi ult, {other_key}, {key} : i64")
            earlier = code.compare("slt", others.counter, word.counter)
            is_less = code.either(is_less, code.both(code.compare("eq", other_key, key), earlier))
            others.following = [code.add(others.carried[0], code.op(f"arith.extui {is_less} : i1 to i64"))]
        for number, kind in enumerate(words.arrays):
            part = code.load(code.at(f"%from{number}", word.counter, kind), kind, 4)
            code.store(part, code.at(f"%to{number}", others.results[0], kind), kind, 4)
    return code.text()


def least_text(words: Words) -> str:
    """``kcache_least_W(from, to, n, k)``: the ``k`` least of ``n`` words, ``k <= n``, sorted, in ``to``."""
    arguments = [("from0", _POINTER), ("to0", _POINTER), ("n", "i64"), ("k", "i64")]
    code = Code(words.least_name, arguments, small=False)
    with code.loop(0, "%k") as first:
        code.store(code.const(-1), code.at("%to0", first.counter, "i64"))
    last = code.at("%to0", code.sub("%k", 1), "i64")
    block_end = code.sub("%n", code.bits("%n", _BLOCK - 1))
    block, mask = f"vector<{_BLOCK}xi64>", f"i{_BLOCK}"
    none, mask_one = code.const(0, mask), code.const(1, mask)
    with code.loop(0, block_end, _BLOCK) as blocks:
        start = code.at("%from0", blocks.counter, "i64")
        limit = spread(code, code.load(last), "i64", _BLOCK)
        is_less = code.op(f"arith.cmpi ult, {code.load(start, block)}, {limit} : {block}")
        candidates = code.op(f"llvm.bitcast {is_less} : vector<{_BLOCK}xi1> to {mask}")
        remaining, has_more = code.fresh(), code.fresh()
        code.do(f"scf.while ({remaining} = {candidates}) : ({mask}) -> {mask} {{")
        code.do(f"{has_more} = arith.cmpi ne, {remaining}, {none} : {mask}")
        code.do(f"scf.condition({has_more}) {remaining} : {mask}\n  }} do {{\n  ^bb0({remaining}: {mask}):")
        lane = code.op(f'"llvm.intr.cttz"({remaining}) <{{is_zero_poison = false}}> : ({mask}) -> {mask}')
        place = code.op(f"arith.extui {lane} : {mask} to i64")
        _keep(code, code.load(code.at(start, place, "i64")), last)
        next_remaining = code.op(
            f"arith.andi {remaining}, {code.op(f'arith.subi {remaining}, {mask_one} : {mask}')} : {mask}"
        )
        code.do(f"scf.yield {next_remaining} : {mask}\n  }}")
    with code.loop(block_end, "%n") as single:
        _keep(code, code.load(code.at("%from0", single.counter, "i64")), last)
    return code.text()


def _keep(code: Code, word: Name, last: Name) -> None:
    """Insert ``word`` into the least words, if it is one of them."""
    with code.when(code.op(f"arith.cmpi ult, {word}, {code.load(last)} : i64")):
        end = code.sub("%k", 1)
        spot, at, go, from_ = (code.fresh() for _ in range(4))
        code.do(f"{spot} = scf.while ({at} = {end}) : (i64) -> i64 {{")
        has_previous = code.compare("sgt", at, 0)
        code.do(f"{go} = scf.if {has_previous} -> (i1) {{")
        previous_word = code.load(code.at("%to0", code.sub(at, 1), "i64"))
        later = code.op(f"arith.cmpi ugt, {previous_word}, {word} : i64")
        code.do(f"scf.yield {later} : i1\n  }} else {{\n  scf.yield {code.const(0, 'i1')} : i1\n  }}")
        code.do(f"scf.condition({go}) {at} : i64\n  }} do {{\n  ^bb0({from_}: i64):")
        previous = code.sub(from_, 1)
        code.store(code.load(code.at("%to0", previous, "i64")), code.at("%to0", from_, "i64"))
        code.do(f"scf.yield {previous} : i64\n  }}")
        code.store(word, code.at("%to0", spot, "i64"))
