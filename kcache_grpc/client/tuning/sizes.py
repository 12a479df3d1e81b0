"""Chooses the sizes at which a kernel of dynamic sizes is timed, and makes arguments for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kcache_grpc.errors import ArgumentError
from kcache_grpc.model.manifest import TensorSpec
from kcache_grpc.model.sizes.guard import MAX_SIZE, parse_guard
from kcache_grpc.model.variants import parse_arg_spec, spec_sizes, symbols_in
from kcache_grpc.runtime import Kernel

#: One tuple of sizes: by name of a symbol, or by ``(argument, axis)``.
SizeTuple = Mapping[str, int] | Mapping[tuple[int, int], int]
#: What ``sizes`` may be.
Sizes = SizeTuple | Sequence[SizeTuple] | None

#: Tuples of sizes at most, and bytes of the arguments of one: all are in memory at once.
MOST_TUPLES, MOST_BYTES = 16, 4 << 30


@dataclass(frozen=True)
class Case:
    """Arguments to time with, and their sizes as text, ``""`` where all are known."""

    sizes: str
    arrays: tuple[Any, ...]


def cases_of(kernel: Kernel, sizes: Sizes, inputs: Sequence[Any] | None) -> list[Case]:
    """Of ``inputs``, or drawn for each of ``sizes``; without these for the program's own sizes.

    Raises ``ArgumentError`` for sizes that are not dynamic, that the kernel does not accept, or that lack.
    """
    tensors = parse_arg_spec(kernel.manifest.arg_spec)
    names = symbols_in(dim for tensor in tensors for dim in tensor.dims)
    if sizes is not None and inputs is not None:
        raise ArgumentError("give sizes or inputs: those have their own sizes", argument="sizes")
    if not names and sizes is not None:
        raise ArgumentError(
            "sizes are for kernels of dynamic sizes, and this one has none: pass dynamic=True, or a program "
            "with dynamic sizes",
            argument="sizes",
        )
    if inputs is not None:
        arrays = tuple(inputs)
        kernel(*arrays)  # raises what is wrong with them
        return [Case(_text(names, _read(kernel, names, arrays)), arrays)]
    requested: Sequence[Any] = (
        [{}] if sizes is None else [sizes] if isinstance(sizes, Mapping) else list(sizes)
    )
    if not 0 < len(requested) <= MOST_TUPLES:
        raise ArgumentError(f"{len(requested)} tuples of sizes; use 1 to {MOST_TUPLES}", argument="sizes")
    tuples = [_complete(kernel, tensors, names, each) for each in requested]
    texts = [_text(names, each) for each in tuples]
    if len(set(texts)) < len(texts):
        raise ArgumentError("sizes name one tuple twice", argument="sizes")
    return [Case(text, _drawn(tensors, each)) for text, each in zip(texts, tuples, strict=True)]


def _text(names: Sequence[str], sizes: Mapping[str, int]) -> str:
    return ",".join(f"{name}={sizes[name]}" for name in names)


def _read(kernel: Kernel, names: Sequence[str], arrays: Sequence[Any]) -> dict[str, int]:
    spec = spec_sizes(kernel.binding)
    places = {name: spec.source(name) for name in names}
    return {name: int(arrays[at.arg].shape[at.axis]) for name, at in places.items()}


def _complete(
    kernel: Kernel, tensors: Sequence[TensorSpec], names: Sequence[str], sizes: Any
) -> dict[str, int]:
    """A size for each name: as given, else the program's own."""
    if not isinstance(sizes, Mapping):
        raise ArgumentError(
            f"sizes are {sizes!r}; use mappings such as {{'s0': 128}} or {{(0, 0): 128}}", argument="sizes"
        )
    spec = spec_sizes(kernel.binding)
    by_name: dict[str, int] = {}
    for place, size in cast("Mapping[Any, Any]", sizes).items():
        name = _name(tensors, names, place)
        if type(size) is not int or not 0 <= size <= MAX_SIZE:
            raise ArgumentError(f"the size of {place!r} is {size!r}; use an int from 0", argument="sizes")
        if by_name.setdefault(name, size) != size:
            raise ArgumentError(f"sizes give {name} both {by_name[name]} and {size}", argument="sizes")
    for name in names:
        if name not in by_name and name not in spec.known:
            at = spec.source(name)
            raise ArgumentError(f"sizes lack {name}, {at}: it is dynamic in the program", argument="sizes")
        by_name.setdefault(name, spec.known.get(name, 0))
    guard = parse_guard(kernel.manifest.guard)
    if not guard.holds(by_name):
        raise ArgumentError(
            f"sizes are {_text(names, by_name)}, and the kernel is for {kernel.manifest.guard}",
            argument="sizes",
        )
    return by_name


def _name(tensors: Sequence[TensorSpec], names: Sequence[str], place: Any) -> str:
    name = place if isinstance(place, str) else ""
    if isinstance(place, tuple):
        axes = {
            (arg, axis): dim for arg, tensor in enumerate(tensors) for axis, dim in enumerate(tensor.dims)
        }
        name = axes.get(cast("tuple[int, int]", place), "")
    if name not in names:
        raise ArgumentError(
            f"sizes name {place!r}, which is no dynamic size; there are {', '.join(names)} in "
            f"{';'.join(map(str, tensors))}",
            argument="sizes",
        )
    return name


def _drawn(tensors: Sequence[TensorSpec], sizes: dict[str, int]) -> tuple[Any, ...]:
    from kcache_grpc.runtime import comparison
    from kcache_grpc.runtime.dtypes import numpy_dtype

    shapes = [tensor.shape(sizes) for tensor in tensors]
    widths = [numpy_dtype(tensor.dtype).itemsize for tensor in tensors]
    total = sum(math.prod(shape) * width for shape, width in zip(shapes, widths, strict=True))
    if total > MOST_BYTES:
        raise ArgumentError(
            f"the arguments take {total} bytes, more than {MOST_BYTES}: tune at smaller sizes, or pass "
            "inputs",
            argument="sizes",
        )
    return tuple(comparison.drawn(tensors, shapes))
