"""Sorting unsigned integers that carry a place, as functions in LLVM's dialect beside the launches.

A *word* is a key above the place of its element in the row, so words differ, and their order is the stable
order of the keys. Keys of 64 bits have their places in an array of their own. Words are sorted by digits of
8 bits from the lowest on, leaving out digits that all have in common; a few words by a network
(``network.py``), or by counting for each how many are less. The first few of many are kept sorted while the
words pass by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kcache_compiler.lower.gemm.micro_kernel import spread
from kcache_compiler.mlir.text_builder import Code, Name

_POINTER = "!llvm.ptr"
#: Values of a digit; tables of counts, one for every other word, so that equal digits do not wait.
DIGITS, _TABLES = 256, 2
#: Words that are looked at together.
_BLOCK = 16
#: The most words that are kept sorted while the others pass by.
_LEAST = 128


@dataclass(frozen=True)
class Words:
    """Keys of ``bits`` bits with their places."""

    bits: int

    @property
    def arrays(self) -> tuple[str, ...]:
        """What lies in each array: words, or keys and places."""
        return ("i64", "i32") if self.bits == 64 else ("i64",)

    @property
    def shift(self) -> int:
        """Where the key begins in a word."""
        return 0 if self.bits == 64 else 32

    @property
    def bytes(self) -> int:
        """Bytes that a word takes."""
        return 12 if self.bits == 64 else 8

    def keeps_least(self, first: int, count: int) -> bool:
        """Whether to keep the least ``first`` while ``count`` pass by, and not to sort all."""
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
    """``kcache_sort_W(from..., to..., n) -> i1``: sorted in ``from``, or in ``to`` when it says so."""
    arrays = [f"{side}{number}" for side in ("from", "to") for number in range(len(words.arrays))]
    arguments = [*((name, _POINTER) for name in arrays), ("n", "i64")]
    code = Code(words.name, arguments, "i1", small=False)
    digits = words.bits // 8
    table = code.stack(_TABLES * digits * DIGITS, "i32")
    with code.loop(0, _TABLES * digits * DIGITS) as each:
        code.store(code.const(0, "i32"), code.at(table, each.counter, "i32"), "i32", 4)
    _count_digits(code, words, table)
    places = [(f"%{name}", _POINTER) for name in arrays]
    start = [*places, (code.const(0, "i1"), "i1")]
    with code.loop(0, digits, carried=start) as digit:
        *buffers, moved = digit.carried
        mine = code.at(table, code.mul(digit.counter, _TABLES * DIGITS), "i32")
        shift = code.add(code.mul(digit.counter, 8), words.shift)
        half = len(words.arrays)
        key = code.load(buffers[0])
        value = digit_of(code, key, shift)
        count = widened(code, code.load(code.at(mine, value, "i32"), "i32", 4))
        other = code.load(code.at(mine, code.add(value, DIGITS), "i32"), "i32", 4)
        common = code.compare("eq", code.add(count, widened(code, other)), "%n")
        apart = code.op(f"arith.xori {common}, {code.const(1, 'i1')} : i1")
        with code.when(apart):
            _starts(code, mine)
            _distribute(code, words, buffers[:half], buffers[half:], mine, shift)
        swapped = [*buffers[half:], *buffers[:half]]
        digit.following = [
            *(code.choose(common, a, b, _POINTER) for a, b in zip(buffers, swapped, strict=True)),
            code.op(f"arith.xori {moved}, {apart} : i1"),
        ]
    return code.text(f"{digit.results[-1]} : i1")


def digit_of(code: Code, key: Name, shift: Name) -> Name:
    return code.bits(code.op(f"arith.shrui {key}, {shift} : i64"), DIGITS - 1)


def widened(code: Code, number: Name) -> Name:
    return code.op(f"arith.extui {number} : i32 to i64")


def _count_digits(code: Code, words: Words, table: Name) -> None:
    """How often each digit has each value, words of even and of odd places apart."""

    def note(place: Name, odd: int) -> None:
        key = code.load(code.at("%from0", place, "i64"))
        for digit in range(words.bits // 8):
            value = digit_of(code, key, code.const(words.shift + 8 * digit))
            at = code.at(table, code.add(value, (_TABLES * digit + odd) * DIGITS), "i32")
            before = code.load(at, "i32", 4)
            code.store(code.op(f"arith.addi {before}, {code.const(1, 'i32')} : i32"), at, "i32", 4)

    even = code.sub("%n", code.bits("%n", 1))
    with code.loop(0, even, 2) as pair:
        note(pair.counter, 0)
        note(code.add(pair.counter, 1), 1)
    with code.loop(even, "%n") as last:
        note(last.counter, 0)


def _starts(code: Code, mine: Name) -> None:
    """Counts of a digit's values become the places where words with them begin."""
    with code.loop(0, DIGITS, carried=[(code.const(0, "i32"), "i32")]) as value:
        at = code.at(mine, value.counter, "i32")
        counts = [
            code.load(where, "i32", 4)
            for where in (at, code.at(mine, code.add(value.counter, DIGITS), "i32"))
        ]
        total = code.op(f"arith.addi {counts[0]}, {counts[1]} : i32")
        code.store(value.carried[0], at, "i32", 4)
        value.following = [code.op(f"arith.addi {value.carried[0]}, {total} : i32")]


