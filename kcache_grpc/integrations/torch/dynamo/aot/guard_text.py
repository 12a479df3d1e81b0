"""The expressions that guards on symbolic sizes may have in a record.

PyTorch evaluates the text of guards as Python. A record comes from a disk or a server, so its text is parsed
and taken only if it compares integer arithmetic on the sizes ``L['t0']``, ``L['t1']``, and so on.
"""

from __future__ import annotations

import ast
import re

_MOST_CHARACTERS = 1 << 20
_OPERATORS = (
    ast.boolop, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context, ast.Expression,
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp,
)  # fmt: skip
_BUILTINS = frozenset(("abs", "max", "min", "int", "float", "bool"))
_ATTRIBUTES = {
    "math": frozenset(("ceil", "floor", "sqrt", "trunc")),
    "torch": frozenset(
        ("sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum")
    ),
}
_SIZE = re.compile(r"t(0|[1-9][0-9]{0,5})")


def is_guard_text(text: str) -> bool:
    """Whether ``text`` is an expression of guards that is safe to evaluate."""
    if len(text) > _MOST_CHARACTERS:
        return False
    try:
        tree = ast.parse(text, mode="eval")
        return _is_safe(tree)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False


def size_count(text: str) -> int:
    """One more than the largest index of a size in a text that ``is_guard_text`` takes."""
    indices = [int(index) for index in re.findall(r"L\[['\"]t([0-9]+)['\"]\]", text)]
    return max(indices, default=-1) + 1


def _is_safe(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=value):
            return type(value) in (bool, int, float)
        case ast.Subscript(value=ast.Name(id="L"), slice=ast.Constant(value=str() as name)):
            return _SIZE.fullmatch(name) is not None
        case ast.Call(func=function, args=arguments, keywords=[]):
            return _is_function(function) and all(_is_argument(argument) for argument in arguments)
        case ast.BinOp(op=ast.Pow() | ast.LShift()):
            return False
        case _:
            return isinstance(node, _OPERATORS) and all(
                _is_safe(child) for child in ast.iter_child_nodes(node)
            )


def _is_argument(node: ast.AST) -> bool:
    """An operand, or a sequence of operands: ``torch.sym_sum`` takes one."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(_is_safe(element) for element in node.elts)
    return _is_safe(node)


def _is_function(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name):
            return name in _BUILTINS
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return name in _ATTRIBUTES.get(module, ())
        case _:
            return False
