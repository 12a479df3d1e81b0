"""Which dims are one size: union-find, products, and the symbols that come of them.

A *dim* is a number. Dims that must agree are one class. A class that an argument's axis is in is a symbol;
a class may be the product of others, as a reshape says; a class that neither an argument nor a product
determines, and every class that some operation *pins*, keeps its size.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.shapes.monomial import MAX_SYMBOLS, monomial
from kcache_compiler.spec.graph.nodes import DYNAMIC

#: (argument, axis)
Place = tuple[int, int]

#: Coefficient and base classes: a class as a product.
_Product = tuple[int, tuple[int, ...]]

#: Dims in, dims out.
_Equation = tuple[tuple[int, ...], tuple[int, ...]]

_MAX_FACTORS = 8


class Solver:
    """The dims of one program."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        #: Size in this program of each class (``DYNAMIC`` where it is open), by root.
        self._size: list[int] = []
        self._pinned: list[bool] = []
        self._place: list[Place | None] = []
        self._products: list[_Equation] = []
        self._symbols: dict[int, int] = {}
        #: root -> the classes that it is the product of
        self._defined: dict[int, list[int]] = {}

    def copy(self) -> Solver:
        """Return a solver that knows what this one does, before it solves anything."""
        other = Solver()
        other._parent, other._size, other._pinned = self._parent[:], self._size[:], self._pinned[:]
        other._place, other._products = self._place[:], self._products[:]
        return other

    # -- what the rules say

    def new(self, size: int) -> int:
        """Return a new dim of this size. Sizes 0 and 1 are never erased."""
        return self.shape((size,))[0]

    def shape(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return a new dim for each size."""
        first = len(self._parent)
        dims = range(first, first + len(sizes))
        self._parent.extend(dims)
        self._size.extend(sizes)
        self._pinned.extend([size in (0, 1) for size in sizes])
        self._place.extend([None] * len(sizes))
        return tuple(dims)

    def size(self, dim: int) -> int:
        """Return the size of a dim in this program, as far as it is known by now."""
        return self._size[self.root(dim)]

    def read_from(self, dim: int, place: Place) -> None:
        """Say that a dim is an axis of an argument."""
        self._place[self.root(dim)] = place

    def root(self, dim: int) -> int:
        """Return the representative of a dim's class."""
        parent = self._parent
        while parent[dim] != dim:
            parent[dim] = parent[parent[dim]]
            dim = parent[dim]
        return dim

    def union(self, a: int, b: int) -> None:
        """Say that two dims agree. Those whose sizes differ keep them: the program is not what it says."""
        a, b = self.root(a), self.root(b)
        if a == b:
            return
        size, pinned, place = self._size, self._pinned, self._place
        if size[a] != size[b] and DYNAMIC not in (size[a], size[b]):
            pinned[a] = pinned[b] = True
            return
        self._parent[b] = a
        pinned[a] = pinned[a] or pinned[b]
        if size[a] == DYNAMIC:
            size[a] = size[b]
        mine, other = place[a], place[b]
        if other is not None:
            place[a] = other if mine is None else min(mine, other)
        inherited = self._defined.pop(b, None)
        if inherited is not None:
            self._defined.setdefault(a, inherited)

    def pin(self, *dims: int) -> None:
        """Say that dims keep their sizes, and what they are products of."""
        for dim in dims:
            root = self.root(dim)
            self._pinned[root] = True
            self.pin(*self._defined.pop(root, ()))

    def product(self, ins: Sequence[int], outs: Sequence[int]) -> None:
        """Say that two lists of dims have the same product."""
        self._products.append((tuple(ins), tuple(outs)))

    # -- what follows

    def solve(self) -> tuple[list[Place], list[int]]:
        """Settle all products; return, for each symbol, where it is read from and its size."""
        pending: list[_Equation] = self._products
        while pending:
            left: list[_Equation] = [found for found in pending if not self._settle(*found)]
            if len(left) == len(pending):
                if self._joined(left):
                    continue
                self._pin_stuck(left)
                left = [found for found in left if not self._settle(*found)]
                if len(left) == len(pending):
                    dims = [dim for ins, outs in left for dim in (*ins, *outs)]
                    self.pin(*(dim for dim in dims if self._expression(dim) is None))
            pending = left
        self._products = []
        self._pin_factors()
        return self._number()

    def _joined(self, pending: Sequence[_Equation]) -> bool:
        """Make one of products that are one open class, merged and split again; whether any were apart."""
        known: dict[int, tuple[int, ...]] = {}
        joined = False
        for ins, outs in pending:
            for one, other in ((ins, outs), (outs, ins)):
                if len(one) != 1:
                    continue
                first = known.setdefault(self.root(one[0]), other)
                apart = self._elements(first) != self._elements(other)
                joined = (apart and self._same_in_order(first, other)) or joined
        return joined

    def _pin_factors(self) -> None:
        """A product that keeps its size has factors that keep theirs."""
        for root, parts in self._defined.items():
            found = self._multiplied(parts) if self._pinned[root] and self._size[root] != DYNAMIC else None
            if found is not None:
                self.pin(*found[1])

    def _number(self) -> tuple[list[Place], list[int]]:
        bases: dict[int, None] = {}
        for dim, parent in enumerate(self._parent):
            if dim == parent and self._place[dim] is not None and self._is_base(dim):
                bases[dim] = None
        placed = [(place, root) for root in bases if (place := self._place[root]) is not None]
        placed.sort()
        for _, root in placed[MAX_SYMBOLS:]:
            self._pinned[root] = True
        self._symbols = {root: index for index, (_, root) in enumerate(placed[:MAX_SYMBOLS])}
        return [place for place, _ in placed[:MAX_SYMBOLS]], [
            self._size[root] for _, root in placed[:MAX_SYMBOLS]
        ]

    def codes(self) -> list[int]:
        """Return the sizes of all dims after ``solve``: numbers, or monomials of symbols."""
        roots = [self.root(dim) for dim in self._parent]
        known = {root: self._code(root) for root in set(roots)}
        return [known[root] for root in roots]

    def _code(self, root: int) -> int:
        found = self._expression(root)
        if found is None:
            return self._size[root]
        coefficient, roots = found
        code = monomial(coefficient, [self._symbols[base] for base in roots])
        assert code is not None
        return code

    def _is_base(self, root: int) -> bool:
        return (not self._pinned[root] or self._size[root] == DYNAMIC) and root not in self._defined

    def _expression(self, root: int) -> _Product | None:
        """Return a class as a product of base classes; None when nothing determines it."""
        root = self.root(root)
        if self._pinned[root] and self._size[root] != DYNAMIC:
            return self._size[root], ()
        parts = self._defined.get(root)
        if parts is not None:
            return self._multiplied(parts)
        return (1, (root,)) if self._place[root] is not None else None

    def _multiplied(self, roots: Sequence[int]) -> _Product | None:
        coefficient, bases = 1, list[int]()
        for root in roots:
            found = self._expression(root)
            if found is None:
                return None
            coefficient *= found[0]
            bases += found[1]
        return coefficient, tuple(bases)

    def _settle(self, ins: tuple[int, ...], outs: tuple[int, ...]) -> bool:
        """Draw what follows from one product; false while it says too little."""
        left, right = self._without_common(ins, outs)
        if not left and not right:
            return True
        if any(self._size[root] == DYNAMIC for root in (*left, *right)):
            return True
        known = [self._multiplied(side) for side in (left, right)]
        if known[0] is not None and known[1] is not None:
            self._compare(left, right, known[0], known[1])
            return True
        if known[0] is None and known[1] is None:
            return False
        determined, open_side = (left, right) if known[1] is None else (right, left)
        whole = known[0] if known[1] is None else known[1]
        assert whole is not None
        return self._match(whole, determined, open_side)

    def _without_common(self, ins: Sequence[int], outs: Sequence[int]) -> tuple[list[int], list[int]]:
        left, right = [self.root(d) for d in ins], [self.root(d) for d in outs]
        for root in list(left):
            if root in right:
                left.remove(root)
                right.remove(root)
        return left, right

    def _compare(self, left: list[int], right: list[int], a: _Product, b: _Product) -> None:
        """Both sides are known: equal, or one is an argument's axis that the other defines, or pinned."""
        if a[0] == b[0] and sorted(a[1]) == sorted(b[1]):
            return
        for side, other, (_, bases) in ((left, right, b), (right, left, a)):
            if len(side) == 1 and self._is_base(side[0]) and side[0] not in bases and bases:
                self._define(side[0], other)
                return
        if self._same_in_order(left, right):
            return
        if len(a[1]) == len(b[1]) and all(
            self._size[x] == self._size[y] for x, y in zip(a[1], b[1], strict=True)
        ):
            for x, y in zip(a[1], b[1], strict=True):
                self.union(x, y)
            if a[0] == b[0]:
                return
        self.pin(*a[1], *b[1])

    def _same_in_order(self, left: Sequence[int], right: Sequence[int]) -> bool:
        """Make one of the elements of two products, where their sizes agree in order; whether they do."""
        these, those = self._elements(left), self._elements(right)
        if [self._size[root] for root in these] != [self._size[root] for root in those]:
            return False
        for x, y in zip(these, those, strict=True):
            self.union(x, y)
        return True

    def _elements(self, roots: Sequence[int]) -> list[int]:
        """Return the classes that a product is of, in order, those that keep their sizes among them."""
        found: list[int] = []
        for root in map(self.root, roots):
            parts = None if self._pinned[root] else self._defined.get(root)
            found += [root] if parts is None else self._elements(parts)
        return found

    def _define(self, root: int, parts: Sequence[int]) -> None:
        found = self._multiplied(parts)
        if found is None or len(found[1]) > _MAX_FACTORS:
            self.pin(root, *(found[1] if found else ()))
            return
        if len(parts) == 1:
            self.union(root, parts[0])
        else:
            self._defined[root] = list(parts)

    def _match(self, whole: _Product, determined: list[int], open_side: list[int]) -> bool:
        """Give the open classes of one side the factors of the other that have their sizes."""
        if self._same_in_order(determined, open_side):
            return True
        coefficient, rest = whole[0], list(whole[1])
        unknown: list[int] = []
        for root in open_side:
            found = self._expression(root)
            if found is None:
                unknown.append(root)
                continue
            if not found[1] and coefficient % found[0]:
                base = next((b for b in rest if self._size[b] == found[0]), None)
                if base is None:
                    return False
                rest.remove(base)
                self.union(base, root)
                continue
            if not found[1]:
                coefficient //= found[0]
                continue
            if all(found[1].count(base) <= rest.count(base) for base in found[1]):
                for base in found[1]:
                    rest.remove(base)
            elif len(found[1]) == 1 and found[0] == 1:
                unknown.append(root)
            else:
                return False
        if len(unknown) == 1 and (len(rest) > 1 or len(open_side) == 1):
            return self._rest(unknown[0], rest, determined, open_side)
        for root in list(unknown):
            base = next((b for b in rest if self._size[b] == self._size[root]), None)
            if base is not None:
                rest.remove(base)
                unknown.remove(root)
                self.union(base, root)
        if not rest:
            self.pin(*unknown)
        return not rest

    def _rest(self, root: int, rest: list[int], determined: list[int], open_side: list[int]) -> bool:
        """One open class is what the others leave."""
        if len(open_side) == 1:
            self._define(root, determined)
            return True
        size = 1
        for base in rest:
            size *= self._size[base]
        if size == self._size[root] and len(rest) <= _MAX_FACTORS:
            self._define(root, rest)
            return True
        coefficient, odd = divmod(self._size[root], size)
        if odd:
            return False
        constant = self.new(coefficient)
        self.pin(constant)
        self._define(root, [constant, *rest])
        return True

    def _pin_stuck(self, pending: Sequence[_Equation]) -> None:
        """Pin what a split takes apart that nothing else does: open classes beside determined ones."""
        stuck: list[int] = []
        for ins, outs in pending:
            left, right = self._without_common(ins, outs)
            known = [self._multiplied(side) for side in (left, right)]
            if (known[0] is None) != (known[1] is None):
                whole = known[0] or known[1]
                assert whole is not None
                stuck += [*whole[1], *(root for root in (*left, *right) if self._expression(root) is None)]
        self.pin(*stuck)