def _distribute(
    code: Code, words: Words, sources: Sequence[Name], targets: Sequence[Name], mine: Name, shift: Name
) -> None:
    with code.loop(0, "%n") as word:
        parts = [
            code.load(code.at(source, word.counter, kind), kind, 4)
            for source, kind in zip(sources, words.arrays, strict=True)
        ]
        at = code.at(mine, digit_of(code, parts[0], shift), "i32")
        place = code.load(at, "i32", 4)
        code.store(code.op(f"arith.addi {place}, {code.const(1, 'i32')} : i32"), at, "i32", 4)
        wide = widened(code, place)
        for target, part, kind in zip(targets, parts, words.arrays, strict=True):
            code.store(part, code.at(target, wide, kind), kind, 4)


def counted_text(words: Words) -> str:
    """``kcache_sort_few_64(from0, from1, to0, to1, n)``: sorted in ``to``, by how many keys are less."""
    half = len(words.arrays)
    arrays = [f"{side}{number}" for side in ("from", "to") for number in range(half)]
    code = Code(words.few_name, [*((name, _POINTER) for name in arrays), ("n", "i64")], small=False)
    with code.loop(0, "%n") as word:
        key = code.load(code.at("%from0", word.counter, "i64"))
        with code.loop(0, "%n", carried=[(code.const(0), "i64")]) as other:
            against = code.load(code.at("%from0", other.counter, "i64"))
            less = code.op(f"arith.cmpi ult, {against}, {key} : i64")
            earlier = code.compare("slt", other.counter, word.counter)
            less = code.either(less, code.both(code.compare("eq", against, key), earlier))
            other.following = [code.add(other.carried[0], code.op(f"arith.extui {less} : i1 to i64"))]
        for number, kind in enumerate(words.arrays):
            part = code.load(code.at(f"%from{number}", word.counter, kind), kind, 4)
            code.store(part, code.at(f"%to{number}", other.results[0], kind), kind, 4)
    return code.text()


def least_text(words: Words) -> str:
    """``kcache_least_W(from, to, n, k)``: the ``k`` least of ``n`` words, ``k <= n``, sorted in ``to``."""
    arguments = [("from0", _POINTER), ("to0", _POINTER), ("n", "i64"), ("k", "i64")]
    code = Code(words.least_name, arguments, small=False)
    with code.loop(0, "%k") as first:
        code.store(code.const(-1), code.at("%to0", first.counter, "i64"))
    last = code.at("%to0", code.sub("%k", 1), "i64")
    whole = code.sub("%n", code.bits("%n", _BLOCK - 1))
    block, mask = f"vector<{_BLOCK}xi64>", f"i{_BLOCK}"
    none, one = code.const(0, mask), code.const(1, mask)
    with code.loop(0, whole, _BLOCK) as each:
        start = code.at("%from0", each.counter, "i64")
        limit = spread(code, code.load(last), "i64", _BLOCK)
        less = code.op(f"arith.cmpi ult, {code.load(start, block)}, {limit} : {block}")
        found = code.op(f"llvm.bitcast {less} : vector<{_BLOCK}xi1> to {mask}")
        left, more = code.fresh(), code.fresh()
        code.do(f"scf.while ({left} = {found}) : ({mask}) -> {mask} {{")
        code.do(f"{more} = arith.cmpi ne, {left}, {none} : {mask}")
        code.do(f"scf.condition({more}) {left} : {mask}\n  }} do {{\n  ^bb0({left}: {mask}):")
        lane = code.op(f'"llvm.intr.cttz"({left}) <{{is_zero_poison = false}}> : ({mask}) -> {mask}')
        place = code.op(f"arith.extui {lane} : {mask} to i64")
        _keep(code, code.load(code.at(start, place, "i64")), last)
        rest = code.op(f"arith.andi {left}, {code.op(f'arith.subi {left}, {one} : {mask}')} : {mask}")
        code.do(f"scf.yield {rest} : {mask}\n  }}")
    with code.loop(whole, "%n") as single:
        _keep(code, code.load(code.at("%from0", single.counter, "i64")), last)
    return code.text()


def _keep(code: Code, word: Name, last: Name) -> None:
    """Put ``word`` among the least so far, if it is one."""
    with code.when(code.op(f"arith.cmpi ult, {word}, {code.load(last)} : i64")):
        end = code.sub("%k", 1)
        spot, at, go, from_ = (code.fresh() for _ in range(4))
        code.do(f"{spot} = scf.while ({at} = {end}) : (i64) -> i64 {{")
        more = code.compare("sgt", at, 0)
        code.do(f"{go} = scf.if {more} -> (i1) {{")
        before = code.load(code.at("%to0", code.sub(at, 1), "i64"))
        later = code.op(f"arith.cmpi ugt, {before}, {word} : i64")
        code.do(f"scf.yield {later} : i1\n  }} else {{\n  scf.yield {code.const(0, 'i1')} : i1\n  }}")
        code.do(f"scf.condition({go}) {at} : i64\n  }} do {{\n  ^bb0({from_}: i64):")
        previous = code.sub(from_, 1)
        code.store(code.load(code.at("%to0", previous, "i64")), code.at("%to0", from_, "i64"))
        code.do(f"scf.yield {previous} : i64\n  }}")
        code.store(word, code.at("%to0", spot, "i64"))
