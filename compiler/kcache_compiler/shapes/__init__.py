"""The shape engine: symbolic sizes, what follows from them, and code that is correct for all of them.

A *size* in a spec is an integer, or a monomial of symbols such as ``2*s0*s1`` (``monomial``). A symbol of
the arguments is the size of an argument's axis. A *formula* (``formula``) is a size expression: polynomials
over symbols, remainders, quotients rounded up, minima and maxima.

A program of dynamic shape becomes one kernel in four steps:

1. **Inference** (``symbols``, ``arithmetic``, ``shape_functions``, ``requirements``). Every size of the
   program becomes a monomial of symbols. A program that states its sizes has only symbols of arguments. For
   one that computes sizes, ``spec.shape_inference`` walks the graph and derives symbols: *composite* ones,
   which are polynomials, and *opaque* ones, which divide or choose.
2. **Requirements** become guards. What ranges (``ranges``) and normal forms (``formula.Polynomial``) prove is
   dropped; what they refute is rejected; what is left is a ``formula.Check``. A guard also teaches a fact,
   such as a lower bound, a divisor or an equation, and inference is repeated until no fact is new.
3. **Samples** (``system``, ``inferred_sizes``). The program is lowered at a few tuples of static sizes that
   occur nowhere else in it, at which no two of its sizes agree, every division has several remainders, and
   every choice takes both operands.
4. **Recovery** (``recovery``). Integers that vary between the lowered modules are replaced by their
   formulas. The formulas are proven to explain the code: two samples must give the same code with them.

What is proven, checked and rejected:

- *Proven when compiling*: equality and order of sizes, by comparing coefficients of polynomials over
  symbols that are at least 0 (``formula.proves``), and by interval arithmetic. Both are sound and
  incomplete. Formulas of the code hold at all samples, and are unique among polynomials of at most three
  terms and a constant, products of the program's sizes, and monomials.
- *Checked at run time*: every requirement that is neither proven nor refuted, before the kernel reads a
  buffer.
- *Rejected* (``UnsupportedOp``): sizes that depend on data where no lowering with unknown dimensions
  exists, integers with two formulas or none at all samples that are tried, requirements that no sizes
  satisfy, and code that differs between samples in more than integers.

``SizeSystem`` is the interface of drivers: formulas, guards and samples of one program, whether its sizes
are stated or inferred.
"""

from kcache_compiler.shapes.formula import Check, Formula, UnresolvedSize, proves
from kcache_compiler.shapes.recovery import Ambiguous, RecoveredSizes, Sampling
from kcache_compiler.shapes.system import ProgramSizes, SizeSystem, StatedSizes

__all__ = [
    "Ambiguous",
    "Check",
    "Formula",
    "ProgramSizes",
    "RecoveredSizes",
    "Sampling",
    "SizeSystem",
    "StatedSizes",
    "UnresolvedSize",
    "proves",
]
