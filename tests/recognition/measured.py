"""Counts over many random programs, and how they are printed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from kcache_compiler.canonical import canonicalize
from kcache_compiler.errors import CompilerError
from tests.recognition import meaning
from tests.recognition.changing import changed
from tests.recognition.corpus import Entry
from tests.recognition.rewriting import rewritten


def key(program: str | bytes, numerics: str = "default") -> str:
    """Return the spec digest of a StableHLO program."""
    content = program.encode() if isinstance(program, str) else program
    return canonicalize(content, "stablehlo", numerics).spec_digest.hex()


@dataclass
class Same:
    """Random writings of one graph at random sizes: how many there were, and those that had another key."""

    tried: int = 0
    lost: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        return f"{self.tried - len(self.lost)} of {self.tried} writings have the key"


def write_differently(entry: Entry, seeds: range) -> Same:
    """Compare the keys of random writings, at all sizes of the corpus, with the key at the first sizes."""
    found = Same()
    wanted = key(entry.texts[0])
    for seed in seeds:
        index = random.Random(seed).randrange(len(entry.texts))
        program, applied = rewritten(entry.texts[index], seed)
        found.tried += 1
        if key(program) != wanted:
            found.lost.append(f"{entry.name} seed {seed} at {entry.sizes[index]}: {', '.join(applied)}")
    return found


@dataclass
class Different:
    """Random changes of one graph's meaning: ``collisions`` have its key and compute something else."""

    count: Counter[str] = field(default_factory=Counter[str])
    collisions: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        return ", ".join(f"{number} {word}" for word, number in sorted(self.count.items()))


def change(entry: Entry, wanted: int, interpreter: meaning.Interpreter, confirm: bool) -> Different:
    """Change the graph until ``wanted`` changes were seen that change what it means.

    ``confirm``: a change counts only if the interpreter computes something else; else also if its key
    differs.
    A program with the graph's key is a collision unless it computes the same.
    """
    found = Different()
    keys = {key(text) for text in entry.texts}
    seed = 0
    while found.count["different"] < wanted:
        index = random.Random(seed).randrange(len(entry.texts))
        text = entry.texts[index]
        other, what = changed(text, seed)
        seed += 1
        try:
            collides = key(other) in keys
        except CompilerError:
            found.count["refused"] += 1
            continue
        if not collides and not confirm:
            found.count["different"] += 1
            continue
        differs = meaning.differ(interpreter, text, other)
        found.count["different" if differs else "the same" if differs is False else "not evaluated"] += 1
        if collides and differs is not False:
            found.collisions.append(f"{entry.name} seed {seed - 1} at {entry.sizes[index]}: {what}")
    return found
