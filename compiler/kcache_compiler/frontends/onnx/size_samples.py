"""Sizes at which a model with open dims is translated: what two of them say alike may differ at others.

A graph may compute with a size: compare it with a number, cut at one, take a remainder. So samples lie on
both sides of the numbers that the model holds, and have other remainders.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from kcache_compiler.errors import CompilerError
from kcache_compiler.frontends.onnx.checks import all_nodes, graphs
from kcache_compiler.frontends.onnx.proto import Array, Proto, tensor_array

#: Operators by which sizes become numbers, or numbers are held against sizes.
_READERS = frozenset({"Shape", "Size", "Slice"})

#: Numbers beyond are no sizes: they stand for the end of an axis, or for infinity.
_LARGEST = 1 << 16
_SMALLEST = 4

#: Tensors with more elements hold data.
_MOST = 64

#: Where samples begin, and how far one is looked for that has other remainders.
_FIRST, _FIRST_PRIME = 48, 53
_TRIED = 512


def main_sizes(model: Proto) -> Iterator[int]:
    """Yield sizes with many divisors: no two alike, and none that the model has itself."""
    return _untaken(model, itertools.count(_FIRST, 24))


def splittable_sizes(model: Proto) -> Iterator[int]:
    """Yield other sizes with many divisors, for graphs that split an open size: it is none at primes."""
    return _untaken(model, itertools.count(_FIRST + 720, 24))


def prime_sizes(model: Proto) -> Iterator[int]:
    """Yield primes: a graph that asks whether a size is even, or pads it to a multiple, is another there."""
    moduli = sorted(number for number in _numbers(model) if number < 4096)
    candidates = _untaken(model, _primes(_FIRST_PRIME))
    for first in main_sizes(model):
        tried: list[int] = []
        for size in candidates:
            tried.append(size)
            if len(tried) == _TRIED or all((size - first) % modulus for modulus in moduli):
                break
        yield tried[-1] if len(tried) < _TRIED else tried[0]


def further_sizes(model: Proto) -> Iterator[list[Iterator[int]]]:
    """Yield sizes beyond the numbers that the others lie on one side of: below the small ones, above the
    large ones. Of each list, the first sizes that the model may have are meant.
    """
    if not any(node.op_type in _READERS for node in all_nodes(model)):
        return
    numbers = _numbers(model)

    def beyond(start: int) -> Iterator[int]:
        return (size for size in _untaken(model, _primes(start)) if size not in numbers)

    if any(_SMALLEST <= number <= _FIRST for number in numbers):
        yield [beyond(3)]
    large = sorted((number for number in numbers if number >= _FIRST), reverse=True)
    if large:
        yield [beyond(number) for number in large]


def _numbers(model: Proto) -> set[int]:
    """Return the numbers from 2 on that stand in a model's constants."""
    found: set[int] = set()
    for array in _constants(model):
        for number in array.reshape(-1).tolist():
            if isinstance(number, (int, float)) and math.isfinite(number) and abs(number) <= _LARGEST:
                found.add(abs(int(number)))
    return {number for number in found if number >= 2}


def _constants(model: Proto) -> Iterator[Array]:
    for graph in graphs(model):
        for tensor in graph.initializer:
            yield from _small(tensor)
    for node in all_nodes(model):
        if node.op_type not in ("Constant", "Slice"):
            continue
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield from _small(attribute.t)
            yield np.asarray([attribute.i, *attribute.ints])
            yield np.asarray([attribute.f, *attribute.floats])


def _small(tensor: Proto) -> Iterator[Array]:
    if math.prod(tensor.dims) <= _MOST:
        try:
            yield tensor_array(tensor, "a constant")
        except CompilerError:
            return


def _untaken(model: Proto, candidates: Iterator[int]) -> Iterator[int]:
    taken = {dim.dim_value for info in model.graph.input for dim in info.type.tensor_type.shape.dim} | {
        size for tensor in model.graph.initializer for size in tensor.dims
    }
    return (size for size in candidates if size not in taken)


def _primes(start: int) -> Iterator[int]:
    return (n for n in itertools.count(max(start, 2)) if all(n % d for d in range(2, math.isqrt(n) + 1)))
