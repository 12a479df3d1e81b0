"""Sizes of tensors in a graph: static ones, and samples for the symbols of dynamic ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from kcache_grpc.errors import KcacheError
from kcache_grpc.programs.torch.dynamic_shapes import Symbol, samples_of

torch: Any = import_module("torch")

#: Factors that guards often require sizes to be multiples of.
_FACTORS = (1, 2, 4, 8, 16, 32, 64, 128)
_LEAST = 2

Sample = Mapping[str, int]


def expression(size: Any) -> Any:
    """The SymPy expression of a symbolic size; ``None`` for an int."""
    return None if isinstance(size, (int, float, bool)) else size.node.expr


def free_symbols(value: Any) -> set[str]:
    """Names of the symbols in a size, in the sizes and strides of a tensor, or in a list of them."""
    if isinstance(value, torch.Tensor):
        names = free_symbols(list(value.shape))
        if value.layout is torch.strided:
            names |= free_symbols([*value.stride(), value.storage_offset()])
        return names
    if isinstance(value, (list, tuple)):
        return set[str]().union(*map(free_symbols, value))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return {str(symbol) for symbol in value.node.expr.free_symbols}
    return set()


def size_symbols(value: Any) -> set[str]:
    """Names of the symbols in sizes and in the sizes of tensors: those that a program depends on."""
    return {str(symbol) for formula in size_formulas(value) for symbol in formula.free_symbols}


def size_formulas(value: Any) -> list[Any]:
    """The SymPy expressions of a symbolic size, or of the symbolic sizes of a tensor."""
    return [size.node.expr for size in _symbolic(value)]


def evaluated(size: Any, sample: Sample) -> int:
    """A size at a sample of the symbols."""
    formula = expression(size)
    if formula is None:
        return int(size)
    return int(formula.xreplace({symbol: _integer(sample[str(symbol)]) for symbol in formula.free_symbols}))


def _integer(value: int) -> Any:
    return import_module("sympy").Integer(value)


def shape_environment(graph: Any) -> Any:
    """The ``ShapeEnv`` of a graph with symbolic sizes; ``None`` without them."""
    for node in graph.nodes:
        for size in _symbolic(node.meta.get("val")):
            return size.node.shape_env
    return None


def _symbolic(value: Any) -> Iterator[Any]:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        yield value
    elif isinstance(value, torch.Tensor):
        yield from _symbolic([*value.shape])
    elif isinstance(value, (list, tuple)):
        for element in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _symbolic(element)


def choose_samples(graph: Any, names: Sequence[str]) -> tuple[Sample, Sample] | None:
    """Two samples of symbols that satisfy the graph's guards; ``None`` if none of those tried does.

    Symbols that guards leave no other size have the size of the traced call in both. Those without two sizes
    that satisfy the guards, among those tried, are in neither, nor are those that are no sizes.
    """
    environment = shape_environment(graph)
    ranges = {str(symbol): limits for symbol, limits in environment.var_to_range.items()}
    values = environment.backed_var_to_val.items()
    # A ragged dimension of a nested tensor has a symbol whose value is no integer.
    hints = {str(symbol): int(value) for symbol, value in values if value.is_Integer}
    guards = [guard.expr for guard in environment.guards]
    factors = (*_FACTORS, _common_multiple(guards))
    names, fixed = [name for name in names if name in hints], dict[str, int]()
    while len(fixed) < len(names):
        accepted: list[Sample] = []
        violated: list[set[str]] = []
        for candidate in _candidates(graph, names, ranges, hints, factors):
            sample = {**candidate, **fixed}
            failed = _violated(guards, sample)
            if failed:
                violated.append(failed & hints.keys() - fixed.keys())
            elif all(fixed.keys() >= _equal(sample, other) for other in accepted):
                accepted.append(sample)
            if len(accepted) == 2:
                return accepted[0], accepted[1]
        stuck = min(filter(None, violated), key=len, default=set[str]())
        if not stuck:
            return None
        only = {name: hints[name] for name in stuck if _is_only(hints[name], name, guards, fixed)}
        fixed |= only
        names = [name for name in names if only or name not in stuck]
    return None


def _common_multiple(guards: Sequence[Any]) -> int:
    """Of the constants that guards divide sizes by to get the remainder."""
    sympy: Any = import_module("sympy")
    remainders = [each for guard in guards for each in getattr(guard, "atoms", set)(sympy.Function)]
    return math.lcm(
        *(
            int(each.args[1])
            for each in remainders
            if "Mod" in type(each).__name__ and each.args[1].is_Integer
        )
    )


def _equal(sample: Sample, other: Sample) -> set[str]:
    return {name for name, size in sample.items() if size == other[name]}


def _is_only(size: int, name: str, guards: Sequence[Any], fixed: Mapping[str, int]) -> bool:
    """Whether a guard is an equation of one symbol whose only positive solution is ``size``."""
    sympy: Any = import_module("sympy")
    for guard in guards:
        if not isinstance(guard, sympy.Equality):
            continue
        values = {symbol: fixed[str(symbol)] for symbol in guard.free_symbols if str(symbol) in fixed}
        difference = (guard.lhs - guard.rhs).xreplace({key: _integer(value) for key, value in values.items()})
        symbols = difference.free_symbols
        if {str(symbol) for symbol in symbols} != {name} or not difference.is_polynomial(*symbols):
            continue
        roots = sympy.Poly(difference, *symbols).ground_roots()
        if [root for root in roots if root > 0 and root.is_integer] == [size]:
            return True
    return False


def _candidates(
    graph: Any,
    names: Sequence[str],
    ranges: Mapping[str, Any],
    hints: Mapping[str, int],
    factors: Sequence[int],
) -> Iterator[Sample]:
    """Samples, sizes increasing with the names, then with the sizes of the traced call."""
    for order in (names, sorted(names, key=lambda name: hints.get(name, 0))):
        for factor in factors:
            symbols = {name: _symbol(name, ranges.get(name), factor) for name in order}
            try:
                samples = samples_of(graph, symbols)
            except KcacheError:
                continue
            for sample in samples:
                yield {name: sample[name] * factor for name in names}


def _symbol(name: str, limits: Any, factor: int) -> Symbol:
    low, high = _LEAST, None
    if limits is not None:
        low = int(limits.lower) if limits.lower.is_Integer else _LEAST
        high = int(limits.upper) if limits.upper.is_Integer else None
    high = None if high is None or high > 1 << 40 else high // factor
    return Symbol(name, max(_LEAST, -(-low // factor)), high)


def _violated(guards: Sequence[Any], sample: Sample) -> set[str]:
    """The symbols of the guards that a sample violates."""
    sympy: Any = import_module("sympy")
    names: set[str] = set()
    for guard in guards:
        symbols = getattr(guard, "free_symbols", ())
        if any(str(symbol) not in sample for symbol in symbols):
            continue
        try:
            value = guard.xreplace({symbol: _integer(sample[str(symbol)]) for symbol in symbols})
        except ZeroDivisionError:  # the remainder of a division by a size of zero
            value = sympy.false
        if value not in (True, sympy.true):
            names |= set(map(str, symbols))
    return names
