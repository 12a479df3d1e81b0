"""Differences between a requested kernel and a stored one, ingredient by ingredient, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from kcache_grpc.model.explanation import Difference
from kcache_grpc.model.identity import Toolchains
from kcache_grpc.model.staleness import is_current_epoch
from kcache_grpc.model.target import is_gpu
from kcache_grpc.model.variants import Shape, SpecSizes, Variant, variant
from kcache_grpc.storage.contract.nearby import NearKernel
from kcache_grpc.storage.records import KernelRecord, Namespace

#: Sizes of arguments that get a sentence.
_SHOWN = 3
#: Longest value that a difference carries.
_LONGEST = 2000
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
#: Ingredients of a toolchain whose names say too little.
_MEANINGS = {"pipeline": "the text of its pipeline", "code": "code version", "math": "math library version"}


@dataclass(frozen=True)
class Asked:
    """The kernel that a request is for."""

    namespace: Namespace
    kernel: KernelRecord
    sizes: SpecSizes
    toolchains: Toolchains


def differences(asked: Asked, near: NearKernel, *, sizes: bool = True) -> tuple[Difference, ...]:
    """Differences in epoch, target, toolchain and options, in this order; with ``sizes`` also in sizes."""
    parts = [*_epoch(asked, near), *_target(asked, near), *_toolchain(asked, near), *_options(asked, near)]
    if sizes:
        parts += [*_sizes(asked, near)]
    return tuple(
        Difference(each.name, _short(each.yours), _short(each.theirs), each.sentence) for each in parts
    )


def broken_guard(asked: Asked, near: NearKernel) -> tuple[str, str] | None:
    """The symbol and the condition for which the guard of a kernel rejects the sizes of the request."""
    other = _variant(asked, near)
    if other is None or not other.guard.symbols <= asked.sizes.known.keys():
        return None
    return other.guard.broken(asked.sizes.known)


def _epoch(asked: Asked, near: NearKernel) -> Iterator[Difference]:
    here, there = asked.namespace.epoch, near.epoch
    if not is_current_epoch(there, here):
        text = f"it belongs to epoch {there}, which was disowned: the namespace is in epoch {here}"
        yield Difference("epoch", str(here), str(there), text)


def _toolchain(asked: Asked, near: NearKernel) -> Iterator[Difference]:
    """What made it, and what would make it here: for its own kind of target."""
    toolchains = asked.toolchains
    here = toolchains.gpu if is_gpu(near.kernel.target) else toolchains.cpu
    if near.kernel.toolchain == here.digest:
        return
    ours = dict(here.ingredients)
    prefix = "toolchain."
    theirs = {k.removeprefix(prefix): v for k, v in near.ingredients if k.startswith(prefix)}
    if not theirs:
        yours, other = here.digest.hex(), near.kernel.toolchain.hex()
        text = f"the toolchain differs: {yours[:12]} here, {other[:12]} there; its ingredients are not stored"
        yield Difference("toolchain", yours, other, text)
        return
    for name in dict.fromkeys([*ours, *theirs]):
        mine, other = ours.get(name, ""), theirs.get(name, "")
        if mine != other:
            text = f"the toolchain differs: {_version(name, mine, other)}"
            yield Difference(f"{prefix}{name}", mine, other, text)


def _version(name: str, here: str, there: str) -> str:
    meaning = _MEANINGS.get(name, name)
    if _DIGEST.match(here) and _DIGEST.match(there):
        return f"{meaning} is another ({here[:12]} here, {there[:12]} there)"
    return f"{meaning} {here or 'unknown'} here, {there or 'unknown'} there"


def _target(asked: Asked, near: NearKernel) -> Iterator[Difference]:
    here, there = asked.kernel.target, near.kernel.target
    if here != there:
        yield Difference("target", here, there, f"compiled for {there}, you asked for {here}")


def _options(asked: Asked, near: NearKernel) -> Iterator[Difference]:
    here, there = _fields(asked.kernel.options), _fields(near.kernel.options)
    for name in dict.fromkeys([*here, *there]):
        ours, theirs = here.get(name, ""), there.get(name, "")
        if ours != theirs:
            text = f"compiled with {name} {theirs or 'unknown'}, you asked for {name} {ours or 'none'}"
            yield Difference(f"options.{name}", ours, theirs, text)


def _fields(options: str) -> Mapping[str, str]:
    """``numerics=default opt_level=3`` by name."""
    pairs = (part.partition("=") for part in options.split())
    return {name: value for name, _, value in pairs}


def _sizes(asked: Asked, near: NearKernel) -> Iterator[Difference]:
    here, there = asked.kernel, near.kernel
    if here.arg_spec != there.arg_spec:
        yield Difference("arg_spec", here.arg_spec, there.arg_spec, _size_words(asked, near))
    if here.guard == there.guard:
        return
    broken = broken_guard(asked, near)
    if broken is not None:
        symbol, condition = broken
        size = f"{symbol} ({asked.sizes.source(symbol)}) is {asked.sizes.known[symbol]}"
        text = f"its guard does not hold: {condition}, and {size} here"
    elif there.guard:
        text = f"it is for sizes with {there.guard} only"
    else:
        text = f"it is for all sizes, you asked for those with {here.guard}"
    yield Difference("guard", here.guard, there.guard, text)


def _size_words(asked: Asked, near: NearKernel) -> str:
    here, there = asked.kernel.arg_spec, near.kernel.arg_spec
    other = _variant(asked, near)
    mine = variant(asked.sizes, Shape(here, asked.kernel.guard))
    if other is not None and mine is not None and other.free and not mine.free and other.takes(asked.sizes):
        text = f"it is one kernel for all sizes of {_names(other)}, and takes yours"
        return f'{text}; you asked for one for {here} only (dynamic="auto" uses what is there)'
    pairs = zip_longest(here.split(";"), there.split(";"), fillvalue="nothing")
    changed = [f"argument {index} is {a} here and {b} there" for index, (a, b) in enumerate(pairs) if a != b]
    more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    return f"sizes differ: {', '.join(changed[:_SHOWN])}{more}"


def _names(shape: Variant) -> str:
    names = sorted(shape.free, key=lambda name: (len(name), name))
    return ", ".join(names)


def _variant(asked: Asked, near: NearKernel) -> Variant | None:
    return variant(asked.sizes, Shape(near.kernel.arg_spec, near.kernel.guard))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
