"""Deduplication of identical functions: launches of repeated layers, and their tasks, share code.

The operands of a launch are arguments, so that repeated operations differ in the arguments of calls, not in
their functions. Of functions that are equal except for their names the first is kept.
"""

from __future__ import annotations

import re
from collections import Counter

from kcache_compiler.mlir import operations as mlir

_SYMBOL = re.compile(r"@([\w.$-]+)")
#: What names a function, and by which attribute.
_NAMING = {"func.call": "callee", "llvm.call": "callee", "llvm.mlir.addressof": "global_name"}


def deduplicate_functions(module: mlir.Module) -> None:
    """Erase every private function that is identical to an earlier one, and call that instead."""
    own = [(op, _kind(op)) for op in mlir.operations(module.body) if _is_own(op)]
    kinds = Counter(kind for _, kind in own)
    texts = {mlir.symbol_of(function): _said(function) for function, kind in own if kinds[kind] > 1}
    kept = _kept(texts)
    if not kept:
        return
    for operation in mlir.operations(module.body):
        name = mlir.symbol_of(operation)
        if name in kept:
            operation.erase()
        elif not _is_own(operation) or any(
            called in kept for called in _SYMBOL.findall(texts.get(name) or _said(operation))
        ):
            _rename(operation, kept)


def _is_own(function: mlir.Op) -> bool:
    """A private function of this module with a body."""
    if not mlir.name_of(function).endswith(".func") or not list(function.operation.regions[0].blocks):
        return False
    if mlir.name_of(function) == "llvm.func":
        return "internal" in str(function.attributes["linkage"])
    return "sym_visibility" in function.attributes and "private" in str(function.attributes["sym_visibility"])


def _kind(function: mlir.Op) -> tuple[str, int]:
    """What functions that say the same have in common, at no cost: their text is some milliseconds."""
    return str(function.attributes["function_type"]), len(mlir.operations(mlir.block_of(function)))


def _said(function: mlir.Op) -> str:
    """Its text without its own name."""
    name = mlir.symbol_of(function)
    return mlir.whole_text(function).replace(f'sym_name = "{name}"', "", 1)


def _kept(texts: dict[str, str]) -> dict[str, str]:
    """The function that stays, by the name of each that goes: equal ones, then those that call equal ones."""
    kept: dict[str, str] = {}
    while True:
        first: dict[str, str] = {}
        results: dict[str, str] = {}
        for name, text in texts.items():
            if name not in kept and (other := first.setdefault(_renamed(text, kept), name)) != name:
                results[name] = other
        if not results:
            return kept
        kept |= results


def _renamed(text: str, kept: dict[str, str]) -> str:
    return _SYMBOL.sub(lambda match: f"@{kept.get(match[1], match[1])}", text) if kept else text


def _rename(function: mlir.Op, kept: dict[str, str]) -> None:
    for op in mlir.named(function, *_NAMING):
        attribute = _NAMING[mlir.name_of(op)]
        if attribute not in op.attributes:
            continue  # a call through a pointer
        named = str(op.attributes[attribute]).removeprefix("@")
        if named in kept:
            op.attributes[attribute] = mlir.attribute(f"@{kept[named]}")
