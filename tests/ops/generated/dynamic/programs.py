"""One program with open sizes, and what it is at three tuples of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kcache_compiler.mlir import operations as mlir
from tests.ops.generated.draft import Maker
from tests.ops.generated.dynamic.sized import Choices, SizedDraft
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import generator

#: Symbols of a program.
SYMBOLS = 3
#: Tuples of sizes that a program is compared at.
TUPLES = 3
_ATTEMPTS = 60
#: What sizes are drawn from, tuple by tuple after the first.
_AMONG = ([1, 1, 2, 4], [0, 1, 4, 6], range(2, 9), range(10), range(1, 10))
_TENSOR = re.compile(r"tensor<((?:\d+x)+)")


@dataclass(frozen=True)
class OpenProgram:
    """``text`` with ``?``; the same program at tuples of sizes, and at some at which it means nothing."""

    text: str
    instances: tuple[OpProgram, ...]
    broken: tuple[OpProgram, ...]


def open_program(
    make: Maker, op: str, dtype: str, seed: int, number: int, told: bool = False
) -> OpenProgram | None:
    """The same one for the same arguments; None where no attempt gives one. ``told``: as ``SizedDraft``'s."""
    for attempt in range(_ATTEMPTS):
        name = ("open", op, dtype, seed, number, attempt)
        drawn = _attempt(make, op, dtype, name, told)
        if drawn is not None:
            return drawn
    return None


def _attempt(make: Maker, op: str, dtype: str, name: tuple[object, ...], told: bool) -> OpenProgram | None:
    rng = generator(*name)
    choices, openness = Choices(rng), float(rng.choice([0.0, 0.3, 0.6]))
    tuples = [tuple(int(size) for size in rng.permutation([3, 5, 7]))]
    tuples += [tuple(int(size) for size in rng.choice(list(among), SYMBOLS)) for among in _AMONG]
    programs: list[OpProgram] = []
    for place, sizes in enumerate(tuples):
        draft = SizedDraft.begin(op, dtype, choices, sizes, openness, int(rng.integers(2**31)), told)
        program = _made(make, draft)
        if program is None and not place:
            return None
        if program is not None and (not programs or _skeleton(program.text) == _skeleton(programs[0].text)):
            programs.append(program)
        choices.again()
    text = _opened([variant.text for variant in programs])
    if text is None or len(programs) < TUPLES:
        return None
    valid = [variant for variant in programs if _verifies(variant.text)]
    if len(valid) < TUPLES or not _verifies(text):
        return None
    broken = [variant for variant in programs if not any(variant is other for other in valid)]
    return OpenProgram(text, tuple(valid[:TUPLES]), tuple(broken))


def _made(make: Maker, draft: SizedDraft) -> OpProgram | None:
    """None where the recorded choices do not go with the sizes."""
    try:
        return make(draft)
    except (ArithmeticError, AssertionError, IndexError, ValueError):
        return None


def _skeleton(text: str) -> str:
    return _TENSOR.sub(lambda match: "tensor<" + re.sub(r"\d+", "N", match[1]), text)


def _opened(texts: list[str]) -> str | None:
    """The text with ``?`` where sizes differ; None where none do."""
    tensors = [_TENSOR.findall(text) for text in texts]
    open_dims = [
        "".join(
            f"{sizes[0] if len(set(sizes)) == 1 else '?'}x"
            for sizes in zip(*(dims[:-1].split("x") for dims in same), strict=True)
        )
        for same in zip(*tensors, strict=True)
    ]
    if not any("?" in dims for dims in open_dims):
        return None
    remaining = iter(open_dims)
    return _TENSOR.sub(lambda _: f"tensor<{next(remaining)}", texts[0])


def _verifies(text: str) -> bool:
    with mlir.new_context(), mlir.unknown_location():
        try:
            mlir.parse(text)
        except mlir.MLIRError:
            return False
    return True
