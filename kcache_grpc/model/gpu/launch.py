"""Launches of a GPU kernel as its manifest says them, checked before anything trusts them, and evaluated.

docs/reference/gpu-abi.md documents them for clients in any language.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kcache_grpc.errors import IntegrityError
from kcache_grpc.model.sizes.expression import comparison, evaluate, holds, parse, symbols_of

#: Most threads of a block, and most in x, y, z.
MAX_BLOCK_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
#: Most blocks of a grid in x, y, z.
MAX_GRID = (2**31 - 1, 65535, 65535)
#: Parameters of 8 bytes: what every architecture takes, 4 KiB.
MAX_PARAMS = 512
MAX_LAUNCHES = 1 << 16
#: More shared memory in bytes than any block has.
_MAX_SHARED = 1 << 20
_ENTRY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{0,1023}")
_PARAM = re.compile(
    r"buffer:(?P<buffer>0|[1-9][0-9]{0,8})|(?P<kind>workspace|i64):(?P<formula>.+)", re.DOTALL
)

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class GpuResources:
    """What ``ptxas`` gave an entry: registers and bytes spilled a thread, static shared bytes a block."""

    registers: int
    spill_bytes: int
    static_shared: int


@dataclass(frozen=True)
class GpuLaunchSpec:
    """One launch; fields as in protos/kcache/v1/manifest.proto."""

    name: str
    ops: tuple[str, ...]
    entry: str
    when: str
    grid: tuple[str, str, str]
    block: Triple
    shared_bytes: str
    params: tuple[str, ...]
    resources: GpuResources | None = None


@dataclass(frozen=True)
class Param:
    """One parameter at given sizes: the pointer of buffer ``value``, the workspace plus ``value`` bytes, or
    the number ``value``; ``kind`` is "buffer", "workspace" or "i64".
    """

    kind: str
    value: int


@dataclass(frozen=True)
class GpuCall:
    """A launch at given sizes."""

    name: str
    entry: str
    grid: Triple
    block: Triple
    shared_bytes: int
    params: tuple[Param, ...]


class TooLarge(Exception):
    """A launch at these sizes is beyond what a GPU can do."""


def require_valid(launches: tuple[GpuLaunchSpec, ...], symbols: Collection[str], buffers: int) -> None:
    """Raises ``IntegrityError`` unless each launch can be evaluated whatever the sizes are, with these
    symbols and this many buffers.
    """
    if len(launches) > MAX_LAUNCHES:
        raise IntegrityError(f"a kernel of {len(launches)} launches has more than {MAX_LAUNCHES}")
    names = {launch.name for launch in launches}
    if len(names) < len(launches):
        raise IntegrityError("two launches of the kernel have one name")
    for launch in launches:
        _require_named(launch, symbols, buffers)


def require_checks(checks: tuple[str, ...], symbols: Collection[str]) -> None:
    """Raises ``IntegrityError`` unless each is a comparison over these symbols."""
    for check in checks:
        comparison(check)
        _require_known(check, symbols)


def calls(launches: tuple[GpuLaunchSpec, ...], symbols: Mapping[str, int]) -> tuple[GpuCall, ...]:
    """The launches that run at these sizes, in order.

    Raises ``TooLarge`` for a grid that no GPU takes, ``IntegrityError`` for a launch that makes no sense, and
    its subclass ``FormulaOverflow`` for sizes that are too large for its formulas.
    """
    bound = (_call(launch, symbols) for launch in launches if holds(launch.when, symbols))
    return tuple(call for call in bound if call is not None)


def _require_named(launch: GpuLaunchSpec, symbols: Collection[str], buffers: int) -> None:
    try:
        _require_valid(launch, symbols, buffers)
    except IntegrityError as error:
        raise IntegrityError(f"launch {launch.name!r}: {error.message}") from error


def _require_valid(launch: GpuLaunchSpec, symbols: Collection[str], buffers: int) -> None:
    if not _ENTRY.fullmatch(launch.entry):
        raise IntegrityError(f"{launch.entry[:80]!r} is not the name of an entry")
    x, y, z = launch.block
    within = all(1 <= size <= most for size, most in zip(launch.block, MAX_BLOCK, strict=True))
    if not within or x * y * z > MAX_BLOCK_THREADS:
        raise IntegrityError(f"no GPU has blocks of {x} x {y} x {z} threads")
    if len(launch.params) > MAX_PARAMS:
        raise IntegrityError(f"{len(launch.params)} parameters are more than {MAX_PARAMS}")
    if launch.when:
        comparison(launch.when)
        _require_known(launch.when, symbols)
    parsed = [_parameter(text) for text in launch.params]
    formulas = [formula for _, formula in parsed if formula]
    for formula in (*launch.grid, launch.shared_bytes, *formulas):
        parse(formula)
        _require_known(formula, symbols)
    for buffer, _ in parsed:
        if buffer >= buffers:
            raise IntegrityError(f"it takes buffer {buffer}, and the kernel has {buffers}")


def _require_known(formula: str, symbols: Collection[str]) -> None:
    unknown = [name for name in symbols_of(formula) if name not in symbols]
    if unknown:
        raise IntegrityError(f"formula {formula!r} names the unknown symbol {unknown[0]!r}")


def _parameter(text: str) -> tuple[int, str]:
    """The buffer, or -1 and the formula."""
    match = _PARAM.fullmatch(text)
    if match is None:
        raise IntegrityError(f"{text[:80]!r} is not a parameter")
    return (int(match["buffer"]), "") if match["buffer"] else (-1, match["formula"])


def _call(launch: GpuLaunchSpec, symbols: Mapping[str, int]) -> GpuCall | None:
    """None where a dimension of the grid is 0."""
    x, y, z = (
        _size(launch, f"grid in {axis}", text, symbols) for axis, text in zip("xyz", launch.grid, strict=True)
    )
    shared = _size(launch, "shared memory", launch.shared_bytes, symbols)
    if 0 in (x, y, z):
        return None
    _require_grid(launch, (x, y, z), shared)
    params = tuple(_param(launch, text, symbols) for text in launch.params)
    return GpuCall(launch.name, launch.entry, (x, y, z), launch.block, shared, params)


def _require_grid(launch: GpuLaunchSpec, grid: Triple, shared: int) -> None:
    for axis, size, most in zip("xyz", grid, MAX_GRID, strict=True):
        if size > most:
            raise TooLarge(
                f"launch {launch.name} takes {size} blocks in {axis}, and a GPU has {most} at most: call the "
                "kernel on parts of the arrays"
            )
    if shared > _MAX_SHARED:
        raise TooLarge(f"launch {launch.name} takes {shared} bytes of shared memory, more than any GPU has")


def _size(launch: GpuLaunchSpec, field: str, formula: str, symbols: Mapping[str, int]) -> int:
    value = evaluate(formula, symbols)
    if value < 0:
        raise IntegrityError(f"launch {launch.name!r}: its {field} is {value} at these sizes")
    return value


def _param(launch: GpuLaunchSpec, text: str, symbols: Mapping[str, int]) -> Param:
    buffer, formula = _parameter(text)
    if not formula:
        return Param("buffer", buffer)
    if text.startswith("workspace:"):
        return Param("workspace", _size(launch, "workspace offset", formula, symbols))
    return Param("i64", evaluate(formula, symbols))
