"""Programs in the Torch dialect from which rejected operations are removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends.limits import Limits
from kcache_compiler.frontends.prescan import check_bytes, is_bytecode
from kcache_compiler.frontends.torch.dialect import OPEN_AXES
from kcache_compiler.frontends.torch.lowering import STRUCTURE
from kcache_compiler.frontends.torch.torch_op import name_of
from kcache_compiler.mlir import context as mlir
from kcache_compiler.spec.graph.native import function_type, string

if TYPE_CHECKING:
    from torch_mlir import ir

_OTHER = "main_at_other_sizes"


class TorchOps:
    """A program from which operations are removed; their results become arguments."""

    def __init__(self, program: bytes, limits: Limits) -> None:
        self.source = program
        self.note = ""
        self.operations = 0
        check_bytes(program, limits)
        try:
            source = program if is_bytecode(program) else program.decode()
            module: ir.Module = mlir.parse_module(source, mlir.new_context())
        except (mlir.mlir_error(), UnicodeDecodeError, RuntimeError):
            self._module = None  # the compile reports it
            return
        self._module: ir.Module | None = module
        self._axes = OPEN_AXES in module.operation.attributes
        functions = [op for op in mlir.child_operations(module.operation) if _symbol(op) != _OTHER]
        self.operations = sum(_computes(op) for function in functions for op in mlir.all_operations(function))

    def remove(self, error: UnsupportedOp) -> bool:
        """Remove the operation of an error; False if it cannot be identified.

        It is the one with the name and location of the error, else the one with the location, if a pass
        renamed it, or with the name, if a pass lost its location.
        """
        if self._module is None:
            return False
        operations = mlir.all_operations(self._module.operation)
        located = [op for op in operations if mlir.describe_location(op.location) == error.location]
        named = [op for op in operations if name_of(op) == error.op]
        both = [op for op in named if op in located]
        matches = both or (located if error.location and not named else named)
        if not matches or not all("vtensor<[" in str(result.type) for result in matches[0].results):
            return False
        if self._axes:
            self._module = self._make_static(self._module)
            return self.remove(error)
        _replace(matches[0])
        self.source = self._module.operation.get_asm(enable_debug_info=True).encode()
        return True

    def _make_static(self, module: ir.Module) -> ir.Module:
        """Keep one of the two sizes at which a program with dynamic axes is exported."""
        self._axes = False
        self.note = "after the first rejection, the program was checked at static sizes"
        text = module.operation.get_asm(enable_debug_info=True)
        static: ir.Module = mlir.parse_module(text, module.context)
        del static.operation.attributes[OPEN_AXES]
        for child in mlir.child_operations(static.operation):
            if _symbol(child) == _OTHER:
                child.erase()
        return static


def _replace(operation: ir.Operation) -> None:
    """Replace the results of an operation by new arguments of its function, and erase it."""
    native = mlir.native_ir()
    function = operation
    while function.name != "func.func":
        assert function.parent is not None
        function = function.parent.operation
    block = function.regions[0].blocks[0]
    with operation.context, native.Location.unknown():
        for result in operation.results:
            argument = block.add_argument(result.type, native.Location.unknown())
            result.replace_all_uses_with(argument)
        inputs = [argument.type for argument in block.arguments]
        kind = native.FunctionType.get(inputs, function_type(function).results)
        function.attributes["function_type"] = native.TypeAttr.get(kind)
    operation.erase()


def _computes(operation: ir.Operation) -> bool:
    return operation.name.startswith("torch.") and STRUCTURE.match(operation.name) is None


def _symbol(operation: ir.Operation) -> str:
    return string(operation.attributes, "sym_name") if "sym_name" in operation.attributes else ""
