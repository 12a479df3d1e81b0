"""Splits the LLVM IR of a long kernel into two modules, which are optimized and emitted at the same time.

Functions that refer to each other stay together, so that each is optimized with what it calls. The entry
remains with what it calls directly; of the rest it takes addresses only. The functions whose addresses it
takes become hidden symbols, which the linker resolves. The split depends only on the text: the same kernel
has the same bytes on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

#: Characters of LLVM IR from which on a module is split: compiling less takes less than 0.1 s.
LEAST_TEXT = 1 << 16
#: Characters of an entry, which has no loops, that take as long to compile as one of another function.
STRAIGHT = 4
#: The function that the other ones are for.
_ENTRIES = ("kcache_run", "kcache_prepare")

_FUNCTION = re.compile(r"^define (?P<head>[^\n@]*)@(?P<name>[\w.$]+)\(.*?^}\n", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"@([\w.$]+)")
_CALLED = re.compile(r"\bcall [^@\n]*@([\w.$]+)\(")
#: A global variable with state, of which there may be only one.
_STATE = re.compile(r"^@[^=]+=(?![^\n]*\bconstant\b)", re.MULTILINE)
#: What a declaration does not have: names of parameters, and what comes after the attributes.
_PARAMETER = re.compile(r" %\d+(?=[,)])")


@dataclass(frozen=True)
class _Function:
    name: str
    head: str
    text: str
    names: frozenset[str]

    @property
    def is_internal(self) -> bool:
        return self.head.startswith("internal ")

    def declaration(self, name: str) -> str:
        """A declaration of the function as the hidden symbol ``name``."""
        line = self.text.partition("\n")[0]
        line = _PARAMETER.sub("", line.removesuffix(" {"))
        return line.replace("define internal ", "declare hidden ", 1).replace(
            f"@{self.name}(", f"@{name}(", 1
        )


def split_module(text: str) -> tuple[str, ...]:
    """Two modules that are linked to what ``text`` is, or only ``text`` if splitting does not pay."""
    functions = [_read(match) for match in _FUNCTION.finditer(text)]
    entries = [function.name for function in functions if function.name in _ENTRIES]
    if len(text) < LEAST_TEXT or len(entries) != 1 or _STATE.search(text):
        return (text,)
    (entry,) = entries
    away = _moved(functions)
    if not away:
        return (text,)
    rest = _FUNCTION.sub("", text)
    kept = [function for function in functions if function.name not in away]
    moved = [function for function in functions if function.name in away]
    names = {
        function.name: f"{function.name}.{entry}"
        for function in moved
        if any(function.name in other.names for other in kept)
    }
    declared = [function.declaration(names[function.name]) for function in moved if function.name in names]
    first = _module(rest, [_renamed(function.text, names) for function in kept], declared)
    second = _module(rest, [_exported(function, names) for function in moved], [])
    return first, second


def _read(match: re.Match[str]) -> _Function:
    text = match[0]
    names = frozenset(_NAME.findall(text)) - {match["name"]}
    return _Function(match["name"], match["head"], text, names)


def _moved(functions: list[_Function]) -> set[str]:
    """The functions of the second module: about half of the code."""
    public = [function for function in functions if not function.is_internal]
    called = {name for function in public for name in _CALLED.findall(function.text)}
    groups = _connected([function for function in functions if function.is_internal])
    weights = {function.name: len(function.text) for function in functions}
    here = sum(weights[function.name] for function in public) // STRAIGHT
    there, moved = 0, set[str]()
    # From the end: first what is called directly, then the longest.
    groups.sort(key=lambda group: (not called.isdisjoint(group), sum(weights[name] for name in group), group))
    while groups:
        group = groups.pop()
        weight = sum(weights[name] for name in group)
        if there < here and called.isdisjoint(group):
            moved.update(group)
            there += weight
        else:
            here += weight
    return moved


def _connected(functions: list[_Function]) -> list[list[str]]:
    """The names of functions in groups that do not refer to each other, in the order of the first of each."""
    known = {function.name for function in functions}
    parents = {name: name for name in known}

    def root(name: str) -> str:
        while parents[name] != name:
            parents[name] = parents[parents[name]]
            name = parents[name]
        return name

    for function in functions:
        for name in function.names & known:
            parents[root(name)] = root(function.name)
    groups: dict[str, list[str]] = {}
    for function in functions:
        groups.setdefault(root(function.name), []).append(function.name)
    return list(groups.values())


def _renamed(text: str, names: dict[str, str]) -> str:
    return _NAME.sub(lambda match: f"@{names.get(match[1], match[1])}", text)


def _exported(function: _Function, names: dict[str, str]) -> str:
    text = _renamed(function.text, names)
    return text.replace("define internal ", "define hidden ", 1) if function.name in names else text


def _module(rest: str, functions: Iterable[str], declared: Iterable[str]) -> str:
    """``rest``, which has globals, declarations, attributes and metadata, with ``functions``."""
    begin = rest.find("\nattributes ")
    begin = len(rest) if begin < 0 else begin + 1
    lines = "".join(f"{line}\n" for line in declared)
    return rest[:begin] + lines + "\n".join(functions) + "\n" + rest[begin:]
