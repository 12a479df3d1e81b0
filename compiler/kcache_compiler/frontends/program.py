"""From program bytes to one verified module with one entry function.

Programs in MLIR are parsed here; those of other formats are turned into a module by their importer. Every
format but ``linalg`` ends as StableHLO.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module

from kcache_compiler.errors import InvalidProgram, LimitExceeded, UnsupportedOp
from kcache_compiler.frontends.bound_arguments import TARGET, bind_arguments
from kcache_compiler.frontends.graph.program import GraphProgram
from kcache_compiler.frontends.imported import Imported
from kcache_compiler.frontends.legalize import generalize_linalg, legalize_chlo
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.frontends.prescan import check_bytes, is_bytecode, is_portable_artifact
from kcache_compiler.frontends.quantized.legalize import Boundary, legalize_quantized, may_be_quantized
from kcache_compiler.frontends.size_arguments import name_sizes
from kcache_compiler.frontends.stablehlo.constraints import check_constraints
from kcache_compiler.frontends.stablehlo.legacy_text import upgraded
from kcache_compiler.frontends.torch.dialect import import_torch
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

#: Formats in MLIR -> (dialects that its programs may use, a word for messages).
_DIALECTS: dict[str, tuple[frozenset[str], str]] = {
    "stablehlo": (
        frozenset({"builtin", "func", "stablehlo", "chlo", "arith", "tensor", "shape"}),
        "StableHLO",
    ),
    "linalg": (
        frozenset(
            {"builtin", "func", "linalg", "tensor", "arith", "math", "complex", "affine", "scf", "index"}
        ),
        "linalg on tensors",
    ),
    "torch": (frozenset({"builtin", "func", "torch"}), "Torch dialect"),
}
#: Other formats -> module and function that makes of bytes and limits a StableHLO module, verified, in a
#: context of ``context.new_context``. It checks the size of the bytes itself, and raises ``InvalidProgram``,
#: ``UnsupportedOp`` or ``LimitExceeded``. Loaded when the format is first read.
#: One that binds weights or chooses sizes gives an ``Imported``.
_IMPORTERS: dict[str, tuple[str, str]] = {
    "graph": ("kcache_compiler.frontends.graph.module", "read_graph"),
    "onnx": ("kcache_compiler.frontends.onnx.model", "read_onnx"),
}
FORMATS = (*_DIALECTS, *_IMPORTERS)

#: A program as its format has it: bytes, or for ``graph`` the values that its message was decoded into.
Source = bytes | GraphProgram

#: The parser calls its buffer ``-``.
_PLACE = re.compile(r'"-":(\d+):(\d+)')

#: An operation of the dialects that have constraints.
_OPERATION = re.compile(r"[\"']?((?:stablehlo|chlo)\.\w+)")

#: What the parser says of a quantized type.
_QUANTIZED_TYPE = re.compile(
    r"scale \S+ out of expressed type range|illegal (scale|storage)|(quantized|expressed) "
)

#: Attributes in bytecode that belong to a dialect which is not here.
_CLOSED = re.compile(r"dialect '(\w+)' does not implement the bytecode interface")


@dataclass(frozen=True)
class Program:
    """A parsed program: the entry function and all functions by name. Owns its native module.

    ``format`` is what the module is now: ``stablehlo`` or ``linalg``. ``bound`` and ``open_axes`` are those
    of ``Imported``; ``others`` read the same program with other sizes for its open axes, or give None
    where it has none of these; ``dynamic`` reads it with unknown ones. ``boundary``: what the integers of its
    arguments and results stand for, where some are quantized. ``size_arguments``: the arguments, by
    index, that were integers and are axes without elements (``size_arguments.py``). ``counted_results`` are
    those of ``Imported``.
    """

    format: str
    module: Native
    entry: Native
    functions: dict[str, Native]
    bound: Mapping[int, bytes] = field(default_factory=dict[int, bytes], repr=False)
    open_axes: Mapping[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    others: tuple[Callable[[], Program | None], ...] = ()
    dynamic: Callable[[], Program] | None = None
    boundary: Boundary | None = None
    size_arguments: tuple[int, ...] = ()
    counted_results: tuple[tuple[int, int, int], ...] = ()


#: Is told what begins.
OnStage = Callable[[str], None]


def ignore_stage(stage: str) -> None:
    """The caller does not follow stages."""


def read_program(program: Source, format: str, limits: Limits, on_stage: OnStage = ignore_stage) -> Program:
    """Parse, verify and legalize ``program``.

    ``on_stage`` is told ``read`` when native code begins to parse bytes, and ``canonicalize`` when it has.

    Raises ``InvalidProgram``, ``UnsupportedOp`` or ``LimitExceeded``. CHLO that has no node of its
    own is legalized; named linalg ops are generalized; nothing is folded or simplified.
    """
    if format not in FORMATS:
        raise InvalidProgram(f"unknown format {format!r}; known are {', '.join(map(repr, FORMATS))}")
    if format in _IMPORTERS:
        home, name = _IMPORTERS[format]
        importer: Callable[[Source, Limits], Native] = getattr(import_module(home), name)
        module = importer(program, limits)
        if isinstance(module, Imported):
            return _imported(module, limits)
    elif not isinstance(program, bytes):
        raise InvalidProgram(f"a GraphProgram has the format 'graph', and was sent as {format!r}")
    else:
        check_bytes(program, limits)
        on_stage("read")
        module = _parse(program, format)
        on_stage("canonicalize")
        names = _inspect(module, format, limits)
        if format in ("stablehlo", "linalg"):
            return _finished(module, format, names, program, limits)
        return _imported(import_torch(module), limits)
    return _finished(module, "stablehlo", _inspect(module, "stablehlo", limits))


def _imported(imported: Imported, limits: Limits) -> Program:
    def finished(module: Native) -> Program:
        return _finished(module, "stablehlo", _inspect(module, "stablehlo", limits))

    def again(read: Callable[[], Native | None]) -> Program | None:
        module = read()
        if module is None:
            return None
        return replace(finished(module), bound=imported.bound, counted_results=imported.counted_results)

    dynamic = imported.dynamic
    return replace(
        finished(imported.module),
        bound=imported.bound,
        open_axes=imported.open_axes,
        others=tuple(partial(again, read) for read in imported.others),
        counted_results=imported.counted_results,
        dynamic=None if dynamic is None else lambda: replace(finished(dynamic()), bound=imported.bound),
    )


def _finished(
    module: Native, format: str, names: set[str], source: bytes = b"", limits: Limits | None = None
) -> Program:
    """Legalize a module of one public function, which may call others. ``names`` are its operations;
    ``source`` is what it was read from, where that may have quantized types, or arguments that the client
    binds.
    """
    functions = _functions(module)
    entry = _entry(functions)
    _refuse_recursion(functions)
    boundary: Boundary | None = None
    sizes: tuple[int, ...] = ()
    if limits is not None and TARGET.encode() in source:
        bind_arguments(entry, functions, limits)
    if format == "stablehlo":
        check_constraints(module, names)
        sizes = name_sizes(module, entry, functions, names)
        if may_be_quantized(source, module, names):
            boundary = legalize_quantized(module, entry, names)
        legalize_chlo(module, names)
    else:
        generalize_linalg(module)
    functions = _functions(module)
    entry = functions[_symbol(entry)]
    return Program(format, module, entry, functions, boundary=boundary, size_arguments=sizes)


def _parse(program: bytes, format: str) -> Native:
    context = mlir.new_context()
    portable = is_portable_artifact(program)
    source = program if is_bytecode(program) else program.decode("utf-8")
    module = _guarded(lambda: _parsed(source, context), program, format)
    if portable:
        oldest, newest = mlir.artifact_versions()
        try:
            return mlir.upgrade_artifact(program, context)
        except ValueError:
            raise InvalidProgram(
                "the portable artifact does not convert to StableHLO: "
                f"this toolchain reads versions {oldest} to {newest}"
            ) from None
    if any(child.name.startswith("vhlo.") for child in mlir.child_operations(module.operation)):
        newest = mlir.artifact_versions()[1]
        passes = f"builtin.module(vhlo-to-version{{target={newest}}},vhlo-legalize-to-stablehlo)"
        _guarded(lambda: mlir.run_passes(module, passes), program, format)
    return module


def _parsed(source: str | bytes, context: Native) -> Native:
    try:
        return mlir.parse_module(source, context)
    except mlir.mlir_error() as error:
        if isinstance(source, bytes) or (newer := upgraded(source, str(error))) == source:
            raise
        return mlir.parse_module(newer, context)


def _guarded(step: Callable[[], Native], program: bytes, format: str) -> Native:
    try:
        result = step()
    except mlir.mlir_error() as error:
        raise InvalidProgram(_explain(error, format, program)) from None
    except RuntimeError:
        # The bindings cannot even decode the diagnostic, which quotes the program.
        raise InvalidProgram(
            f"the program is not valid {_DIALECTS[format][1]}: it holds bytes that are not text"
        ) from None
    return result


def _explain(error: Exception, format: str, program: bytes) -> str:
    native: Native = error
    diagnostics = list(native.error_diagnostics)
    lines = [f"{_line_of(d.location)}{_said(d, program)}" for d in diagnostics[:3]] or [str(error)[:2000]]
    text = "; ".join(lines)[:4000]
    word = _DIALECTS[format][1]
    closed = _CLOSED.search(text)
    if closed:
        what = "notes on sharding, " if closed[1] == "sdy" else ""
        return (
            f"the program is not valid {word}: its bytecode holds {what}attributes of the dialect "
            f"{closed[1]!r}, which only that dialect can read: send the program as text, or without them"
        )
    if "'sdy." in text:
        text += " (sdy spreads a program over several devices; a kernel runs on one)"
    elif "unregistered" in text or "not found for custom op" in text:
        text += f" (a {word} program may use only the dialects {', '.join(sorted(_DIALECTS[format][0]))})"
    return f"the program is not valid {word}: {text}"


def _said(diagnostic: Native, program: bytes) -> str:
    """What a diagnostic says, with the operation at its place where it names none itself."""
    message = str(diagnostic.message).strip()
    if _QUANTIZED_TYPE.match(message):
        return f"quant.uniform: {message}"
    place = _PLACE.search(str(diagnostic.location))
    if place is None or is_bytecode(program) or _OPERATION.search(message):
        return message
    number, column = int(place[1]), int(place[2])
    lines = program.split(b"\n", number)
    text = lines[number - 1][:2000] if 0 < number <= len(lines) else b""
    found = _OPERATION.match(text.decode(errors="replace"), max(column - 1, 0))
    return f"{found[1]}: {message}" if found else message


def _line_of(location: Native) -> str:
    match = _PLACE.search(str(location))
    return f"line {match[1]}, column {match[2]}: " if match and match[1] != "0" else ""


def _inspect(module: Native, format: str, limits: Limits) -> set[str]:
    """Check every operation's dialect and count them; return the names that occur."""
    allowed, word = _DIALECTS[format]
    names: set[str] = set()
    stray: list[Native] = []
    count = 0
    ir = mlir.native_ir()
    advance, interrupt = ir.WalkResult.ADVANCE, ir.WalkResult.INTERRUPT

    def visit(operation: Native) -> Native:
        nonlocal count
        count += 1
        if count > limits.operations:
            return interrupt
        name = operation.name
        if name not in names:
            names.add(name)
            if name.partition(".")[0] not in allowed:
                stray.append(operation)
                return interrupt
        return advance

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    check("number of operations", count, limits.operations)
    if stray:
        raise _stray_dialect(stray[0], format, word)
    return names


