"""A bitonic sorting network for a few words, on vectors of eight.

Pairs of sorted blocks are merged: the second is compared in reverse order with the first, then halves,
quarters and so on are compared.
"""

from __future__ import annotations

from kcache_compiler.lower.sort_scatter.radix import Words
from kcache_compiler.mlir.text_builder import Code, Name

_LANES = 8
_VECTOR = f"vector<{_LANES}xi64>"
#: Maximum number of words, and the bits of a lane number.
FEW, _LANE_BITS = 512, 3
#: Masks m of exchanges of lane i with lane i ^ m: those that sort any vector, and a bitonic one.
_SORT, _MERGE = (1, 3, 1, 7, 2, 1), (4, 2, 1)


def network_text(words: Words) -> str:
    """``kcache_sort_few_W(from, n)``: sorts ``n`` words in place; the buffer holds the next power of two."""
    code = Code(words.few_name, [("from0", "!llvm.ptr"), ("n", "i64")], small=False)
    zeros = code.op(f'"llvm.intr.ctlz"({code.sub("%n", 1)}) <{{is_zero_poison = false}}> : (i64) -> i64')
    bits = code.max(code.sub(code.const(64), zeros), _LANE_BITS)
    size = _power(code, bits)
    with code.loop("%n", size) as padding:
        code.store(code.const(-1), _at(code, padding.counter))
    _each_vector(code, size, _SORT)
    with code.loop(_LANE_BITS + 1, code.add(bits, 1)) as doubled:
        _reversed(code, size, doubled.counter)
        with code.loop(0, code.sub(doubled.counter, _LANE_BITS + 1)) as halved:
            stride = code.sub(code.sub(doubled.counter, 2), halved.counter)
            _apart(code, size, stride)
        _each_vector(code, size, _MERGE)
    return code.text()


def _power(code: Code, bits: Name) -> Name:
    return code.op(f"arith.shli {code.const(1)}, {bits} : i64")


def _at(code: Code, place: Name) -> Name:
    return code.at("%from0", place, "i64")


def _shuffled(code: Code, a: Name, b: Name, lanes: list[int]) -> Name:
    return code.op(f"llvm.shufflevector {a}, {b} {lanes} : {_VECTOR}")


def _each_vector(code: Code, size: Name, exchanges: tuple[int, ...]) -> None:
    """Emit exchanges within each vector."""
    with code.loop(0, size, _LANES) as vectors:
        at = _at(code, vectors.counter)
        vector = code.load(at, _VECTOR)
        for mask in exchanges:
            exchanged = _shuffled(code, vector, vector, [lane ^ mask for lane in range(_LANES)])
            smaller, larger = _pair(code, vector, exchanged)
            lanes = [lane if lane < lane ^ mask else _LANES + lane for lane in range(_LANES)]
            vector = _shuffled(code, smaller, larger, lanes)
        code.store(vector, at, _VECTOR)


def _pair(code: Code, a: Name, b: Name) -> tuple[Name, Name]:
    return code.op(f"arith.minui {a}, {b} : {_VECTOR}"), code.op(f"arith.maxui {a}, {b} : {_VECTOR}")


def _reversed(code: Code, size: Name, bits: Name) -> None:
    """Emit exchanges of words i and n - 1 - i in blocks of n = ``2**bits`` words."""
    width = _power(code, bits)
    backwards = list(reversed(range(_LANES)))
    with code.loop(0, code.op(f"arith.shrui {size}, {bits} : i64")) as block:
        start = code.op(f"arith.shli {block.counter}, {bits} : i64")
        end = code.sub(code.add(start, width), _LANES)
        with code.loop(0, code.div(width, 2), _LANES) as pairs:
            low, high = _at(code, code.add(start, pairs.counter)), _at(code, code.sub(end, pairs.counter))
            last = code.load(high, _VECTOR)
            smaller, larger = _pair(code, code.load(low, _VECTOR), _shuffled(code, last, last, backwards))
            code.store(smaller, low, _VECTOR)
            code.store(_shuffled(code, larger, larger, backwards), high, _VECTOR)


def _apart(code: Code, size: Name, bits: Name) -> None:
    """Emit exchanges of words that are ``2**bits`` apart, in blocks of twice as many."""
    stride, twice = _power(code, bits), code.add(bits, 1)
    with code.loop(0, code.op(f"arith.shrui {size}, {twice} : i64")) as block:
        start = code.op(f"arith.shli {block.counter}, {twice} : i64")
        with code.loop(0, stride, _LANES) as pairs:
            first = code.add(start, pairs.counter)
            low, high = _at(code, first), _at(code, code.add(first, stride))
            smaller, larger = _pair(code, code.load(low, _VECTOR), code.load(high, _VECTOR))
            code.store(smaller, low, _VECTOR)
            code.store(larger, high, _VECTOR)
