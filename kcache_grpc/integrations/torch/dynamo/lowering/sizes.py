"""Sizes of tensors in a graph: static ones, and samples for the symbols of dynamic ones."""

from __future__ import annotations

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

    Symbols that guards leave no other size have the size of the traced call in both.
    """
    environment = shape_environment(graph)
    ranges = {str(symbol): limits for symbol, limits in environment.var_to_range.items()}
    hints = {str(symbol): int(value) for symbol, value in environment.backed_var_to_val.items()}
    guards = [guard.expr for guard in environment.guards]
    fixed: dict[str, int] = {}
    while len(fixed) < len(names):
        accepted: list[Sample] = []
        violated: set[str] = set()
        for factor in _FACTORS:
            for sample in _candidates(graph, names, ranges, factor):
                sample = {**sample, **fixed}
                failed = _violated(guards, sample)
                violated |= failed
                if not failed and sample not in accepted:
                    accepted.append(sample)
                if len(accepted) == 2:
                    return accepted[0], accepted[1]
        added = {name: hints[name] for name in violated if name in hints and name not in fixed}
        if not added:
            return None
        fixed |= added
    return None


def _candidates(graph: Any, names: Sequence[str], ranges: Mapping[str, Any], factor: int) -> list[Sample]:
    symbols = {name: _symbol(name, ranges.get(name), factor) for name in names}
    try:
        samples = samples_of(graph, symbols)
    except KcacheError:
        return []
    return [{name: size * factor for name, size in sample.items()} for sample in samples]


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
        value = guard.xreplace({symbol: _integer(sample[str(symbol)]) for symbol in symbols})
        if value not in (True, sympy.true):
            names |= set(map(str, symbols))
    return names
