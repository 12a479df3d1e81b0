"""Chooses sample sizes for the dynamic dims of a model.

A graph may compute with a size: compare it with a constant, slice at one, take a remainder. Two translations
that agree may then differ at other sizes. So samples lie on both sides of the constants of a model, and have
different remainders.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from kcache_compiler.errors import CompilerError
from kcache_compiler.frontends.onnx.checks import all_nodes, graphs
from kcache_compiler.frontends.onnx.proto import Array, Proto, tensor_array

#: Operators that turn sizes into values, or compare values with sizes.
_SIZE_OPERATORS = frozenset({"Shape", "Size", "Slice"})

#: Larger integers are not sizes: they stand for the end of an axis, or for infinity.
_LARGEST = 1 << 16
_SMALLEST = 4

#: Tensors with more elements are data.
_MAX_ELEMENTS = 64

#: The first samples, and the number of candidates among which one with other remainders is searched.
_FIRST, _FIRST_PRIME = 48, 53
_MAX_CANDIDATES = 512


def main_sizes(model: Proto) -> Iterator[int]:
    """Yield distinct sizes with many divisors that do not occur in the model."""
    return _unused(model, itertools.count(_FIRST, 24))


def splittable_sizes(model: Proto) -> Iterator[int]:
    """Yield other sizes with many divisors, for graphs that split a dynamic dim."""
    return _unused(model, itertools.count(_FIRST + 720, 24))


def prime_sizes(model: Proto) -> Iterator[int]:
    """Yield primes, at which a graph differs that tests a size for divisibility or pads it to a multiple."""
    moduli = sorted(number for number in _integer_constants(model) if number < 4096)
    candidates = _unused(model, _primes(_FIRST_PRIME))
    for first in main_sizes(model):
        primes: list[int] = []
        for size in candidates:
            primes.append(size)
            if len(primes) == _MAX_CANDIDATES or all((size - first) % modulus for modulus in moduli):
                break
        yield primes[-1] if len(primes) < _MAX_CANDIDATES else primes[0]


def further_sizes(model: Proto) -> Iterator[list[Iterator[int]]]:
    """Yield lists of alternative sizes below the model's small constants, and above its large ones.

    The first alternative of a list at which the model is valid is used.
    """
    if not any(node.op_type in _SIZE_OPERATORS for node in all_nodes(model)):
        return
    constants = _integer_constants(model)

    def primes_from(start: int) -> Iterator[int]:
        return (size for size in _unused(model, _primes(start)) if size not in constants)

    if any(_SMALLEST <= constant <= _FIRST for constant in constants):
        yield [primes_from(3)]
    large = sorted((constant for constant in constants if constant >= _FIRST), reverse=True)
    if large:
        yield [primes_from(constant) for constant in large]


def _integer_constants(model: Proto) -> set[int]:
    """Return the absolute values, from 2 on, of the integers in a model's constants."""
    values: set[int] = set()
    for array in _constants(model):
        for number in array.reshape(-1).tolist():
            if isinstance(number, (int, float)) and math.isfinite(number) and abs(number) <= _LARGEST:
                values.add(abs(int(number)))
    return {number for number in values if number >= 2}


def _constants(model: Proto) -> Iterator[Array]:
    for graph in graphs(model):
        for tensor in graph.initializer:
            yield from _small_tensor(tensor)
    for node in all_nodes(model):
        if node.op_type not in ("Constant", "Slice"):
            continue
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield from _small_tensor(attribute.t)
            yield np.asarray([attribute.i, *attribute.ints])
            yield np.asarray([attribute.f, *attribute.floats])


def _small_tensor(tensor: Proto) -> Iterator[Array]:
    if math.prod(tensor.dims) <= _MAX_ELEMENTS:
        try:
            yield tensor_array(tensor, "a constant")
        except CompilerError:
            return


def _unused(model: Proto, candidates: Iterator[int]) -> Iterator[int]:
    used = {dim.dim_value for info in model.graph.input for dim in info.type.tensor_type.shape.dim} | {
        size for tensor in model.graph.initializer for size in tensor.dims
    }
    return (size for size in candidates if size not in used)


def _primes(start: int) -> Iterator[int]:
    return (n for n in itertools.count(max(start, 2)) if all(n % d for d in range(2, math.isqrt(n) + 1)))