def _stray_dialect(operation: Native, format: str, word: str) -> InvalidProgram:
    dialect = operation.name.partition(".")[0]
    other = next((f for f, (dialects, _) in _DIALECTS.items() if f != format and dialect in dialects), None)
    where = mlir.describe_location(operation.location)
    message = f"{operation.name}{' at ' + where if where else ''} is not {word}"
    if other:
        message += f": this looks like a program of format {other!r}, and was sent as {format!r}"
    return InvalidProgram(message)


def _functions(module: Native) -> dict[str, Native]:
    functions: dict[str, Native] = {}
    for child in mlir.child_operations(module.operation):
        if child.name == "func.func":
            functions[_symbol(child)] = child
        elif child.name == "builtin.module":
            raise InvalidProgram("the program holds a module inside its module: send one flat module")
    return functions


def _symbol(function: Native) -> str:
    try:
        return function.attributes["sym_name"].value
    except RuntimeError:
        raise InvalidProgram("the name of a function holds bytes that are not text") from None


def _entry(functions: dict[str, Native]) -> Native:
    """Return the only function that has a body and is public, or ``main`` among several."""
    bodies = {name: f for name, f in functions.items() if _has_body(f)}
    if not bodies:
        raise InvalidProgram("the module has no function with a body: define one public function, @main")
    public = {name: f for name, f in bodies.items() if _is_public(f)}
    if not public:
        raise InvalidProgram(
            f"all functions are private ({_listed(bodies)}): make the one to run public, as @main"
        )
    if len(public) == 1:
        return next(iter(public.values()))
    if "main" in public:
        return public["main"]
    raise InvalidProgram(
        f"the module has several public functions ({_listed(public)}) and none is called @main: "
        "make all but one private, or rename the one to run to main"
    )


