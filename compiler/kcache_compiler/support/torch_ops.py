"""Programs in the Torch dialect, op by op: what is refused is taken away, and the rest tried."""

from __future__ import annotations

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.frontends import Limits
from kcache_compiler.frontends.prescan import check_bytes, is_bytecode
from kcache_compiler.frontends.torch.dialect import OPEN_AXES
from kcache_compiler.frontends.torch.lowering import STRUCTURE
from kcache_compiler.frontends.torch.site import name_of
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

_OTHER = "main_at_other_sizes"


class TorchOps:
    """A program, and the same without some operations, whose results become arguments."""

    def __init__(self, program: bytes, limits: Limits) -> None:
        self.source = program
        self.note = ""
        self.operations = 0
        check_bytes(program, limits)
        try:
            source = program if is_bytecode(program) else program.decode()
            self._module: Native = mlir.parse_module(source, mlir.new_context())
        except (mlir.mlir_error(), UnicodeDecodeError, RuntimeError):
            self._module = None  # the compile says what is wrong
            return
        self._axes = OPEN_AXES in self._module.operation.attributes
        functions = [
            each for each in mlir.child_operations(self._module.operation) if _symbol(each) != _OTHER
        ]
        self.operations = sum(_computes(op) for each in functions for op in mlir.all_operations(each))

    def take_away(self, error: UnsupportedOp) -> bool:
        """Take the operation of an error away: that of its name and place, or of its place where passes named
        it, or of its name where they lost its place.
        """
        if self._module is None:
            return False
        placed = [each for each in self._all() if mlir.describe_location(each.location) == error.location]
        named = [each for each in self._all() if name_of(each) == error.op]
        here = [each for each in named if each in placed]
        chosen = here or (placed if error.location and not named else named)
        if not chosen or not all("vtensor<[" in str(result.type) for result in chosen[0].results):
            return False
        if self._axes:
            self._fix_sizes()
            return self.take_away(error)
        self._replace(chosen[0])
        self.source = self._module.operation.get_asm(enable_debug_info=True).encode()
        return True

    def _all(self) -> list[Native]:
        return mlir.all_operations(self._module.operation)

    def _fix_sizes(self) -> None:
        """Look on at one of the two sizes that a program with open axes is written at."""
        self._axes = False
        self.note = "after the first refusal the program was looked at with fixed sizes"
        text = self._module.operation.get_asm(enable_debug_info=True)
        self._module = mlir.parse_module(text, self._module.context)
        del self._module.operation.attributes[OPEN_AXES]
        for child in mlir.child_operations(self._module.operation):
            if _symbol(child) == _OTHER:
                child.erase()

    def _replace(self, operation: Native) -> None:
        native = mlir.native_ir()
        function = operation
        while function.name != "func.func":
            function = function.parent.operation
        block = function.regions[0].blocks[0]
        with self._module.context, native.Location.unknown():
            for result in operation.results:
                made = block.add_argument(result.type, native.Location.unknown())
                result.replace_all_uses_with(made)
            kind = native.FunctionType(function.attributes["function_type"].value)
            inputs = [argument.type for argument in block.arguments]
            function.attributes["function_type"] = native.TypeAttr.get(
                native.FunctionType.get(inputs, kind.results)
            )
        operation.erase()


def _computes(operation: Native) -> bool:
    return operation.name.startswith("torch.") and STRUCTURE.match(operation.name) is None


def _symbol(operation: Native) -> str:
    return operation.attributes["sym_name"].value if "sym_name" in operation.attributes else ""
