"""Elements of 8 bits and fewer in buffers: every conversion against the package ml_dtypes, bit for bit."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.types import SMALL, SMALL_FLOATS, SMALL_INTEGERS, CompileOptions
from kcache_grpc.runtime.dtypes import limits_of, numpy_dtype
from tests.ops.harness import native

Array = np.ndarray[Any, np.dtype[Any]]

FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")
ALL = ("i1", *INTEGERS, *FLOATS, *SMALL)
#: CI converts from these; the others take their turn by hand.
SHORT = ("f16", "f64")


def convert(sources: Sequence[str], values: list[Array], targets: Sequence[str]) -> list[Array]:
    """All values as each of ``targets``, by one program."""
    arguments = [
        f"%a{i}: tensor<{len(array)}x{name}>"
        for i, (name, array) in enumerate(zip(sources, values, strict=True))
    ]
    lines: list[str] = []
    types: list[str] = []
    for i, (name, numbers) in enumerate(zip(sources, values, strict=True)):
        for target in targets:
            types.append(f"tensor<{len(numbers)}x{target}>")
            source = f"tensor<{len(numbers)}x{name}>"
            lines.append(f"%{len(lines)} = stablehlo.convert %a{i} : ({source}) -> {types[-1]}")
    results = ", ".join(f"%{i}" for i in range(len(lines)))
    body = "\n".join([*lines, f"return {results} : {', '.join(types)}"])
    text = f"func.func @main({', '.join(arguments)}) -> ({', '.join(types)}) {{\n{body}\n}}"
    spec = canonicalize(text.encode(), "stablehlo", "strict")
    options = CompileOptions(numerics="strict", opt_level=1)
    kernel = compile_spec(spec.spec_text, spec.arg_spec, "x86-64-v3", options, lambda _: None)
    contents = native.run(kernel, [array.tobytes() for array in values], [])
    kinds = [numpy_dtype(target) for _ in sources for target in targets]
    return [np.frombuffer(data, kind) for data, kind in zip(contents, kinds, strict=True)]


@functools.cache
def halfway() -> Array:
    """All finite numbers of the small floats, what is halfway between two, and what is next to those."""
    points: list[Array] = []
    for name in SMALL_FLOATS:
        numbers = codes_of(name).astype(np.float64)
        numbers = np.unique(numbers[np.isfinite(numbers)])
        points += [numbers, (numbers[1:] + numbers[:-1]) / 2]
        points.append(numbers[-1] * np.array([1.03125, 1.0625, 1.125, 1.25, 1.5, 2.0]))
    exact = np.concatenate(points)
    with np.errstate(over="ignore"):
        single = exact.astype(np.float32)
    near = [np.nextafter(single, np.float32(end)).astype(np.float64) for end in (-np.inf, np.inf)]
    return np.concatenate([exact, *near])


def codes_of(name: str) -> Array:
    bits = int(name[1] if name.startswith("f") else name.lstrip("ui"))
    return np.arange(1 << bits, dtype=np.uint8).view(numpy_dtype(name))


def values_of(name: str) -> Array:
    """All values where there are few, else random ones and those where rounding is decided."""
    rng = np.random.default_rng(7)
    if name in SMALL:
        return codes_of(name)
    if name == "i1":
        return np.array([False, True])
    if name in ("f16", "bf16"):
        return np.arange(1 << 16, dtype=np.uint16).view(numpy_dtype(name))
    special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0]
    spread = rng.standard_normal(5000) * np.exp2(rng.integers(-20, 18, 5000))
    if name == "f32":
        bits = rng.integers(0, 1 << 32, 20000, dtype=np.uint32).view(np.float32)
        with np.errstate(over="ignore"):
            return np.concatenate([bits, np.concatenate([spread, halfway(), special]).astype(np.float32)])
    if name == "f64":
        bits = rng.integers(0, 1 << 63, 20000, dtype=np.uint64).view(np.float64)
        near = [np.nextafter(halfway(), end) for end in (-np.inf, np.inf)]
        return np.concatenate([bits, -bits, spread, halfway(), *near, np.array(special)])
    kind = numpy_dtype(name)
    low, high = limits_of(name)
    whole = rng.integers(low, high, 4000, dtype=kind, endpoint=True)
    ends = np.array([low, low + 1, high - 1, high, 0, 1, 7, 8, 15, 16], kind)
    return np.concatenate([whole, whole >> rng.integers(0, kind.itemsize * 8, 4000).astype(kind), ends])


def rounded_to_odd(values: Array) -> Array:
    """f32 that rounds to any small float as ``values`` do, so that nothing rounds twice."""
    with np.errstate(all="ignore"):
        nearest = values.astype(np.float32)
        exact = nearest.astype(np.float64)
        # An integer that f64 does not have is compared as what it is.
        wide = values.astype(object) if values.dtype.kind in "iu" else values
        back = np.array([int(x) for x in exact], object) if values.dtype.kind in "iu" else exact
        above, below = back > wide, back < wide
        bits = nearest.view(np.uint32)
        towards = np.where(
            above, np.nextafter(nearest, np.float32(-np.inf)), np.nextafter(nearest, np.float32(np.inf))
        )
        moved = np.where((bits & 1 == 0) & (above | below), towards, nearest)
        return np.where(np.isfinite(nearest), moved, nearest).astype(np.float32)


def expected(source: str, values: Array, target: str) -> Array:
    with np.errstate(all="ignore"):
        if target in SMALL_FLOATS:
            twice = source in ("f64", "i32", "i64", "ui32", "ui64")
            single = rounded_to_odd(values) if twice else values.astype(np.float32)
            return single.astype(numpy_dtype(target))
        if target in (*FLOATS, "i1"):
            wide = values.astype(np.float32 if source in SMALL_FLOATS else values.dtype)
            return (wide.astype(np.int32) if source in SMALL_INTEGERS else wide).astype(numpy_dtype(target))
        low, high = limits_of(target)
        if source in (*FLOATS, *SMALL_FLOATS):
            numbers = np.trunc(values.astype(np.float64))
            clipped = [0 if x != x else int(min(max(x, low), high)) for x in numbers.tolist()]
        else:
            clipped = [int(x) for x in values.astype(np.int64 if values.dtype.kind != "u" else np.uint64)]
    span = high - low + 1
    return (
        np.array([(x - low) % span + low for x in clipped], object)
        .astype(np.int64 if low else np.uint64)
        .astype(numpy_dtype(target))
    )


def check(sources: Sequence[str], targets: Sequence[str]) -> None:
    values = [values_of(source) for source in sources]
    results = iter(convert(sources, values, targets))
    for source, array in zip(sources, values, strict=True):
        for target in targets:
            got, want = next(results), expected(source, array, target)
            same = got.view(f"u{got.itemsize}") == want.view(f"u{want.itemsize}")
            if target in FLOATS:  # which NaN it is says nothing
                same = same | (np.isnan(got) & np.isnan(want))
            assert same.all(), (source, target, array[~same][:5], got[~same][:5], want[~same][:5])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("source", SHORT)
def test_numbers_become_small(source: str) -> None:
    check([source], tuple(name for name in SMALL if name != source))


@pytest.mark.long
@pytest.mark.parametrize("source", ALL)
def test_every_conversion(source: str) -> None:
    check([source], tuple(name for name in (ALL if source in SMALL else SMALL) if name != source))


def test_small_numbers_become_wide() -> None:
    check(SMALL, ("f32",))


def test_the_package_has_the_types() -> None:
    assert all(numpy_dtype(name).type.__module__ == ml_dtypes.__name__ for name in SMALL)
