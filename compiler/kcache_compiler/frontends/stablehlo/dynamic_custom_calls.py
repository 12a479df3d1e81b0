"""Custom calls that ``jax.export`` writes where sizes are symbols, as operations with sizes for operands.

``stablehlo.dynamic_reduce_window`` keeps its call, whose first operands are the results of a window of one
element each: that operation shows what windows hold and how they are combined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kcache_compiler.frontends.stablehlo.signatures import Text
from kcache_compiler.mlir import context as mlir
from kcache_compiler.mlir.context import Native

WINDOW = "stablehlo.dynamic_reduce_window"
_TOP_K = "stablehlo.dynamic_top_k"
_APPROXIMATE = ("stablehlo.dynamic_approx_top_k", "ApproxTopK")
#: Numbers of a window: sizes, strides, dilations of the operand and of the window, padding.
_NUMBERS = 5


def define_open_calls(module: Native, calls: list[Native]) -> None:
    """Make each call of the table that is well formed a call of a function that says what it is."""
    native = mlir.native_ir()
    with module.context, native.Location.unknown():
        for number, operation in enumerate(calls):
            define = _definition(operation)
            if define is None:
                continue
            text = Text(f"kcache.open.{number}", operation)
            made = native.Module.parse(define(operation, text))
            module.body.append(next(iter(made.body.operations)).operation.clone())
            callee = {"callee": native.FlatSymbolRefAttr.get(text.name)}
            kinds = [one.type for one in operation.results]
            with native.InsertionPoint(operation):
                called = native.Operation.create("func.call", kinds, list(operation.operands), callee)
            for before, after in zip(operation.results, called.results, strict=True):
                before.replace_all_uses_with(after)
            operation.erase()


def _definition(operation: Native) -> Callable[[Native, Text], str] | None:
    """What a call means; None of another one, or one that is not as JAX writes it."""
    target: str = operation.attributes["call_target_name"].value
    kinds = [value.type for value in (*operation.operands, *operation.results)]
    if not all(hasattr(kind, "rank") and hasattr(kind, "element_type") for kind in kinds):
        return None
    given, made = kinds[: len(operation.operands)], kinds[len(operation.operands) :]
    one = _function(operation)
    if target == WINDOW and one and made and len(given) == 2 * len(made) + _NUMBERS:
        return _window
    if target == _TOP_K and len(given) == len(made) == 2 and given[0].rank > 0 and _is_size(given[1]):
        return _top_k
    if target in _APPROXIMATE and one and _approximate(operation) is not None:
        return _approximate_top_k
    return None


def _function(operation: Native) -> str:
    """The one function that a call names."""
    if "called_computations" not in operation.attributes:
        return ""
    called = list(operation.attributes["called_computations"])
    return called[0].value if len(called) == 1 else ""


def _is_size(kind: Native) -> bool:
    return kind.rank == 0 and str(kind.element_type) in ("i32", "i64")


def _window(operation: Native, text: Text) -> str:
    count = len(operation.results)
    values, starts, numbers = text.names[:count], text.names[count : 2 * count], text.names[2 * count :]
    rank = operation.operands[0].type.rank
    whole = [
        text.type(str(made.type.element_type), list(one.type.shape))
        for one, made in zip(list(operation.operands)[:count], operation.results, strict=True)
    ]
    scalars = [f"tensor<{made.type.element_type}>" for made in operation.results]
    body = text.calling(_function(operation), scalars * 2, scalars)
    ones = f"array<i64{':' if rank else ''} {', '.join(['1'] * rank)}>"
    carried = text.line(
        f'"stablehlo.reduce_window"({", ".join([*values, *starts])}) <{{window_dimensions = {ones}}}> '
        f"({{{body}}}) : ({', '.join(text.types[: 2 * count])}) -> ({', '.join(whole)})",
        count,
    )
    results = [str(one.type) for one in operation.results]
    made = text.line(
        f'stablehlo.custom_call @"{WINDOW}"({", ".join([*carried, *numbers])}) : '
        f"({', '.join([*whole, *text.types[2 * count :]])}) -> ({', '.join(results)})",
        count,
    )
    return text.function(made)


def _top_k(operation: Native, text: Text) -> str:
    """The largest first, equal ones as they stand: sorted, and cut off."""
    kind = operation.operands[0].type
    axis = kind.rank - 1
    sizes = text.sizes(text.names[0], kind, str(operation.operands[1].type.element_type))
    places = text.iota(sizes, kind, axis, str(operation.results[1].type.element_type))
    element = str(kind.element_type)
    total = ", TOTALORDER" if element.startswith(("f", "bf")) else ""
    scalar, index = f"tensor<{element}>", f"tensor<{operation.results[1].type.element_type}>"
    body = (
        f"\n^bb0(%p: {scalar}, %q: {scalar}, %i: {index}, %j: {index}):\n"
        f"%g = stablehlo.compare GT, %p, %q{total} : ({scalar}, {scalar}) -> tensor<i1>\n"
        "stablehlo.return %g : tensor<i1>\n"
    )
    sizes = [*sizes[:axis], text.names[1]]
    return text.function(_cut(operation, text, [text.names[0], places], body, axis, sizes))


def _approximate(operation: Native) -> int | None:
    """Along which axis, of a call that asks for the exact result where sizes are open."""
    attributes, count = operation.attributes, len(operation.results)
    if "mhlo.backend_config" not in attributes:
        return None
    details = attributes["mhlo.backend_config"]
    if "is_fallback" not in details or not details["is_fallback"].value or "reduction_dim" not in details:
        return None
    first = list(operation.operands)[:count]
    rank = first[0].type.rank if first else 0
    dynamic = attributes["call_target_name"].value == _APPROXIMATE[0]
    shapes = len(operation.operands) - 2 * count - int(dynamic)
    if any(one.type.rank != rank for one in first) or shapes not in (0, count):
        return None
    if dynamic and not _is_size(operation.operands[2 * count].type):
        return None
    if not dynamic and ("top_k" not in details or first[0].type.has_static_shape):
        return None
    axis: int = details["reduction_dim"].value
    return axis if 0 <= axis < rank else None


def _approximate_top_k(operation: Native, text: Text) -> str:
    count, axis = len(operation.results), _approximate(operation)
    assert axis is not None
    values = text.names[:count]
    dynamic = operation.attributes["call_target_name"].value == _APPROXIMATE[0]
    kind = operation.operands[0].type
    element = str(operation.operands[2 * count].type.element_type) if dynamic else "i32"
    sizes = text.sizes(values[0], kind, element)
    details = operation.attributes["mhlo.backend_config"]
    sizes[axis] = text.names[2 * count] if dynamic else text.number(details["top_k"].value, element)
    scalars = [f"tensor<{one.type.element_type}>" for one in list(operation.operands)[:count] for _ in "pq"]
    body = text.calling(_function(operation), scalars, ["tensor<i1>"])
    return text.function(_cut(operation, text, values, body, axis, sizes))


def _cut(
    operation: Native, text: Text, values: Sequence[str], body: str, axis: int, sizes: Sequence[str]
) -> list[str]:
    """Values sorted together, the first of them: as many as ``sizes``, scalars, say."""
    shape = list(operation.operands[0].type.shape)
    elements = [str(operation.operands[0].type.element_type), str(operation.results[1].type.element_type)]
    whole = [text.type(element, shape) for element in elements]
    ordered = text.line(
        f'"stablehlo.sort"({", ".join(values)}) <{{dimension = {axis} : i64, is_stable = true}}> ({{{body}}})'
        f" : ({', '.join(whole)}) -> ({', '.join(whole)})",
        len(values),
    )
    return [
        text.first(one, given, sizes, str(made.type))
        for one, given, made in zip(ordered, whole, operation.results, strict=True)
    ]
