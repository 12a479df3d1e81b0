"""Merges the internal functions of LLVM IR that are equal except for their names.

Launches that differ in sizes call functions that are equal once constants without uses are removed, as the
epilogues of products are. A function is then optimized and emitted once; of equal ones the first is kept.
Nothing compares the addresses of functions.
"""

from __future__ import annotations

import re

_FUNCTION = re.compile(r"^define internal [^\n@]*@(?P<name>[\w.$]+)\(.*?^}\n\n?", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"@([\w.$]+)")


def merge_functions(text: str) -> str:
    """Return ``text`` with each internal function that is equal to an earlier one replaced by that one.

    Functions that call equal functions are equal too; functions that refer to themselves are kept.
    """
    bodies = {match["name"]: match[0].rstrip("\n") for match in _FUNCTION.finditer(text)}
    names = {name: frozenset(_NAME.findall(body)) for name, body in bodies.items()}
    keys = {name: body.replace(f"@{name}(", "@(", 1) for name, body in bodies.items()}
    merged: dict[str, str] = {}
    while True:
        first: dict[str, str] = {}
        equal = {name: kept for name, key in keys.items() if (kept := first.setdefault(key, name)) != name}
        if not equal:
            break
        merged = {name: equal.get(kept, kept) for name, kept in merged.items()} | equal
        keys = {
            name: key if names[name].isdisjoint(equal) else _renamed(key, equal)
            for name, key in keys.items()
            if name not in equal
        }
    if not merged:
        return text
    return _renamed(_FUNCTION.sub(lambda match: "" if match["name"] in merged else match[0], text), merged)


def _renamed(text: str, kept: dict[str, str]) -> str:
    return _NAME.sub(lambda match: f"@{kept.get(match[1], match[1])}", text)
