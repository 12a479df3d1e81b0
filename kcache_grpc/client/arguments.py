"""``layouts``, ``symbols``, ``dynamic`` and ``bound`` of ``compile``, as users write them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, cast

from kcache_grpc.errors import ArgumentError
from kcache_grpc.local_files import KcacheWarning
from kcache_grpc.model.options import Options
from kcache_grpc.model.sizes.modes import AUTO, DYNAMIC, EXACT, STATIC, Axis, Dim, ShapeRequirements
from kcache_grpc.programs.source import ProgramLike, read_source

#: Row-major, for all arguments or one by one.
Layouts = str | Iterable[str | None] | None
#: Which (argument, axis) are symbols; a mapping gives their bounds.
Symbols = Iterable[tuple[int, int]] | Mapping[tuple[int, int], Dim | None] | None
#: See docs/guide/variants.md.
Dynamic = bool | Literal["auto", "assume"]

#: Inputs by index or name, or all weights that a program brings.
Bound = Iterable[int | str] | Literal["weights"] | None

_MODES: Mapping[bool | str, str] = {False: STATIC, True: DYNAMIC, "auto": AUTO, "assume": DYNAMIC}
_ROW_MAJOR = (None, "row-major")


def with_bound(
    program: ProgramLike, format: str | None, options: Options | None, bound: Bound
) -> tuple[ProgramLike, Options | None]:
    """The program, read where names need it, and the options with the indices of ``bound``.

    Raises ``ArgumentError`` for names that the program does not give, and for ``"weights"`` of a program
    without any, or whose inputs have no names.
    """
    if bound is None:
        return program, options
    selection = "weights" if bound == "weights" else tuple(bound)
    if selection != "weights" and not any(isinstance(each, str) for each in selection):
        return program, replace(options or Options(), bound=cast("tuple[int, ...]", selection))
    source = read_source(program, format)
    arguments = source.arguments
    names = source.names if arguments is None else arguments.names
    if selection == "weights":
        if arguments is None or not names:
            raise ArgumentError("the program brings no weights by name: give the inputs to bind by index")
        updated = {each.position for each in arguments.written}
        indices = [index for index in range(len(arguments.given), len(names)) if index not in updated]
    else:
        unknown = [each for each in selection if isinstance(each, str) and each not in names]
        if unknown:
            known = ", ".join(names) or "none: give indices"
            raise ArgumentError(f"the program names no input {unknown[0]!r}; it names {known}")
        indices = [names.index(each) if isinstance(each, str) else each for each in selection]
    return source, replace(options or Options(), bound=tuple(indices))


def shape_requirements(layouts: Layouts, symbols: Symbols, dynamic: Dynamic) -> ShapeRequirements:
    """For which sizes a kernel is wanted. Warns of ``dynamic="assume"``.

    Raises ``ArgumentError`` for anything that is not documented.
    """
    if layouts is None and symbols is None and dynamic is False:
        return EXACT
    _require_row_major(layouts)
    mode, assume = _mode(dynamic), dynamic == "assume"
    if assume:
        warnings.warn(
            'dynamic="assume" takes the constants of a static program for the same at all sizes: where the '
            "program computes one from a size, such as x / sqrt(n), results at other sizes are wrong",
            KcacheWarning,
            stacklevel=3,
        )
    if symbols is None:
        return ShapeRequirements(mode, assume=assume)
    axes = _axes(symbols)
    if not axes:
        raise ArgumentError(
            "symbols names no axis; leave it out for all that may be symbols, or compile with dynamic=False",
            argument="symbols",
        )
    return ShapeRequirements(mode, axes, assume=assume)


def _axes(symbols: Any) -> tuple[tuple[Axis, Dim], ...]:
    if isinstance(symbols, str) or not isinstance(symbols, Iterable):
        raise ArgumentError(
            f"symbols is {symbols!r}; use (argument, axis) pairs, or a mapping of them to kcache.Dim",
            argument="symbols",
        )
    if isinstance(symbols, Mapping):
        bounds = cast("Mapping[Any, Any]", symbols)
        return tuple((_axis(pair), _dim(pair, dim)) for pair, dim in bounds.items())
    return tuple((_axis(pair), Dim()) for pair in cast("Iterable[Any]", symbols))


def _axis(pair: Any) -> Axis:
    if isinstance(pair, (tuple, list)):
        numbers = list(cast("Iterable[Any]", pair))
        if len(numbers) == 2 and all(type(number) is int and 0 <= number < 1 << 31 for number in numbers):
            return Axis(*numbers)
    raise ArgumentError(
        f"symbols names {pair!r}; use (argument, axis), two ints that count from 0", argument="symbols"
    )


def _dim(pair: Any, dim: Any) -> Dim:
    if dim is None:
        return Dim()
    if not isinstance(dim, Dim):
        raise ArgumentError(
            f"symbols[{pair!r}] is {dim!r}; use kcache.Dim(min=, max=, multiple_of=)", argument="symbols"
        )
    return dim


def _require_row_major(layouts: Any) -> None:
    if layouts is None or layouts == "row-major":
        return
    entries = cast("Iterable[Any]", layouts)
    if isinstance(layouts, (list, tuple)) and all(layout in _ROW_MAJOR for layout in entries):
        return
    raise ArgumentError(
        f"layouts is {layouts!r}; kernels of this version take row-major contiguous arguments only: leave "
        "layouts out, and pass np.ascontiguousarray(x) or x.contiguous()",
        argument="layouts",
    )


def _mode(dynamic: Any) -> str:
    if isinstance(dynamic, (bool, str)) and dynamic in _MODES:
        return _MODES[dynamic]
    raise ArgumentError(f'dynamic is {dynamic!r}; use False, True, "auto" or "assume"', argument="dynamic")
