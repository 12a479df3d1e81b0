"""No operation is built from a string where the MLIR bindings have a typed builder of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch_mlir

COMPILER = Path(__file__).parents[3] / "compiler" / "kcache_compiler"
#: Functions that create an operation whose name is their first argument.
CREATORS = frozenset({"create", "value"})


def operations_with_builders() -> frozenset[str]:
    dialects = Path(torch_mlir.__path__[0]) / "dialects"
    files = [file.read_text() for file in dialects.glob("_*_ops_gen.py")]
    return frozenset(name for text in files for name in re.findall(r'OPERATION_NAME = "([^"]+)"', text))


BUILT = operations_with_builders()
PREFIXES = frozenset(name.partition(".")[0] + "." for name in BUILT)
#: A string that begins with one of the prefixes.
NAMED = re.compile(rf"""["'](?:{"|".join(map(re.escape, sorted(PREFIXES)))})""")


def strings_of(node: ast.expr, constants: dict[str, ast.expr]) -> list[str]:
    """The strings of an expression and of the constants of the module that it names."""
    strings: list[str] = []
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            strings.append(part.value)
        elif isinstance(part, ast.Name) and part.id in constants:
            strings += strings_of(constants[part.id], {})
    return strings


def named_operations(source: str) -> list[tuple[int, str]]:
    """Line and name, or its beginning, of each operation with a builder that is created by name."""
    if not NAMED.search(source):
        return []
    tree = ast.parse(source)
    constants: dict[str, ast.expr] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                constants[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                constants[name] = value
            case _:
                pass
    operations: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        creator = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if creator in CREATORS:
            strings = strings_of(node.args[0], constants)
            operations += [(node.lineno, text) for text in strings if text in BUILT or text in PREFIXES]
    return operations


@pytest.mark.parametrize(
    "source",
    [
        'mlir.value("tensor.dim", [a, b], index)',
        'value("arith.extsi" if wide else "arith.trunci", [a], kind)',
        'mlir.value(f"arith.{op}", [a, b], kind)',
        'NAMES = {"add": "arith.addi"}\nmlir.value(NAMES[name], [a, b], kind)',
        'native.Operation.create("torch.constant.int", results=[kind])',
    ],
)
def test_a_builder_that_is_not_used_is_found(source: str) -> None:
    assert named_operations(source)


def test_operations_without_a_builder_are_built_by_name() -> None:
    source = (
        'mlir.value("stablehlo.add", [a, b], kind)\nmlir.create("torch_c.to_builtin_tensor", [a], [kind])'
    )
    assert named_operations(source) == []


def test_every_operation_is_built_by_its_typed_builder() -> None:
    uses = {
        str(file.relative_to(COMPILER)): operations
        for file in sorted(COMPILER.rglob("*.py"))
        if (operations := named_operations(file.read_text()))
    }
    assert uses == {}
