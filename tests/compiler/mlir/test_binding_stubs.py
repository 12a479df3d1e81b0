"""The stubs of the MLIR bindings in ``typings/`` name what the installed bindings have."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "typings"
STUBS = sorted(str(file.relative_to(ROOT)) for file in ROOT.rglob("*.pyi") if file.name != "__init__.pyi")
#: The bindings define these in ``torch_mlir.ir`` under another name, or only as annotations.
INSTANCE_ATTRIBUTES = {("Context", "allow_unregistered_dialects"), ("MLIRError", "message")}
INSTANCE_ATTRIBUTES |= {("MLIRError", "error_diagnostics"), ("OpView", "OPERATION_NAME")}


def declared_parameters(function: ast.FunctionDef) -> set[str]:
    arguments = function.args
    return {argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)} - {"self"}


def missing_from(target: object, node: ast.stmt, owner: str = "") -> list[str]:
    """The names that ``node`` of a stub declares and ``target`` has not."""
    match node:
        case ast.ClassDef():
            native = getattr(target, node.name, None)
            if native is None:
                return [node.name]
            return [name for child in node.body for name in missing_from(native, child, node.name)]
        case ast.FunctionDef():
            function = getattr(target, node.name, None)
            if function is None:
                return [f"{owner}.{node.name}"]
            if not inspect.isfunction(function):
                return []  # a native function does not report its parameters
            parameters = declared_parameters(node) - set(inspect.signature(function).parameters)
            return [f"{owner}.{node.name}({name})" for name in sorted(parameters)]
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            assert isinstance(value, ast.Constant)
            member = getattr(target, name, None)
            return [] if getattr(member, "value", None) == value.value else [f"{owner}.{name}"]
        case ast.AnnAssign(target=ast.Name(id=name)):
            known = name in dir(target) or (owner, name) in INSTANCE_ATTRIBUTES
            return [] if known else [f"{owner}.{name}"]
        case _:
            return []


@pytest.mark.parametrize("stub", STUBS)
def test_the_bindings_have_what_the_stubs_declare(stub: str) -> None:
    module = importlib.import_module(stub.removesuffix(".pyi").replace("/", "."))
    tree = ast.parse((ROOT / stub).read_text())
    assert [name for node in tree.body for name in missing_from(module, node)] == []


def test_a_name_that_the_bindings_lack_is_reported() -> None:
    ir = importlib.import_module("torch_mlir.ir")
    (node,) = ast.parse("class Value:\n    def no_such_method(self) -> None: ...").body
    assert missing_from(ir, node) == ["Value.no_such_method"]