def _listed(functions: dict[str, Native]) -> str:
    names = [f"@{name}" for name in sorted(functions)]
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


def _has_body(function: Native) -> bool:
    return len(function.regions[0].blocks) > 0


def _is_public(function: Native) -> bool:
    attributes = function.attributes
    return "sym_visibility" not in attributes or attributes["sym_visibility"].value == "public"


def _refuse_recursion(functions: dict[str, Native]) -> None:
    """Raise ``InvalidProgram`` for a cycle of calls (or composites, which name their decomposition)."""
    edges = {name: _callees(function) for name, function in functions.items()}
    state: dict[str, int] = {}
    for root in edges:
        stack = [(root, iter(edges[root]))]
        while stack:
            name, pending = stack[-1]
            state.setdefault(name, 1)
            callee = next(pending, None)
            if callee is None:
                state[name] = 2
                stack.pop()
            elif state.get(callee) == 1:
                raise InvalidProgram(f"function @{callee} is recursive, by way of @{name}")
            elif callee in edges and callee not in state:
                stack.append((callee, iter(edges[callee])))


def _callees(function: Native) -> list[str]:
    ir = mlir.native_ir()
    found: dict[str, None] = {}

    def visit(operation: Native) -> Native:
        name = operation.name
        if name == "func.call":
            found[operation.attributes["callee"].value] = None
        elif name == "stablehlo.composite":
            found[operation.attributes["decomposition"].value] = None
        elif name == "func.call_indirect":
            raise UnsupportedOp(
                name, "calls must name their function", mlir.describe_location(operation.location)
            )
        return ir.WalkResult.ADVANCE

    function.walk(visit, ir.WalkOrder.PRE_ORDER)
    return list(found)


__all__ = ["FORMATS", "LimitExceeded", "Program", "read_program"]
