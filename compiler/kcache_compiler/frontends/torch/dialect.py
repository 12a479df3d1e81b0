"""Programs in the Torch dialect, as torch-mlir's FX importer writes them.

A module may hold the same program at two sizes, ``@main`` and ``@main_at_other_sizes``, and say with
``kcache.open_axes = [[argument, axis, "name"], ...]`` which axes are open: that is how exports with dynamic
shapes are sent. Equal names are equal sizes.
"""

from __future__ import annotations

import re

from kcache_compiler.errors import InvalidProgram, UnsupportedOp
from kcache_compiler.frontends.imported import Imported
from kcache_compiler.frontends.torch.lowering import lower_torch_to_stablehlo
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

OPEN_AXES = "kcache.open_axes"
_MAIN, _OTHER = "main", "main_at_other_sizes"
_SHAPE = re.compile(r"!torch\.vtensor<\[([^\]]*)\],")


def import_torch(module: Native) -> Imported:
    """Lower a parsed module, which is changed. Raises ``InvalidProgram`` or ``UnsupportedOp``."""
    _refuse_mutable(module)
    if OPEN_AXES not in module.operation.attributes:
        lower_torch_to_stablehlo(module)
        return Imported(module)
    functions = _functions(module)
    shapes = [_shapes(functions, name) for name in (_MAIN, _OTHER)]
    axes = _open_axes(module.operation.attributes[OPEN_AXES], shapes)
    other = _alone(module, _OTHER)
    main = _alone(module, _MAIN)
    lower_torch_to_stablehlo(main)

    def lowered() -> Native:
        lower_torch_to_stablehlo(other)
        return other

    return Imported(main, open_axes=axes, others=(lowered,))


def _refuse_mutable(module: Native) -> None:
    """Raise for arguments that a program may write to."""
    for operation in mlir.all_operations(module.operation):
        if operation.name == "func.func" and "!torch.tensor" in str(operation.attributes["function_type"]):
            name = operation.attributes["sym_name"].value
            raise UnsupportedOp(
                "torch.overwrite.tensor.contents",
                f"@{name} takes or gives a !torch.tensor, which can be written to, and kernels change "
                "nothing: import the program with value semantics (!torch.vtensor)",
                mlir.describe_location(operation.location),
            )


def _functions(module: Native) -> dict[str, Native]:
    children = mlir.child_operations(module.operation)
    return {child.attributes["sym_name"].value: child for child in children if child.name == "func.func"}


def _shapes(functions: dict[str, Native], name: str) -> list[list[str]]:
    function = functions.get(name)
    if function is None:
        raise InvalidProgram(f"a program with {OPEN_AXES} has the functions @{_MAIN} and @{_OTHER}")
    types = function.attributes["function_type"].value.inputs
    found = [_SHAPE.match(str(type)) for type in types]
    return [match[1].split(",") if match and match[1] else [] for match in found]


def _open_axes(attribute: Native, shapes: list[list[list[str]]]) -> dict[tuple[int, int], str]:
    """The axes that the attribute names, which differ between the two programs."""
    try:
        triples = [tuple(entry.value for entry in triple) for triple in attribute]
        named = {(int(argument), int(axis)): str(name) for argument, axis, name in triples}
        sizes = [{at: shape[at[0]][at[1]] for at in named} for shape in shapes]
    except (AttributeError, IndexError, TypeError, ValueError):
        raise InvalidProgram(
            f'{OPEN_AXES} is a list of [argument, axis, "name"], naming axes of @{_MAIN} and @{_OTHER}'
        ) from None
    if any(argument < 0 or axis < 0 for argument, axis in named):
        raise InvalidProgram(f"{OPEN_AXES} counts arguments and axes from 0")
    for at, name in named.items():
        if sizes[0][at] == sizes[1][at]:
            raise InvalidProgram(f"{name} is open, and has the size {sizes[0][at]} in both programs")
    return named


def _alone(module: Native, name: str) -> Native:
    """A copy of the module in which ``name`` is the entry and the other program is gone."""
    native = mlir.native_ir()
    copy = native.Module.parse(module.operation.get_asm(), module.context)
    functions = _functions(copy)
    functions[_OTHER if name == _MAIN else _MAIN].erase()
    if name == _OTHER:
        functions[name].attributes["sym_name"] = native.StringAttr.get(_MAIN, module.context)
    return copy
