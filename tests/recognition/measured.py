"""Counts over many random programs, and how they are printed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from kcache_compiler.errors import CompilerError
from kcache_compiler.spec import canonicalize
from tests.recognition import meaning
from tests.recognition.exports.corpus import Entry
from tests.recognition.mutations.changing import changed
from tests.recognition.mutations.rewriting import rewritten


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


def write_differently(entry: Entry, seeds: range, numerics: str = "default") -> Same:
    """Compare the keys of random writings, at all sizes of the corpus, with the key at the first sizes."""
    result = Same()
    wanted = key(entry.texts[0], numerics)
    for seed in seeds:
        index = random.Random(seed).randrange(len(entry.texts))
        program, applied = rewritten(entry.texts[index], seed)
        result.tried += 1
        if key(program, numerics) != wanted:
            result.lost.append(f"{entry.name} seed {seed} at {entry.sizes[index]}: {', '.join(applied)}")
    return result


@dataclass
class Different:
    """Random changes of one graph: how many by what became of them, and how many by the kind of change.

    ``collisions`` have the key of the graph, or of another change of it, and compute something else.
    """

    count: Counter[str] = field(default_factory=Counter[str])
    kinds: Counter[str] = field(default_factory=Counter[str])
    collisions: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        return ", ".join(f"{number} {word}" for word, number in sorted(self.count.items()))


#: What a kernel is made for: two programs that agree here get one kernel.
_Identity = tuple[str, object, tuple[bytes, ...]]


def _identity(text: str) -> _Identity:
    form = canonicalize(text.encode(), "stablehlo")
    return form.spec_digest.hex(), form.arg_spec, tuple(constant.digest for constant in form.constants)


def change(entry: Entry, wanted: int, interpreter: meaning.Interpreter, confirm: bool) -> Different:
    """Change the graph until ``wanted`` changes were seen that change what it means.

    ``confirm``: a change counts only if the interpreter computes something else; else also if its key
    differs. A program with the graph's key, or at the same sizes with that of an earlier change, is a
    collision unless it computes the same. Other lifted constants are no other key, but not the same program.
    """
    result = Different()
    known = {_identity(text): text for text in reversed(entry.texts)}
    (digest,) = {digest for digest, _, _ in known}
    seed = 0
    while result.count["different"] < wanted:
        index = random.Random(seed).randrange(len(entry.texts))
        text = entry.texts[index]
        other, kind, where = changed(text, seed)
        place = f"{entry.name} seed {seed} at {entry.sizes[index]}: {kind} at {where}"
        seed += 1
        try:
            identity = _identity(other)
        except CompilerError:
            result.count["rejected"] += 1
            continue
        twin = known.setdefault(identity, other)
        collides = identity[0] == digest
        if collides or confirm:
            differs = meaning.differ(interpreter, text, other)
            word = "different" if differs else "the same" if differs is False else "not evaluated"
            if collides and differs is not False:
                if identity[2] != _identity(text)[2]:
                    word = "other weights"
                else:
                    result.collisions.append(place)
            result.count[word] += 1
            result.kinds[kind] += word == "different"
        else:
            result.count["different"] += 1
        if not collides and twin is not other and twin != other:
            result.count["pairs with one key"] += 1
            if meaning.differ(interpreter, twin, other):
                result.collisions.append(f"{place}: the key of another change")
    return result
