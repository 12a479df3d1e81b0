"""Control flow, calls, composites and regions."""

from __future__ import annotations

from tests.ops.generated.draft import Draft, Family, Shape, integers
from tests.ops.harness.programs import OpProgram
from tests.ops.harness.values import ALL, FLOATS, INTEGERS, NUMBERS, tensor


def families() -> dict[str, Family]:
    """Every operation of this file."""
    return {
        "case": Family(ALL, _case),
        "composite": Family(NUMBERS, _composite),
        "func.call": Family(NUMBERS, _call),
        "if": Family(ALL, _if),
        "map": Family((*INTEGERS, *FLOATS), _map),
        "while": Family(NUMBERS, _while),
    }


def _branch(draft: Draft, values: list[str], type: str) -> str:
    """A region that gives one of the values, or something made of it."""
    draft.count += 1
    name, value = f"%b{draft.count}", draft.pick(values)
    op = "not" if draft.dtype == "i1" else "negate"
    if draft.chance(0.3):
        return f"{{\n    stablehlo.return {value} : {type}\n  }}"
    return f"{{\n    {name} = stablehlo.{op} {value} : {type}\n    stablehlo.return {name} : {type}\n  }}"


def _if(draft: Draft) -> OpProgram:
    shape = draft.shape()
    where = draft.argument((), dtype="i1")
    values = [draft.argument(shape), draft.argument(shape)]
    regions = [_branch(draft, [v.name for v in values], values[0].type) for _ in range(2)]
    return draft.program(draft.call([where], [(draft.dtype, shape)], regions=regions))


def _case(draft: Draft) -> OpProgram:
    shape = draft.shape()
    where = draft.argument((), draft.pick(("any", "small")), "i32")
    values = [draft.argument(shape), draft.argument(shape)]
    count = draft.number(1, 4)
    regions = [_branch(draft, [v.name for v in values], values[0].type) for _ in range(count)]
    return draft.program(draft.call([where], [(draft.dtype, shape)], regions=regions))


def _while(draft: Draft) -> OpProgram:
    """Some turns that swap two values and add them."""
    shape: Shape = draft.shape(0, 3)
    index = draft.pick(("i32", "i64", "ui32"))
    turns = draft.argument((), "small", index)
    values = "any" if draft.edge else "small"
    first, second = draft.argument(shape, values), draft.argument(shape, values)
    scalar, kind = tensor(index, ()), first.type
    zero = draft.line(f"stablehlo.constant dense<0> : {scalar}", index, ())
    regions = [
        f"{{\n  ^bb0(%i: {scalar}, %x: {kind}, %y: {kind}):\n"
        f"    %c = stablehlo.compare LT, %i, {turns.name} : ({scalar}, {scalar}) -> tensor<i1>\n"
        "    stablehlo.return %c : tensor<i1>\n  }",
        f"{{\n  ^bb0(%i: {scalar}, %x: {kind}, %y: {kind}):\n"
        f"    %one = stablehlo.constant dense<1> : {scalar}\n    %n = stablehlo.add %i, %one : {scalar}\n"
        f"    %z = stablehlo.add %x, %y : {kind}\n"
        f"    stablehlo.return %n, %y, %z : {scalar}, {kind}, {kind}\n  }}",
    ]
    results = [(index, ()), (draft.dtype, shape), (draft.dtype, shape)]
    return draft.program(draft.call([zero, first, second], results, regions=regions))


def _map(draft: Draft) -> OpProgram:
    shape = draft.shape()
    op = draft.pick(("add", "maximum", "subtract"), "body")
    scalar = tensor(draft.dtype, ())
    region = (
        f"{{\n  ^bb0(%p: {scalar}, %q: {scalar}):\n    %s = stablehlo.{op} %p, %q : {scalar}\n"
        f"    %t = stablehlo.multiply %s, %p : {scalar}\n    stablehlo.return %t : {scalar}\n  }}"
    )
    values = "any" if draft.edge else "small"
    operands = [draft.argument(shape, values), draft.argument(shape, values)]
    dims = integers(range(len(shape)))
    return draft.program(draft.call(operands, [(draft.dtype, shape)], f"dimensions = {dims}", [region]))


def _function(draft: Draft, kind: str) -> None:
    draft.functions = (
        f"func.func private @inner(%x: {kind}, %y: {kind}) -> {kind} {{\n"
        f"  %s = stablehlo.add %x, %y : {kind}\n  return %s : {kind}\n}}\n"
    )


def _composite(draft: Draft) -> OpProgram:
    shape = draft.shape()
    x, y = draft.argument(shape), draft.argument(shape)
    _function(draft, x.type)
    version = draft.number(0, 3, "version") if draft.edge or draft.wish else 1
    attributes = f'name = "my.op", decomposition = @inner, version = {version} : i32'
    return draft.program(draft.call([x, y], [(draft.dtype, shape)], attributes))


def _call(draft: Draft) -> OpProgram:
    shape = draft.shape()
    x, y = draft.argument(shape), draft.argument(shape)
    _function(draft, x.type)
    text = f"func.call @inner({x.name}, {y.name}) : ({x.type}, {y.type}) -> {x.type}"
    return draft.program([draft.line(text, draft.dtype, shape)])
