"""Relations between sizes: proven for all sizes, or checked when a kernel is called."""

from __future__ import annotations

from dataclasses import dataclass

from kcache_compiler.shapes.formula import Formula, evaluate
from kcache_compiler.shapes.polynomial import polynomial, subtract


def proves(left: Formula, right: Formula, equal: bool) -> bool:
    """Return whether ``left == right`` (``equal``), or ``left <= right``, holds for all sizes.

    The test is sufficient, not complete: it compares the coefficients of polynomials, whose symbols are at
    least 0. False means "not proven".
    """
    if left == right:
        return True
    a, b = polynomial(left), polynomial(right)
    if a is None or b is None:
        return False
    difference = subtract(b, a)
    return not difference if equal else all(coefficient >= 0 for coefficient in difference.values())


@dataclass(frozen=True)
class Check:
    """The runtime check ``left == right`` (``equal``) or ``left <= right``: made before the kernel runs.

    Not a guard, which chooses among variants.
    """

    left: Formula
    right: Formula
    equal: bool

    @property
    def holds(self) -> bool:
        """Whether it is proven for all sizes, so that no code is needed."""
        return proves(self.left, self.right, self.equal)

    def met(self, sizes: dict[str, int]) -> bool:
        """Return whether it holds for the sizes of the symbols."""
        left, right = evaluate(self.left, sizes), evaluate(self.right, sizes)
        return left == right if self.equal else left <= right
