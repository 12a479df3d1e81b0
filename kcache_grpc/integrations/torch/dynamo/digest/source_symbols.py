"""Canonical text of symbolic sizes, and of all that the shape environment knows of them."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Any

from kcache_grpc.integrations.torch.dynamo.digest.source_values import NotDigestible

torch: Any = import_module("torch")
sympy: Any = import_module("sympy")
_kinds: Any = import_module("torch.utils._sympy.symbol")

#: Operators whose operands have no order.
_COMMUTATIVE: Any = (sympy.Add, sympy.Mul, sympy.And, sympy.Or, sympy.Equality, sympy.Unequality)


class Symbols:
    """Symbols renamed in the order of their first appearance, and the facts about them."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._renamed: dict[Any, str] = {}
        self._texts: dict[Any, str] = {}

    def text(self, value: Any) -> str:
        """The expression of a ``SymInt``, ``SymFloat`` or ``SymBool``, or an integer. Adds no guard."""
        if value.__class__ is int:
            return str(value)
        node = value.node
        environment = getattr(node, "shape_env", None)
        if environment is None or node.is_nested_int():
            raise NotDigestible("a symbolic value without a shape environment")
        if self._environment is None:
            self._environment = environment
        if environment is not self._environment:
            raise NotDigestible("symbolic sizes of two shape environments")
        return f"{value.__class__.__name__} {self._expression(node._expr)}"

    def facts(self) -> list[str]:
        """Lines with the settings, guards, ranges and other facts that tracing may read.

        Values that symbols have in this call are left out: code that depends on them has guards.
        """
        environment = self._environment
        if environment is None:
            return ["shape environment: none"]
        settings = dataclasses.asdict(environment.settings)
        lines = [f"shape environment: {sorted(settings.items())} {environment.runtime_asserts_frozen}"]
        lines += sorted({f"guard {self._expression(guard.expr)}" for guard in environment.guards})
        lines += sorted(f"divisible {self._expression(expression)}" for expression in environment.divisible)
        asserts = [fact for facts in environment.deferred_runtime_asserts.values() for fact in facts]
        lines += sorted(f"assert {self._expression(fact.expr)}" for fact in asserts)
        described = 0
        while described < len(self._renamed):
            for symbol in list(self._renamed)[described:]:
                lines.append(self._symbol(symbol))
                described += 1
        return lines

    def _symbol(self, symbol: Any) -> str:
        """The range, the replacement and the assumptions of one symbol."""
        environment = self._environment
        bounds = environment.var_to_range.get(symbol)
        replacement = environment.replacements.get(symbol)
        self._check_kind(symbol)
        parts = [
            f"symbol {self._renamed[symbol]}",
            "" if bounds is None else f"{bounds.lower}..{bounds.upper}",
            "" if replacement is None else self._expression(replacement),
            str(symbol in environment.size_like),
        ]
        return " ; ".join(parts)

    def _check_kind(self, symbol: Any) -> None:
        if not _kinds.symbol_is_type(symbol, (_kinds.SymT.SIZE, _kinds.SymT.FLOAT)):
            raise NotDigestible("a symbol that depends on data")

    def _expression(self, expression: Any) -> str:
        text = self._texts.get(expression)
        if text is None:
            text = self._texts[expression] = self._canonical(expression)
        return text

    def _canonical(self, expression: Any) -> str:
        """The tree of an expression in renamed symbols; SymPy orders operands by the symbols' own names."""
        if isinstance(expression, (bool, int, float)):
            return repr(expression)
        kind: Any = expression.__class__
        if issubclass(kind, sympy.Symbol):
            return self._name(expression)
        operands: list[Any] = list(expression.args)
        if not operands:
            return sympy.srepr(expression)
        texts = [self._expression(operand) for operand in operands]
        if issubclass(kind, _COMMUTATIVE):
            texts.sort()
        return f"{kind.__module__}.{kind.__qualname__}({','.join(texts)})"

    def _name(self, symbol: Any) -> str:
        known = self._renamed.get(symbol)
        if known is None:
            assumptions = sorted(f"{name}={holds}" for name, holds in symbol._assumptions_orig.items())
            known = self._renamed[symbol] = f"k{len(self._renamed)}:{'+'.join(assumptions)}"
        return known
