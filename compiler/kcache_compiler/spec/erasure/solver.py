"""The solver of shape erasure: union-find over dims, product equations, and the symbols that follow.

A *dim* is a number. Dims that are constrained to be equal form a class. A class with an axis of an argument
is a symbol; a class may be the product of others, as reshapes constrain it. A class that neither an argument
nor a product determines, and every class that an operation *pins*, keeps its size.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.shapes.monomial import MAX_SYMBOLS, monomial
from kcache_compiler.spec.graph.nodes import DYNAMIC

#: (argument, axis)
ArgumentAxis = tuple[int, int]

#: Coefficient and base classes: a class as a product.
_Product = tuple[int, tuple[int, ...]]

#: Two lists of dims with the same product.
_Equation = tuple[tuple[int, ...], tuple[int, ...]]

_MAX_FACTORS = 8


class Solver:
    """The dims of one program."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        #: Size of each class in this program, ``DYNAMIC`` if it is unknown, by root.
        self._size: list[int] = []
        self._pinned: list[bool] = []
        self._axis: list[ArgumentAxis | None] = []
        self._products: list[_Equation] = []
        self._symbols: dict[int, int] = {}
        #: Classes whose product a class is, by root.
        self._defined: dict[int, list[int]] = {}

    def copy(self) -> Solver:
        """Return a solver with the same constraints, of one that has not solved any."""
        other = Solver()
        other._parent, other._size, other._pinned = self._parent[:], self._size[:], self._pinned[:]
        other._axis, other._products = self._axis[:], self._products[:]
        return other

    # -- constraints

    def new(self, size: int) -> int:
        """Return a new dim of a size. Sizes 0 and 1 are never erased."""
        return self.shape((size,))[0]

    def shape(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return a new dim for each size."""
        first = len(self._parent)
        dims = range(first, first + len(sizes))
        self._parent.extend(dims)
        self._size.extend(sizes)
        self._pinned.extend([size in (0, 1) for size in sizes])
        self._axis.extend([None] * len(sizes))
        return tuple(dims)

    def size(self, dim: int) -> int:
        """Return the size of a dim in this program, as far as constraints determine it so far."""
        return self._size[self.root(dim)]

    def set_argument_axis(self, dim: int, axis: ArgumentAxis) -> None:
        """Record that a dim is an axis of an argument."""
        self._axis[self.root(dim)] = axis

    def root(self, dim: int) -> int:
        """Return the representative of a dim's class."""
        parent = self._parent
        while parent[dim] != dim:
            parent[dim] = parent[parent[dim]]
            dim = parent[dim]
        return dim

    def union(self, a: int, b: int) -> None:
        """Constrain two dims to be equal; dims whose sizes differ, in an invalid program, are pinned."""
        a, b = self.root(a), self.root(b)
        if a == b:
            return
        size, pinned, axis = self._size, self._pinned, self._axis
        if size[a] != size[b] and DYNAMIC not in (size[a], size[b]):
            pinned[a] = pinned[b] = True
            return
        self._parent[b] = a
        pinned[a] = pinned[a] or pinned[b]
        if size[a] == DYNAMIC:
            size[a] = size[b]
        own, other = axis[a], axis[b]
        if other is not None:
            axis[a] = other if own is None else min(own, other)
        inherited = self._defined.pop(b, None)
        if inherited is not None:
            self._defined.setdefault(a, inherited)

    def pin(self, *dims: int) -> None:
        """Keep the sizes of dims, and of the dims that they are products of."""
        for dim in dims:
            root = self.root(dim)
            self._pinned[root] = True
            self.pin(*self._defined.pop(root, ()))

    def product(self, ins: Sequence[int], outs: Sequence[int]) -> None:
        """Constrain two lists of dims to have the same product."""
        self._products.append((tuple(ins), tuple(outs)))

    # -- solution

    def solve(self) -> tuple[list[ArgumentAxis], list[int]]:
        """Solve all constraints; return the argument axis of each symbol, and its size."""
        pending: list[_Equation] = self._products
        while pending:
            unsolved = [equation for equation in pending if not self._solve(*equation)]
            if len(unsolved) == len(pending):
                if self._unify_splits(unsolved):
                    continue
                self._pin_undetermined(unsolved)
                unsolved = [equation for equation in unsolved if not self._solve(*equation)]
                if len(unsolved) == len(pending):
                    dims = [dim for ins, outs in unsolved for dim in (*ins, *outs)]
                    self.pin(*(dim for dim in dims if self._expression(dim) is None))
            pending = unsolved
        self._products = []
        self._pin_factors()
        return self._assign_symbols()

    def _unify_splits(self, pending: Sequence[_Equation]) -> bool:
        """Unify the factors of one class that is merged and split again; return whether any were distinct."""
        known: dict[int, tuple[int, ...]] = {}
        changed = False
        for ins, outs in pending:
            for product, parts in ((ins, outs), (outs, ins)):
                if len(product) != 1:
                    continue
                first = known.setdefault(self.root(product[0]), parts)
                differ = self._elements(first) != self._elements(parts)
                changed = (differ and self._unify_in_order(first, parts)) or changed
        return changed

    def _pin_factors(self) -> None:
        """Pin the factors of pinned products."""
        for root, parts in self._defined.items():
            is_static = self._pinned[root] and self._size[root] != DYNAMIC
            product = self._product_of(parts) if is_static else None
            if product is not None:
                self.pin(*product[1])

    def _assign_symbols(self) -> tuple[list[ArgumentAxis], list[int]]:
        bases: dict[int, None] = {}
        for dim, parent in enumerate(self._parent):
            if dim == parent and self._axis[dim] is not None and self._is_base(dim):
                bases[dim] = None
        axes = [(axis, root) for root in bases if (axis := self._axis[root]) is not None]
        axes.sort()
        for _, root in axes[MAX_SYMBOLS:]:
            self._pinned[root] = True
        del axes[MAX_SYMBOLS:]
        self._symbols = {root: index for index, (_, root) in enumerate(axes)}
        return [axis for axis, _ in axes], [self._size[root] for _, root in axes]

    def sizes(self) -> list[int]:
        """Return the sizes of all dims after ``solve``: integers and monomials of symbols."""
        roots = [self.root(dim) for dim in self._parent]
        known = {root: self._erased_size(root) for root in set(roots)}
        return [known[root] for root in roots]

    def _erased_size(self, root: int) -> int:
        expression = self._expression(root)
        if expression is None:
            return self._size[root]
        coefficient, bases = expression
        size = monomial(coefficient, [self._symbols[base] for base in bases])
        assert size is not None
        return size

    def _is_base(self, root: int) -> bool:
        return (not self._pinned[root] or self._size[root] == DYNAMIC) and root not in self._defined

    def _expression(self, root: int) -> _Product | None:
        """A class as a product of base classes; None of an undetermined class."""
        root = self.root(root)
        if self._pinned[root] and self._size[root] != DYNAMIC:
            return self._size[root], ()
        parts = self._defined.get(root)
        if parts is not None:
            return self._product_of(parts)
        return (1, (root,)) if self._axis[root] is not None else None

    def _product_of(self, roots: Sequence[int]) -> _Product | None:
        coefficient, bases = 1, list[int]()
        for root in roots:
            factor = self._expression(root)
            if factor is None:
                return None
            coefficient *= factor[0]
            bases += factor[1]
        return coefficient, tuple(bases)

    # -- product equations

    def _solve(self, ins: tuple[int, ...], outs: tuple[int, ...]) -> bool:
        """Apply a product equation; return False as long as both sides are undetermined."""
        left, right = self._without_common(ins, outs)
        if not left and not right:
            return True
        if any(self._size[root] == DYNAMIC for root in (*left, *right)):
            return True
        a, b = self._product_of(left), self._product_of(right)
        if a is not None and b is not None:
            self._compare(left, right, a, b)
            return True
        if a is not None:
            return self._match(a, left, right)
        if b is not None:
            return self._match(b, right, left)
        return False

    def _without_common(self, ins: Sequence[int], outs: Sequence[int]) -> tuple[list[int], list[int]]:
        left, right = [self.root(d) for d in ins], [self.root(d) for d in outs]
        for root in list(left):
            if root in right:
                left.remove(root)
                right.remove(root)
        return left, right

    def _compare(self, left: list[int], right: list[int], a: _Product, b: _Product) -> None:
        """Unify two determined sides, define an argument's axis by the other side, or pin both."""
        if a[0] == b[0] and sorted(a[1]) == sorted(b[1]):
            return
        for side, other, (_, bases) in ((left, right, b), (right, left, a)):
            if len(side) == 1 and self._is_base(side[0]) and side[0] not in bases and bases:
                self._define(side[0], other)
                return
        if self._unify_in_order(left, right):
            return
        if len(a[1]) == len(b[1]) and all(
            self._size[x] == self._size[y] for x, y in zip(a[1], b[1], strict=True)
        ):
            for x, y in zip(a[1], b[1], strict=True):
                self.union(x, y)
            if a[0] == b[0]:
                return
        self.pin(*a[1], *b[1])

    def _unify_in_order(self, left: Sequence[int], right: Sequence[int]) -> bool:
        """Unify the elements of two products if their sizes agree in order; return whether they do."""
        a, b = self._elements(left), self._elements(right)
        if [self._size[root] for root in a] != [self._size[root] for root in b]:
            return False
        for x, y in zip(a, b, strict=True):
            self.union(x, y)
        return True

    def _elements(self, roots: Sequence[int]) -> list[int]:
        """The classes of a product in order, with defined classes replaced by their factors."""
        elements: list[int] = []
        for root in map(self.root, roots):
            parts = None if self._pinned[root] else self._defined.get(root)
            elements += [root] if parts is None else self._elements(parts)
        return elements

    def _define(self, root: int, parts: Sequence[int]) -> None:
        product = self._product_of(parts)
        if product is None or len(product[1]) > _MAX_FACTORS:
            self.pin(root, *(product[1] if product else ()))
            return
        if len(parts) == 1:
            self.union(root, parts[0])
        else:
            self._defined[root] = list(parts)

    def _match(self, product: _Product, determined: list[int], other: list[int]) -> bool:
        """Unify undetermined classes of ``other`` with factors of the determined side of the same size."""
        if self._unify_in_order(determined, other):
            return True
        coefficient, remaining = product[0], list(product[1])
        unknown: list[int] = []
        for root in other:
            factor = self._expression(root)
            if factor is None:
                unknown.append(root)
                continue
            if not factor[1] and coefficient % factor[0]:
                base = next((b for b in remaining if self._size[b] == factor[0]), None)
                if base is None:
                    return False
                remaining.remove(base)
                self.union(base, root)
                continue
            if not factor[1]:
                coefficient //= factor[0]
                continue
            if all(factor[1].count(base) <= remaining.count(base) for base in factor[1]):
                for base in factor[1]:
                    remaining.remove(base)
            elif len(factor[1]) == 1 and factor[0] == 1:
                unknown.append(root)
            else:
                return False
        if len(unknown) == 1 and (len(remaining) > 1 or len(other) == 1):
            return self._define_last(unknown[0], remaining, determined, other)
        for root in list(unknown):
            base = next((b for b in remaining if self._size[b] == self._size[root]), None)
            if base is not None:
                remaining.remove(base)
                unknown.remove(root)
                self.union(base, root)
        if not remaining:
            self.pin(*unknown)
        return not remaining

    def _define_last(self, root: int, remaining: list[int], determined: list[int], other: list[int]) -> bool:
        """Define the only undetermined class of ``other`` as the product of the remaining factors."""
        if len(other) == 1:
            self._define(root, determined)
            return True
        size = 1
        for base in remaining:
            size *= self._size[base]
        if size == self._size[root] and len(remaining) <= _MAX_FACTORS:
            self._define(root, remaining)
            return True
        coefficient, remainder = divmod(self._size[root], size)
        if remainder:
            return False
        constant = self.new(coefficient)
        self.pin(constant)
        self._define(root, [constant, *remaining])
        return True

    def _pin_undetermined(self, pending: Sequence[_Equation]) -> None:
        """Pin the factors of equations with one determined side, and their undetermined classes."""
        pinned: list[int] = []
        for ins, outs in pending:
            left, right = self._without_common(ins, outs)
            a, b = self._product_of(left), self._product_of(right)
            if (a is None) != (b is None):
                product = a or b
                assert product is not None
                undetermined = (root for root in (*left, *right) if self._expression(root) is None)
                pinned += [*product[1], *undetermined]
        self.pin(*pinned)
