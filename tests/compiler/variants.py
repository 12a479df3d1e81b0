"""Programs written differently (that must keep their key) and changed (that must not), made with the
native bindings.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch_mlir import ir as _ir  # pyright: ignore

from kcache_compiler.mlir.context import new_context, parse_module

ir: Any = _ir

PROGRAMS = Path(__file__).with_name("programs")
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.mlir"))

COMMUTATIVE = {
    "stablehlo.add",
    "stablehlo.multiply",
    "stablehlo.maximum",
    "stablehlo.minimum",
    "stablehlo.and",
    "stablehlo.or",
}


def text_of(name: str) -> str:
    return (PROGRAMS / f"{name}.mlir").read_text()


def _module(text: str) -> Any:
    return parse_module(text, new_context())


def _functions(module: Any) -> list[Any]:
    return [op.operation for op in module.body.operations if op.operation.name == "func.func"]


def _operations(function: Any) -> list[Any]:
    return [op.operation for op in function.regions[0].blocks[0].operations]


def renamed(text: str, seed: int) -> str:
    """Rename every value and private function."""
    rng = random.Random(seed)
    names: dict[str, str] = {}

    def fresh(match: re.Match[str]) -> str:
        name, suffix = match[1], match[2]
        return names.setdefault(name, f"%n{rng.randrange(10**9)}_{len(names)}") + suffix

    text = re.sub(r"(%[A-Za-z0-9_$.-]+)((?:#\d+)?)", fresh, text)
    return re.sub(r"@(?!main\b)([A-Za-z_]\w*)", r"@other_\1", text)


def relocated(text: str, seed: int) -> str:
    """Give every operation a location, and the module attributes."""
    module = _module(text)
    out = module.operation.get_asm(enable_debug_info=True)
    return out.replace('"-"', f'"file{seed}.py"').replace("module @", f"module @renamed{seed}_", 1)


def shuffled(text: str, seed: int) -> str:
    """Put the operations of each function into a random topological order."""
    rng = random.Random(seed)
    module = _module(text)
    for function in _functions(module):
        *body, end = _operations(function)
        position = {op: i for i, op in enumerate(body)}
        needs: list[set[int]] = [
            {position[p] for p in _producers(op) if p in position} - {i} for i, op in enumerate(body)
        ]
        placed: set[int] = set()
        while len(placed) < len(body):
            ready = [i for i in range(len(body)) if i not in placed and needs[i] <= placed]
            chosen = rng.choice(ready)
            placed.add(chosen)
            body[chosen].move_before(end)
    return module.operation.get_asm()


def _producers(operation: Any) -> Iterator[Any]:
    producers: list[Any] = []

    def visit(op: Any) -> Any:
        producers.extend(value.owner for value in op.operands if not isinstance(value.owner, ir.Block))
        return ir.WalkResult.ADVANCE

    operation.walk(visit)
    for owner in producers:
        yield owner.operation


def commuted(text: str, seed: int) -> str:
    """Swap operands of commutative operations (and the sides of comparisons) at random, in regions too."""
    rng = random.Random(seed)
    module = _module(text)

    def visit(op: Any) -> Any:
        if op.name in COMMUTATIVE and rng.random() < 0.7:
            first, second = op.operands
            op.operands[0], op.operands[1] = second, first
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    out = module.operation.get_asm()
    swap = {"GT": "LT", "LT": "GT", "GE": "LE", "LE": "GE", "EQ": "EQ", "NE": "NE"}

    def flip(match: re.Match[str]) -> str:
        return (
            f"stablehlo.compare {swap[match[1]]}, {match[3]}, {match[2]}" if rng.random() < 0.7 else match[0]
        )

    return re.sub(r"stablehlo\.compare\s+(\w\w), (%[\w#]+), (%[\w#]+)", flip, out)


def duplicated(text: str, seed: int) -> str:
    """Compute values twice, use either, and add what nobody uses."""
    rng = random.Random(seed)
    module = _module(text)
    for function in _functions(module):
        for op in _operations(function)[:-1]:
            if rng.random() > 0.4:
                continue
            copy = op.clone(ir.InsertionPoint(op))
            for old, new in zip(op.results, copy.results, strict=True):
                users = [use.owner for use in old.uses]
                for user in users:
                    if rng.random() < 0.5:
                        user.operation.replace_uses_of_with(old, new)
    return module.operation.get_asm()


def outlined(text: str, seed: int) -> str:
    """Make the entry a private function, called by a new one."""
    module = _module(text)
    (main,) = [f for f in _functions(module) if f.attributes["sym_name"].value == "main"]
    types = str(main.attributes["function_type"].value)
    arguments, _, results = types.partition(" -> ")
    inner = re.sub(
        r"func\.func (?:public )?@main\(",
        f"func.func private @inner{seed}(",
        module.operation.get_asm(),
        count=1,
    )
    kinds = [t for t in arguments.strip("()").split(", ") if t]
    names = ", ".join(f"%in{i}" for i in range(len(kinds)))
    signature = ", ".join(f"%in{i}: {t}" for i, t in enumerate(kinds))
    many = results.startswith("(")
    count = results.count("tensor<")
    used = ", ".join(f"%out#{i}" for i in range(count)) if count > 1 else "%out"
    call = f"%out{f':{count}' if count > 1 else ''} = call @inner{seed}({names}) : {types}"
    listed = results.strip("()") if many else results
    body = f"    {call}\n    return {used} : {listed}\n"
    entry = f"  func.func public @main({signature}) -> {results} {{\n{body}  }}\n"
    return inner.rstrip().removesuffix("}") + entry + "}\n"


VARIANTS = {
    "renamed": renamed,
    "relocated": relocated,
    "shuffled": shuffled,
    "commuted": commuted,
    "duplicated": duplicated,
    "outlined": outlined,
}

_OTHER = {
    "stablehlo.add": "stablehlo.multiply",
    "stablehlo.subtract": "stablehlo.multiply",
    "stablehlo.multiply": "stablehlo.add",
    "stablehlo.divide": "stablehlo.multiply",
    "stablehlo.maximum": "stablehlo.minimum",
    "stablehlo.exponential": "stablehlo.tanh",
    "stablehlo.tanh": "stablehlo.logistic",
    "stablehlo.rsqrt": "stablehlo.sqrt",
    "stablehlo.sqrt": "stablehlo.cbrt",
    "stablehlo.negate": "stablehlo.abs",
}
_ORDERED = {
    "stablehlo.subtract",
    "stablehlo.divide",
    "stablehlo.power",
    "stablehlo.remainder",
    "stablehlo.atan2",
}


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """Every program that differs from this one in one operation, operand, constant, attribute or result,
    labeled.
    """
    yield from _textual(text)
    count = len(_everywhere(_module(text)))
    for index in range(count):
        for label, change in (("op", _change_op), ("swap", _swap), ("wire", _rewire)):
            module = _module(text)
            op = _everywhere(module)[index]
            if change(op) and module.operation.verify():
                yield f"{label} {index} {op.name}", module.operation.get_asm()
    yield from _results(text)


def _everywhere(module: Any) -> list[Any]:
    operations: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name.startswith(("stablehlo.", "chlo.")) and op.name != "stablehlo.return":
            operations.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return operations


def _change_op(op: Any) -> bool:
    if op.name not in _OTHER:
        return False
    new = ir.Operation.create(
        _OTHER[op.name],
        results=[r.type for r in op.results],
        operands=list(op.operands),
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    op.results[0].replace_all_uses_with(new.results[0])
    return True


def _swap(op: Any) -> bool:
    if op.name not in _ORDERED or op.operands[0] == op.operands[1]:
        return False
    first, second = op.operands
    op.operands[0], op.operands[1] = second, first
    return True


def _rewire(op: Any) -> bool:
    """Feed the operation's first operand from another argument of the same type."""
    parent = op
    while parent.name != "func.func":
        parent = parent.parent.operation
    if not len(op.operands) or parent.attributes["sym_name"].value != "main":
        return False
    old = op.operands[0]
    for argument in parent.regions[0].blocks[0].arguments:
        if argument.type == old.type and argument != old and argument not in list(op.operands):
            op.operands[0] = argument
            return True
    return False


