"""What the IR of a kernel promises of its launch: the block's size, and which pointers meet no other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tests.gpu.harness.ir_text import closing, split

_ENTRY = re.compile(r"^define .*\bptx_kernel\b.* @([-\w.$]+)\(", re.MULTILINE)
_GROUP = re.compile(r"^attributes (#\d+) = \{(.*)\}$", re.MULTILINE)
_BLOCK = re.compile(r'"nvvm\.(reqntid|maxntid)"="([\d,]+)"')


@dataclass(frozen=True)
class Promise:
    """Parameters as the IR writes them, and the threads of a block, exactly or at most."""

    params: tuple[str, ...]
    block: tuple[int, ...] = ()
    exact: bool = False

    def broken(self, block: tuple[int, int, int], values: Sequence[object]) -> str:
        """In words, what a launch does against it; empty when nothing."""
        if len(values) != len(self.params):
            return f"{len(values)} parameters for {len(self.params)}"
        padded = (*self.block, 1, 1)[:3]
        if self.exact and block != padded:
            return f"blocks of {block} for a kernel of blocks of {padded}"
        if self.block and any(size > most for size, most in zip(block, padded, strict=True)):
            return f"blocks of {block} for a kernel of blocks of at most {padded}"
        if not 1 <= prod(block) <= 1024:
            return f"blocks of {prod(block)} threads; a block has 1 to 1024"
        return self._alias(values)

    def _alias(self, values: Sequence[object]) -> str:
        pointers = [
            (text, value) for text, value in zip(self.params, values, strict=True) if text.startswith("ptr")
        ]
        for i, (text, value) in enumerate(pointers):
            for other, same in pointers[i + 1 :]:
                both_read = "readonly" in text and "readonly" in other
                if value == same and not both_read and ("noalias" in text or "noalias" in other):
                    return f"one buffer for two parameters, {text} and {other}"
        return ""


def promises(ir: str) -> dict[str, Promise]:
    """Of each kernel of a module."""
    groups = dict(_GROUP.findall(ir))
    by_entry = dict[str, Promise]()
    for entry in _ENTRY.finditer(ir):
        end = closing(ir, entry.end() - 1)
        tail = ir[end : ir.index("{", end)]
        facts = " ".join(groups.get(name, "") for name in re.findall(r"#\d+", tail)) + tail
        block = _BLOCK.search(facts)
        sizes = tuple(map(int, block[2].split(","))) if block else ()
        params = tuple(split(ir[entry.end() : end]))
        by_entry[entry[1]] = Promise(params, sizes, block is not None and block[1] == "reqntid")
    return by_entry
