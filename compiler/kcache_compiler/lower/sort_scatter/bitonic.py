"""A bitonic sorting network for unsigned integers, on vectors of 64 bytes.

Pairs of vectors are sorted in registers. Then pairs of sorted runs are merged: the second is compared in
reverse order with the first, then halves, quarters and so on are compared, the last ones in registers. The
number of vectors need not be a power of two: absent elements would be the largest, which no comparison moves,
so comparisons with them are omitted.
"""

from __future__ import annotations

from collections.abc import Callable

from kcache_compiler.mlir.text_builder import Code, Name

#: Vectors of a block, whose comparisons are made in registers.
_VECTORS = 8
#: Elements to a multiple of which a buffer is padded.
PADDING = 128
#: Bytes within which an instruction permutes vectors fast.
_FAST = 16


def network_name(bits: int) -> str:
    return f"kcache_network_{bits}"


def network_text(bits: int) -> str:
    """``kcache_network_B(from, n)``: sorts ``n`` integers of ``bits`` bits, 32 or 64, in place.

    The buffer holds the next multiple of ``PADDING``.
    """
    code = Code(network_name(bits), [("from0", "!llvm.ptr"), ("n", "i64")], small=False)
    _Network(code, bits).sort()
    return code.text()


class _Network:
    """Emits a bitonic sorting network of integers of ``bits`` bits in vectors of 512 bits."""

    def __init__(self, code: Code, bits: int) -> None:
        self.code, self.bits = code, bits
        self.lanes = 512 // bits
        self.element, self.vector = f"i{bits}", f"vector<{512 // bits}xi{bits}>"

    def sort(self) -> None:
        code = self.code
        with code.when(code.compare("sle", "%n", self.lanes)):
            self._pad(code.const(self.lanes))
            self._update(code.const(0), 1, self._sort_vector)
        with code.otherwise():
            self._sort_pairs()

    def _sort_pairs(self) -> None:
        code, lanes = self.code, self.lanes
        block = _VECTORS * lanes
        is_long = code.compare("sgt", "%n", block)
        size = code.choose(is_long, code.roundup("%n", block), code.roundup("%n", 2 * lanes))
        self._pad(size)
        with code.loop(0, size, 2 * lanes) as pairs:
            self._update(pairs.counter, 2, self._sort_pair)
        zeros = code.op(f'"llvm.intr.ctlz"({code.sub(size, 1)}) <{{is_zero_poison = false}}> : (i64) -> i64')
        levels = code.sub(code.const(64), zeros)
        middle = code.min(levels, block.bit_length() - 1)
        self._merges(size, ((2 * lanes).bit_length() - 1, middle), 2)
        self._merges(size, (middle, levels), _VECTORS)

    def _merges(self, size: Name, levels: tuple[Name | int, Name], vectors: int) -> None:
        """Emit merges of runs of 2**level elements, finished in blocks of this many ``vectors``."""
        code, block = self.code, vectors * self.lanes
        with code.loop(*levels) as level:
            self._compare_reversed(size, self._power(level.counter))
            with code.loop(0, code.sub(level.counter, block.bit_length() - 1)) as halved:
                self._compare_at_distance(
                    size, self._power(code.sub(code.sub(level.counter, 1), halved.counter))
                )
            with code.loop(0, size, block) as blocks:
                self._update(blocks.counter, vectors, self._sort_bitonic)

    def _pad(self, size: Name) -> None:
        code, largest = self.code, self.code.const(-1, self.element)
        with code.loop("%n", size) as padding:
            code.store(largest, self._at(padding.counter), self.element, self.bits // 8)

    def _power(self, exponent: Name) -> Name:
        return self.code.op(f"arith.shli {self.code.const(1)}, {exponent} : i64")

    def _at(self, place: Name) -> Name:
        return self.code.at("%from0", place, self.element)

    def _load(self, place: Name) -> Name:
        return self.code.load(self._at(place), self.vector)

    def _update(self, start: Name, count: int, change: Callable[[list[Name]], list[Name]]) -> None:
        """Replace ``count`` vectors from ``start`` on."""
        places = [self.code.add(start, number * self.lanes) for number in range(count)]
        for place, vector in zip(places, change([self._load(place) for place in places]), strict=True):
            self.code.store(vector, self._at(place), self.vector)

    def _shuffle(self, a: Name, b: Name, lanes: list[int]) -> Name:
        return self.code.op(f"llvm.shufflevector {a}, {b} {lanes} : {self.vector}")

    def _reverse(self, vector: Name) -> Name:
        return self._shuffle(vector, vector, list(reversed(range(self.lanes))))

    def _compare(self, a: Name, b: Name) -> list[Name]:
        code, vector = self.code, self.vector
        return [code.op(f"arith.{name} {a}, {b} : {vector}") for name in ("minui", "maxui")]

    def _exchange(self, pair: list[Name], masks: list[int]) -> list[Name]:
        """Return two vectors, in each of which lanes i and i ^ mask are put in order, for every mask in turn.

        The vectors are rearranged so that one has all first lanes and the other all second ones.
        """
        lanes, whole = self.lanes, 2 * self.lanes
        #: The vector and lane, as one number, that each lane of the rearranged vectors stands for.
        origins = list(range(whole))
        for mask in masks:
            bit = 1 << (mask.bit_length() - 1)
            part = lanes if bit * self.bits >= 8 * _FAST else 8 * _FAST // self.bits
            firsts = [
                place
                for start in range(0, lanes, part)
                for side in (0, lanes)
                for place in range(side + start, side + start + part)
                if not origins[place] & bit
            ]
            seconds = [origins.index(origins[place] ^ mask) for place in firsts]
            first, second = pair
            pair = self._compare(self._shuffle(first, second, firsts), self._shuffle(first, second, seconds))
            origins = [origins[place] for place in firsts + seconds]
        back = [origins.index(place) for place in range(whole)]
        first, second = pair
        return [self._shuffle(first, second, side) for side in (back[:lanes], back[lanes:])]

    def _masks(self) -> list[int]:
        """The masks of the exchanges that sort each vector of a pair."""
        runs = reversed(_distances(self.lanes)[:-1])
        return [mask for run in runs for mask in (run - 1, *_distances(run // 4))]

    def _sort_vector(self, vectors: list[Name]) -> list[Name]:
        """Return one vector, sorted."""
        (vector,), lanes = vectors, range(self.lanes)
        for mask in self._masks():
            other = self._shuffle(vector, vector, [lane ^ mask for lane in lanes])
            sides = [lane if lane < lane ^ mask else self.lanes + lane for lane in lanes]
            smaller, larger = self._compare(vector, other)
            vector = self._shuffle(smaller, larger, sides)
        return [vector]

    def _sort_pair(self, pair: list[Name]) -> list[Name]:
        """Return two vectors, sorted as one sequence."""
        low, high = self._exchange(pair, self._masks())
        return self._exchange(self._compare(low, self._reverse(high)), _distances(self.lanes // 2))

    def _sort_bitonic(self, vectors: list[Name]) -> list[Name]:
        """Return vectors that are a bitonic sequence, sorted."""
        for distance in _distances(len(vectors) // 2):
            for low in range(len(vectors)):
                if not low & distance:
                    high = low + distance
                    vectors[low], vectors[high] = self._compare(vectors[low], vectors[high])
        masks = _distances(self.lanes // 2)
        pairs = [self._exchange(vectors[first : first + 2], masks) for first in range(0, len(vectors), 2)]
        return [vector for pair in pairs for vector in pair]

    def _compare_reversed(self, size: Name, half: Name) -> None:
        """Emit comparisons of elements i and n - 1 - i of runs of n = 2 ``half`` elements."""
        code = self.code
        width = code.add(half, half)
        with code.loop(0, code.div(code.add(size, code.sub(half, 1)), width)) as run:
            start = code.mul(run.counter, width)
            end = code.add(start, width)
            with code.loop(code.max(code.sub(end, size), 0), half, self.lanes) as pairs:
                low = code.add(start, pairs.counter)
                high = code.sub(code.sub(end, self.lanes), pairs.counter)
                smaller, larger = self._compare(self._load(low), self._reverse(self._load(high)))
                code.store(smaller, self._at(low), self.vector)
                code.store(self._reverse(larger), self._at(high), self.vector)

    def _compare_at_distance(self, size: Name, stride: Name) -> None:
        """Emit comparisons of elements that are ``stride`` apart, in runs of twice as many."""
        code = self.code
        width = code.add(stride, stride)
        with code.loop(0, code.div(code.add(size, code.sub(stride, 1)), width)) as run:
            start = code.mul(run.counter, width)
            second = code.add(start, stride)
            with code.loop(0, code.min(stride, code.sub(size, second)), self.lanes) as pairs:
                low, high = code.add(start, pairs.counter), code.add(second, pairs.counter)
                smaller, larger = self._compare(self._load(low), self._load(high))
                code.store(smaller, self._at(low), self.vector)
                code.store(larger, self._at(high), self.vector)


def _distances(largest: int) -> list[int]:
    """Powers of two from ``largest`` down to 1; none if it is 0."""
    return [1 << bit for bit in reversed(range(largest.bit_length()))]
