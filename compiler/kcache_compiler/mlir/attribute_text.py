"""The text of attributes, read without a parser and without the bindings."""

from __future__ import annotations


def split_attributes(text: str) -> list[str]:
    """Return the attributes of ``a = 1, b = [2, 3]``: split at commas outside of brackets and quotes."""
    parts, depth, start, quoted = [""], 0, 0, False
    for index, char in enumerate(text):
        if char == '"' and text[index - 1 : index] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif char in "([{<":
            depth += 1
        elif char in ")]}" or (char == ">" and text[index - 1 : index] != "-"):
            depth -= 1
        elif char == "," and depth == 0:
            parts[-1] = text[start:index].strip()
            parts.append("")
            start = index + 1
    parts[-1] = text[start:].strip()
    return [part for part in parts if part]
