"""Imports programs in the Torch dialect, as torch-mlir's FX importer writes them.

An export with dynamic shapes is sent as a module with the program at two sample sizes, ``@main`` and
``@main_at_other_sizes``, and the attribute ``kcache.open_axes = [[argument, axis, "name"], ...]`` with its
dynamic dimensions. Equal names are equal sizes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.imported import Imported
from kcache_compiler.frontends.torch.lowering import lower_torch_to_stablehlo
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir import lazy

if TYPE_CHECKING:
    from kcache_compiler.mlir.types import Attribute, Module, Op

OPEN_AXES = "kcache.open_axes"
_MAIN, _OTHER = "main", "main_at_other_sizes"
_SHAPE = re.compile(r"!torch\.vtensor<\[([^\]]*)\],")


def import_torch(module: Module) -> Imported:
    """Lower a parsed module in place. Raises ``InvalidProgram`` or ``UnsupportedOp``."""
    _reject_mutable(module)
    if OPEN_AXES not in module.operation.attributes:
        lower_torch_to_stablehlo(module)
        return Imported(module)
    functions = _functions(module)
    shapes = [_shapes(functions, name) for name in (_MAIN, _OTHER)]
    axes = _dynamic_dims(module.operation.attributes[OPEN_AXES], shapes)
    other = _extract(module, _OTHER)
    main = _extract(module, _MAIN)
    lower_torch_to_stablehlo(main)

    def lower_other() -> Module:
        lower_torch_to_stablehlo(other)
        return other

    return Imported(main, dynamic_axes=axes, others=(lower_other,))


def _reject_mutable(module: Module) -> None:
    """Raise for tensors without value semantics."""
    for operation in mlir.all_operations(module.operation):
        if operation.name == "func.func" and "!torch.tensor" in str(operation.attributes["function_type"]):
            name = lazy.string(operation.attributes["sym_name"])
            raise UnsupportedOp(
                "torch.overwrite.tensor.contents",
                f"@{name} has a !torch.tensor, which is mutable: import the program with value semantics "
                "(!torch.vtensor)",
                mlir.describe_location(operation.location),
            )


def _functions(module: Module) -> dict[str, Op]:
    children = mlir.child_operations(module.operation)
    return {
        lazy.string(child.attributes["sym_name"]): child for child in children if child.name == "func.func"
    }


def _shapes(functions: dict[str, Op], name: str) -> list[list[str]]:
    function = functions.get(name)
    if function is None:
        raise InvalidProgram(f"a program with {OPEN_AXES} must have the functions @{_MAIN} and @{_OTHER}")
    types = lazy.function_type(function).inputs
    matches = [_SHAPE.match(str(type)) for type in types]
    return [match[1].split(",") if match and match[1] else [] for match in matches]


def _dynamic_dims(attribute: Attribute, shapes: list[list[list[str]]]) -> dict[tuple[int, int], str]:
    """Return the dimensions that the attribute names, checked to differ between the two programs."""
    try:
        rows = [list(lazy.array(row)) for row in lazy.array(attribute)]
        # Converted, because entries may be of another class than they should be.
        dims = {
            (int(lazy.integer(argument)), int(lazy.integer(axis))): str(lazy.string(name))
            for argument, axis, name in rows
        }
        sizes = [{dim: shape[dim[0]][dim[1]] for dim in dims} for shape in shapes]
    except (AttributeError, IndexError, TypeError, ValueError):
        raise InvalidProgram(
            f'{OPEN_AXES} must be a list of [argument, axis, "name"] with axes of @{_MAIN} and @{_OTHER}'
        ) from None
    if any(argument < 0 or axis < 0 for argument, axis in dims):
        raise InvalidProgram(f"{OPEN_AXES} must count arguments and axes from 0")
    for dim, name in dims.items():
        if sizes[0][dim] == sizes[1][dim]:
            raise InvalidProgram(f"{name} is dynamic, but has the size {sizes[0][dim]} in both programs")
    return dims


def _extract(module: Module, name: str) -> Module:
    """Return a copy of the module with ``name`` as its entry, without the other program."""
    native = mlir.native_ir()
    copy = native.Module.parse(module.operation.get_asm(), module.context)
    functions = _functions(copy)
    functions[_OTHER if name == _MAIN else _MAIN].erase()
    if name == _OTHER:
        functions[name].attributes["sym_name"] = native.StringAttr.get(_MAIN, module.context)
    return copy