def _textual(text: str) -> Iterator[tuple[str, str]]:
    """Changes of one constant, comparison, axis or element type."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        for label, pattern, new in (
            ("constant", r"dense<(-?\d\.\d+E?e?[+-]?\d*)>", r"dense<7.777>"),
            ("integer", r"dense<(\d+)> : tensor<i32>", r"dense<3> : tensor<i32>"),
            ("comparison", r"compare\s+LT,", r"compare LE,"),
            ("comparison", r"compare\s+GE,", r"compare GT,"),
            ("total order", r"(compare .*), FLOAT :", r"\1, TOTALORDER :"),
        ):
            changed = re.sub(pattern, new, line, count=1)
            if changed != line:
                yield f"{label} line {number}", "\n".join([*lines[:number], changed, *lines[number + 1 :]])


def _results(text: str) -> Iterator[tuple[str, str]]:
    """Return another value of the same type."""
    module = _module(text)
    (main,) = [f for f in _functions(module) if f.attributes["sym_name"].value == "main"]
    end = _operations(main)[-1]
    for index, old in enumerate(list(end.operands)):
        others = [r for op in _operations(main)[:-1] for r in op.results if r.type == old.type and r != old]
        for other in others[-2:]:
            end.operands[index] = other
            yield f"result {index}", module.operation.get_asm()
            end.operands[index] = old
