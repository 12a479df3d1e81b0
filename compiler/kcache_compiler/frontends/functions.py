"""The functions of a module: the entry function, and the call graph, which has no cycles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from torch_mlir.ir import WalkResult

    from kcache_compiler.mlir.types import Module, Op


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
