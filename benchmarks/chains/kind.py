"""A kind of operation: the text of one step of a chain, and what values the chain is of."""

from __future__ import annotations

from dataclasses import dataclass

VALUE = "tensor<8x8xf32>"


@dataclass(frozen=True)
class Kind:
    """``step`` makes ``{y}`` of ``{x}``, which is of type ``value``, as is ``%w``; ``{n}`` is its number.

    ``given`` are arguments of the program beside those that all have, ``functions`` what it calls.
    """

    step: str
    value: str = VALUE
    given: str = ""
    functions: str = ""


def unary(op: str, value: str = VALUE) -> Kind:
    """``op`` of the value before."""
    return Kind(f'{{y}} = "{op}"({{x}}) : ({value}) -> {value}', value)


def binary(op: str, value: str = VALUE) -> Kind:
    """``op`` of the value before and an argument."""
    return Kind(f'{{y}} = "{op}"({{x}}, %w) : ({value}, {value}) -> {value}', value)
