"""Reading LLVM IR text, as far as the emulator must: types with their sizes, operands, lists."""

from __future__ import annotations

import re

_SCALARS = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}
_INTEGER = re.compile(r"i(\d+)")
_NAME = re.compile(r'[%@](?:"[^"]*"|[-\w.$]+)')
_WORD = re.compile(r"[a-z]\w*")
_OPEN, _CLOSE = "([{<", ")]}>"


def type_at(text: str, at: int = 0) -> tuple[int, int, int]:
    """The type that begins at ``at``: where it ends, its bytes, its alignment."""
    if text[at] in "<[":
        return _sequence(text, at)
    if text[at] == "{":
        return _struct(text, at)
    word = _WORD.match(text, at)
    if word is None:
        raise ValueError(f"no type at {text[at : at + 40]!r}")
    if word[0] in _SCALARS:
        return word.end(), _SCALARS[word[0]], _SCALARS[word[0]]
    integer = _INTEGER.fullmatch(word[0])
    if integer is None:
        raise ValueError(f"unknown type {word[0]!r}")
    size = 1 << max(0, (int(integer[1]) + 7) // 8 - 1).bit_length()
    return word.end(), size, size


def _sequence(text: str, at: int) -> tuple[int, int, int]:
    head = re.compile(r"[<\[](\d+) x ").match(text, at)
    if head is None:
        raise ValueError(f"no vector or array at {text[at : at + 40]!r}")
    end, size, align = type_at(text, head.end())
    if text[at] == "<" and text[head.end() : end] == "i1":
        return end + 1, (int(head[1]) + 7) // 8, 1
    return end + 1, size * int(head[1]), align


def _struct(text: str, at: int) -> tuple[int, int, int]:
    offset, most, at = 0, 1, at + 1
    while text[at] != "}":
        if text[at] in " ,":
            at += 1
            continue
        at, size, align = type_at(text, at)
        offset = -(-offset // align) * align + size
        most = max(most, align)
    return at + 1, -(-offset // most) * most, most


def last_type(text: str) -> str:
    """The type that ``text`` ends with, after attributes."""
    if text[-1] in "}>]":
        opening = next(
            at for at in range(len(text)) if text[at] in "{<[" and closing(text, at) == len(text) - 1
        )
        return text[opening:]
    return text.split()[-1]


def operand_at(text: str, at: int) -> int:
    """Where the operand that begins at ``at`` ends: a name, a literal, or a constant expression."""
    name = _NAME.match(text, at)
    if name:
        return name.end()
    depth = 0
    for i in range(at, len(text)):
        if text[i] in _OPEN:
            depth += 1
        elif text[i] in _CLOSE:
            depth -= 1
            if depth == 0 and text[i] == ")":
                return i + 1
        elif text[i] == "," and depth == 0:
            return i
    return len(text)


def split(text: str) -> list[str]:
    """A list at its commas, those inside brackets left out."""
    parts, depth, start = list[str](), 0, 0
    for i, letter in enumerate(text):
        if letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    rest = text[start:].strip()
    return [*parts, rest] if rest else parts


def closing(text: str, at: int) -> int:
    """Where the bracket that opens at ``at`` is closed."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in _OPEN) - (text[i] in _CLOSE)
        if depth == 0:
            return i
    raise ValueError(f"no closing bracket in {text[at : at + 80]!r}")
