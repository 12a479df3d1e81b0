"""Takes Shardy's notes out of a module that JAX exported for one device, where they mean nothing.

JAX writes them beside ordinary ops (every LAPACK call has a ``sdy.sharding_rule``), and they are not
StableHLO. Works on the caller's JAX, whose MLIR is untyped here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kcache_grpc.errors import UnsupportedOp

_DIALECT = "sdy."
#: Attributes that hold a dictionary for every argument and result of a function.
_OF_VALUES = ("arg_attrs", "res_attrs")


def without_shardings(text: str) -> str:
    """The module's text, without locations too; the same text where there is nothing to take out.

    Raises ``UnsupportedOp`` for ops of Shardy that do more than constrain, whatever JAX raises for others.
    """
    if _DIALECT not in text:
        return text
    ir: Any = import_module("jaxlib.mlir.ir")
    context: Any = import_module("jax.interpreters.mlir").make_ir_context()
    with context:
        module = ir.Module.parse(text)
        ops: list[Any] = []

        def note(op: Any) -> Any:
            ops.append(op)
            return ir.WalkResult.ADVANCE

        module.operation.walk(note)
        for op in ops:
            _clear(op, ir)
        # From the outside in: a walk gives ops after what they contain.
        for op in [op for op in reversed(ops) if op.name.startswith(_DIALECT)]:
            _remove(op)
        return str(module.operation.get_asm(enable_debug_info=False))


def _clear(op: Any, ir: Any) -> None:
    attributes = op.attributes
    for name in [_name(entry) for entry in attributes]:
        if name.startswith(_DIALECT):
            del attributes[name]
    for name in _OF_VALUES:
        if name in attributes:
            attributes[name] = ir.ArrayAttr.get([_cleared(entry, ir) for entry in attributes[name]])


def _cleared(dictionary: Any, ir: Any) -> Any:
    kept = {entry.name: entry.attr for entry in ir.DictAttr(dictionary)}
    return ir.DictAttr.get({name: attr for name, attr in kept.items() if not name.startswith(_DIALECT)})


def _name(entry: Any) -> str:
    """Iterating over attributes gives names or named attributes, as JAX's version has it."""
    return entry if isinstance(entry, str) else str(entry.name)


def _remove(op: Any) -> None:
    if op.name == "sdy.sharding_constraint":
        op.results[0].replace_all_uses_with(op.operands[0])
    elif op.name != "sdy.mesh":
        raise UnsupportedOp(f"{op.name} is for programs of several devices; kernels run on one", op=op.name)
    op.erase()
