"""Turns the bytes of a program into one verified module with one entry function.

Programs in MLIR are parsed; programs of other formats are translated by their importer. Every format except
``linalg`` ends as StableHLO.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.bound_arguments import PLACEHOLDER_TARGET, bind_arguments
from kcache_compiler.frontends.graph.program import GraphProgram
from kcache_compiler.frontends.imported import Imported
from kcache_compiler.frontends.limits import Limits, check
from kcache_compiler.frontends.mlir_source import DIALECTS, parse_mlir
from kcache_compiler.frontends.prescan import check_bytes
from kcache_compiler.frontends.quantized.legalize import Boundary, legalize_quantized, may_be_quantized
from kcache_compiler.frontends.size_arguments import convert_size_arguments
from kcache_compiler.frontends.stablehlo.constraints import check_constraints
from kcache_compiler.frontends.stablehlo.legalize_chlo import legalize_chlo
from kcache_compiler.frontends.torch.dialect import import_torch
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from torch_mlir.ir import WalkResult

    from kcache_compiler.mlir.types import Module, Op


#: Format -> (module, function) of its importer, which takes bytes and limits and returns a verified StableHLO
#: module in a context of ``context.new_context``, or an ``Imported`` if it binds weights or chooses sizes. It
#: checks the size of the bytes itself, and raises ``InvalidProgram``, ``UnsupportedOp`` or ``LimitExceeded``.
#: Loaded when the format is first read.
_IMPORTERS: dict[str, tuple[str, str]] = {
    "graph": ("kcache_compiler.frontends.graph.lower", "read_graph"),
    "onnx": ("kcache_compiler.frontends.onnx.model", "read_onnx"),
}
FORMATS = (*DIALECTS, *_IMPORTERS)

_GENERALIZE_PIPELINE = "builtin.module(func.func(convert-elementwise-to-linalg,linalg-generalize-named-ops))"

#: The source of a program: bytes, or for ``graph`` the decoded message.
Source = bytes | GraphProgram


@dataclass(frozen=True)
class Program:
    """A parsed program: its entry function and all functions by name. Owns its native module.

    ``format``: ``stablehlo`` or ``linalg``, the dialect of the module. ``bound``, ``dynamic_axes`` and
    ``counted_results``: see ``Imported``. ``others`` read the same program at other sample sizes of its
    dynamic dimensions, or return None if it is invalid at these; ``dynamic`` reads it with dynamic
    dimensions. ``boundary``: the quantized types of arguments and results, if there are any.
    ``size_arguments``: indices of the integer arguments that became dimensions (``size_arguments.py``).
    """

    format: str
    module: Module
    entry: Op
    functions: dict[str, Op]
    bound: Mapping[int, bytes] = field(default_factory=dict[int, bytes], repr=False)
    dynamic_axes: Mapping[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    others: tuple[Callable[[], Program | None], ...] = ()
    dynamic: Callable[[], Program] | None = None
    boundary: Boundary | None = None
    size_arguments: tuple[int, ...] = ()
    counted_results: tuple[tuple[int, int, int], ...] = ()


#: Called with the name of a stage when it starts.
OnStage = Callable[[str], None]


def ignore_stage(stage: str) -> None:
    """Do nothing: for callers that do not follow the stages."""


def read_program(program: Source, format: str, limits: Limits, on_stage: OnStage = ignore_stage) -> Program:
    """Return ``program``, parsed, verified and legalized.

    ``on_stage`` is called with ``read`` before native code parses the bytes, and with ``canonicalize`` after.

    Raises ``InvalidProgram``, ``UnsupportedOp`` or ``LimitExceeded``. CHLO ops without a node of their own
    are legalized and named linalg ops generalized; nothing is folded or simplified.
    """
    if format not in FORMATS:
        raise InvalidProgram(f"unknown format {format!r}; the formats are {', '.join(map(repr, FORMATS))}")
    if format in _IMPORTERS:
        module_name, function_name = _IMPORTERS[format]
        importer: Callable[[Source, Limits], Module | Imported] = getattr(
            import_module(module_name), function_name
        )
        module = importer(program, limits)
        if isinstance(module, Imported):
            return _from_import(module, limits)
    elif not isinstance(program, bytes):
        raise InvalidProgram(f"a GraphProgram has the format 'graph', and was sent as {format!r}")
    else:
        check_bytes(program, limits)
        on_stage("read")
        module = parse_mlir(program, format)
        on_stage("canonicalize")
        names = _check_operations(module, format, limits)
        if format in ("stablehlo", "linalg"):
            return _legalize(module, format, names, program, limits)
        return _from_import(import_torch(module), limits)
    return _legalize(module, "stablehlo", _check_operations(module, "stablehlo", limits))


def _from_import(imported: Imported, limits: Limits) -> Program:
    """Return the program of an ``Imported``, with the functions that read it again."""

    def legalized(module: Module) -> Program:
        return _legalize(module, "stablehlo", _check_operations(module, "stablehlo", limits))

    def read_again(read: Callable[[], Module | None]) -> Program | None:
        module = read()
        if module is None:
            return None
        return replace(legalized(module), bound=imported.bound, counted_results=imported.counted_results)

    dynamic = imported.dynamic
    return replace(
        legalized(imported.module),
        bound=imported.bound,
        dynamic_axes=imported.dynamic_axes,
        others=tuple(partial(read_again, read) for read in imported.others),
        counted_results=imported.counted_results,
        dynamic=None if dynamic is None else lambda: replace(legalized(dynamic()), bound=imported.bound),
    )


def _legalize(
    module: Module, format: str, names: set[str], source: bytes = b"", limits: Limits | None = None
) -> Program:
    """Return the program of a module with one public function, which may call others.

    ``names`` are the names of its operations; ``source`` is the text or bytecode, which may contain quantized
    types and placeholders of bound constants.
    """
    functions = functions_of(module)
    entry = entry_function(functions)
    reject_recursion(functions)
    boundary: Boundary | None = None
    sizes: tuple[int, ...] = ()
    if limits is not None and PLACEHOLDER_TARGET.encode() in source:
        bind_arguments(entry, functions, limits)
    if format == "stablehlo":
        check_constraints(module, names)
        sizes = convert_size_arguments(module, entry, functions, names)
        if may_be_quantized(source, module, names):
            boundary = legalize_quantized(module, entry, names)
        legalize_chlo(module, names)
    else:
        _generalize_linalg(module)
    functions = functions_of(module)
    entry = functions[symbol_of(entry)]
    return Program(format, module, entry, functions, boundary=boundary, size_arguments=sizes)


def _generalize_linalg(module: Module) -> None:
    """Rewrite named linalg ops, and scalar ops on whole tensors, as ``linalg.generic``, in place."""
    mlir.run_passes(module, _GENERALIZE_PIPELINE)


def _check_operations(module: Module, format: str, limits: Limits) -> set[str]:
    """Check the dialect of every operation and their number; return the names of the operations."""
    dialects, format_name = DIALECTS[format]
    names: set[str] = set()
    rejected: list[Op] = []
    count = 0
    ir = mlir.native_ir()
    advance, interrupt = ir.WalkResult.ADVANCE, ir.WalkResult.INTERRUPT

    def visit(operation: Op) -> WalkResult:
        nonlocal count
        count += 1
        if count > limits.operations:
            return interrupt
        name = operation.name
        if name not in names:
            names.add(name)
            if name.partition(".")[0] not in dialects:
                rejected.append(operation)
                return interrupt
        return advance

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    check("number of operations", count, limits.operations)
    if rejected:
        raise _dialect_error(rejected[0], format, format_name)
    return names


def _dialect_error(operation: Op, format: str, format_name: str) -> InvalidProgram:
    """Return the error for an operation of a dialect that the format does not allow."""
    dialect = operation.name.partition(".")[0]
    matching_format = next(
        (f for f, (dialects, _) in DIALECTS.items() if f != format and dialect in dialects), None
    )
    location = mlir.describe_location(operation.location)
    message = f"{operation.name}{' at ' + location if location else ''} is not {format_name}"
    if matching_format:
        message += f": this looks like a program of format {matching_format!r}, and was sent as {format!r}"
    return InvalidProgram(message)


def functions_of(module: Module) -> dict[str, Op]:
    """Return the functions of a module by name. Raises ``InvalidProgram`` for nested modules."""
    functions: dict[str, Op] = {}
    for child in mlir.child_operations(module.operation):
        if child.name == "func.func":
            functions[symbol_of(child)] = child
        elif child.name == "builtin.module":
            raise InvalidProgram("the program contains a nested module: send one flat module")
    return functions


def symbol_of(function: Op) -> str:
    """Return the symbol name of a function."""
    try:
        return lazy.string(function.attributes["sym_name"])
    except RuntimeError:
        raise InvalidProgram("the name of a function contains bytes that are not UTF-8") from None


def entry_function(functions: dict[str, Op]) -> Op:
    """Return the only public function with a body, or ``main`` if there are several."""
    bodies = {name: f for name, f in functions.items() if _has_body(f)}
    if not bodies:
        raise InvalidProgram("the module has no function with a body: define one public function, @main")
    public = {name: f for name, f in bodies.items() if _is_public(f)}
    if not public:
        raise InvalidProgram(
            f"all functions are private ({_list_names(bodies)}): make the one to run public, as @main"
        )
    if len(public) == 1:
        return next(iter(public.values()))
    if "main" in public:
        return public["main"]
    raise InvalidProgram(
        f"the module has several public functions ({_list_names(public)}) and none is called @main: "
        "make all but one private, or rename the one to run to main"
    )


def _list_names(functions: dict[str, Op]) -> str:
    names = [f"@{name}" for name in sorted(functions)]
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


def _has_body(function: Op) -> bool:
    return len(function.regions[0].blocks) > 0


def _is_public(function: Op) -> bool:
    attributes = function.attributes
    return "sym_visibility" not in attributes or lazy.string(attributes["sym_visibility"]) == "public"


def reject_recursion(functions: dict[str, Op]) -> None:
    """Raise ``InvalidProgram`` for a cycle of calls or of composites, which name their decomposition."""
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
                raise InvalidProgram(f"function @{callee} is recursive: @{name} calls it")
            elif callee in edges and callee not in state:
                stack.append((callee, iter(edges[callee])))


def _callees(function: Op) -> list[str]:
    """Return the functions that a function calls, and the decompositions of its composites."""
    ir = mlir.native_ir()
    callees: dict[str, None] = {}

    def visit(operation: Op) -> WalkResult:
        name = operation.name
        if name == "func.call":
            callees[lazy.string(operation.attributes["callee"])] = None
        elif name == "stablehlo.composite":
            callees[lazy.string(operation.attributes["decomposition"])] = None
        elif name == "func.call_indirect":
            raise UnsupportedOp(
                name, "only direct calls are supported", mlir.describe_location(operation.location)
            )
        return ir.WalkResult.ADVANCE

    function.walk(visit, ir.WalkOrder.PRE_ORDER)
    return list(callees)
