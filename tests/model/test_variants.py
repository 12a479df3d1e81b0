"""Variants: which sizes a shape takes, what is required, and the order from the most specific on."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcache_grpc.errors import ArgumentError, IntegrityError
from kcache_grpc.model.manifest import SymbolSpec, TensorSpec
from kcache_grpc.model.sizes.expression import evaluate
from kcache_grpc.model.sizes.modes import AUTO, DYNAMIC, STATIC, Axis, Dim, ShapeRequirements
from kcache_grpc.model.variants import (
    Shape,
    SpecSizes,
    Variant,
    exact_shape,
    most_specific,
    parse_arg_spec,
    requested_shape,
    substitute,
    variant,
)

SYMBOLS = (SymbolSpec("s0", 0, 0), SymbolSpec("s1", 0, 1), SymbolSpec("s2", 1, 1))
#: f32[s0,s1] . f32[s1,s2], and a flat view of the first; the last axis is the program's own.
INPUTS = parse_arg_spec("f32[s0,s1];f32[s1,s2];i32[2*s0*s1,3*s2,64]")
NAMES = tuple(symbol.name for symbol in SYMBOLS)
SIZES = range(1, 9)


def program(*values: int) -> SpecSizes:
    """With these sizes; -1 is open."""
    pairs = zip(NAMES, values, strict=True)
    return SpecSizes(SYMBOLS, INPUTS, {name: value for name, value in pairs if value >= 0})


def texts(shape: Shape) -> tuple[str, str]:
    return shape.arg_spec, shape.guard


points = st.tuples(*[st.integers(1, 8)] * 3)
dims = st.builds(
    lambda low, extra, step: Dim(low, None if extra is None else low + extra + step, step),
    st.integers(0, 6),
    st.none() | st.integers(0, 6),
    st.sampled_from([1, 1, 2, 3]),
)
wishes = st.dictionaries(
    st.sampled_from([Axis(0, 0), Axis(0, 1), Axis(1, 0), Axis(1, 1)]), dims, min_size=1
).map(lambda axes: tuple(sorted(axes.items(), key=lambda pair: pair[0])))


def admits(axes: tuple[tuple[Axis, Dim], ...], at: tuple[int, ...], home: tuple[int, ...]) -> bool:
    """What requirements say of sizes, worked out anew: bounds on named axes, all others as at home."""
    source = {Axis(0, 0): 0, Axis(0, 1): 1, Axis(1, 0): 1, Axis(1, 1): 2}
    named = {source[axis] for axis, _ in axes}
    if any(at[i] != home[i] for i in range(3) if i not in named):
        return False
    return all(
        dim.min <= at[source[axis]] <= (dim.max or 1 << 62) and at[source[axis]] % dim.multiple_of == 0
        for axis, dim in axes
    )


def shape_of(axes: tuple[tuple[Axis, Dim], ...], home: tuple[int, ...]) -> Shape | None:
    try:
        return requested_shape(program(*home), axes)
    except ArgumentError:
        return None


@given(wishes, points)
def test_a_wished_shape_takes_what_the_wish_says(
    axes: tuple[tuple[Axis, Dim], ...], home: tuple[int, ...]
) -> None:
    shape = shape_of(axes, home)
    assert (shape is None) == (not admits(axes, home, home))
    if shape is None:
        return
    for at in itertools.product(SIZES, repeat=3):
        spec = program(*at)
        candidate = variant(spec, shape)
        assert candidate is not None
        assert candidate.takes(spec) == admits(axes, at, home)


@given(wishes, points)
def test_the_shape_is_the_same_wherever_in_it_one_asks(
    axes: tuple[tuple[Axis, Dim], ...], home: tuple[int, ...]
) -> None:
    """Equal predicates have equal texts: two programs that one kernel serves name the same kernel."""
    shape = shape_of(axes, home)
    if shape is not None:
        for at in itertools.product(SIZES, repeat=3):
            if admits(axes, at, home):
                assert shape_of(axes, at) == shape


shapes = st.builds(shape_of, wishes, points) | st.builds(lambda at: exact_shape(program(*at)), points)
stored = st.lists(shapes.filter(lambda shape: shape is not None), max_size=8)


@given(stored, points, st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_the_most_specific_is_a_total_order(listed: list[Shape], at: tuple[int, ...], random: Random) -> None:
    """Whatever the order in which kernels are listed, the same one is chosen; of equals the oldest."""
    spec = program(*at)
    aged = list(enumerate(listed))
    taken = [(age, shape) for age, shape in aged if one_of(spec, shape).takes(spec)]
    first = most_specific(spec, [(age, shape, age) for age, shape in aged])
    for _ in range(3):
        random.shuffle(aged)
        assert most_specific(spec, [(age, shape, age) for age, shape in aged]) == first
    assert (first is None) == (not taken)
    rest = dict(taken)
    ranks: list[tuple[int, int]] = []
    while rest:  # what is left without the first has a first of its own: one chain through all
        chosen = most_specific(spec, [(age, shape, age) for age, shape in rest.items()])
        assert chosen is not None
        ranks.append((one_of(spec, rest.pop(chosen)).count, chosen))
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(taken)


@given(st.tuples(shapes, shapes), points)
def test_of_two_that_differ_in_size_one_is_more_special(
    pair: tuple[Shape | None, Shape | None], at: tuple[int, ...]
) -> None:
    """Antisymmetric: unless they take equally many sizes, age has no say."""
    first, two = pair
    spec = program(*at)
    if first is None or two is None or not all(one_of(spec, each).takes(spec) for each in (first, two)):
        return
    older_one = most_specific(spec, [(1, first, first), (2, two, two)])
    older_two = most_specific(spec, [(2, first, first), (1, two, two)])
    if one_of(spec, first).count != one_of(spec, two).count:
        assert older_one == older_two
    else:
        assert (older_one, older_two) == (first, two)


small_dims = st.builds(Dim, st.integers(1, 5), st.integers(6, 8), st.sampled_from([1, 1, 2]))
small = st.tuples(*[st.none() | small_dims] * 3).map(
    lambda chosen: tuple(
        (axis, dim)
        for axis, dim in zip((Axis(0, 0), Axis(0, 1), Axis(1, 1)), chosen, strict=True)
        if dim is not None
    )
)


@given(small, small, points)
def test_what_takes_less_than_another_is_more_special(
    first: tuple[tuple[Axis, Dim], ...], second: tuple[tuple[Axis, Dim], ...], at: tuple[int, ...]
) -> None:
    """Inclusion decides where there is one, against age. All sizes are tried, since all are bounded."""
    spec = program(*at)
    inner, outer = shape_of(first, at), shape_of(second, at)
    if not first or not second or inner is None or outer is None:
        return
    grid = [program(*point) for point in itertools.product(SIZES, repeat=3)]
    inside, around = ([one_of(each, shape).takes(each) for each in grid] for shape in (inner, outer))
    if inside != around and all(out or not into for into, out in zip(inside, around, strict=True)):
        assert most_specific(spec, [(2, inner, "inner"), (1, outer, "outer")]) == "inner"


def one_of(spec: SpecSizes, shape: Shape) -> Variant:
    candidate = variant(spec, shape)
    assert candidate is not None
    return candidate


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ({}, ("f32[s0,s1];f32[s1,s2];i32[2*s0*s1,3*s2,64]", "")),
        ({(0, 0): Dim()}, ("f32[s0,4];f32[4,5];i32[8*s0,15,64]", "")),
        ({(1, 0): Dim(max=9)}, ("f32[2,s1];f32[s1,5];i32[4*s1,15,64]", "s1 <= 9")),
        ({(2, 0): Dim()}, ("f32[s0,s1];f32[s1,5];i32[2*s0*s1,15,64]", "")),
        ({(2, 1): Dim(4, 20, 6)}, ("f32[2,4];f32[4,s2];i32[16,3*s2,64]", None)),
        ({(2, 1): Dim(4, 20, 5)}, ("f32[2,4];f32[4,5];i32[16,15,64]", "")),
        ({(0, 0): Dim(2, 2)}, ("f32[2,4];f32[4,5];i32[16,15,64]", "")),
        ({(0, 1): Dim(1), (1, 0): Dim(max=8)}, ("f32[2,s1];f32[s1,5];i32[4*s1,15,64]", "1 <= s1 & s1 <= 8")),
    ],
)
def test_wished_shapes(axes: dict[tuple[int, int], Dim], expected: tuple[str, str | None]) -> None:
    requirements = ShapeRequirements(DYNAMIC, tuple((Axis(*at), dim) for at, dim in axes.items()))
    if expected[1] is None:
        with pytest.raises(ArgumentError, match=r"s2\) is 5 in the program"):
            requested_shape(program(2, 4, 5), requirements.axes)
    else:
        assert texts(requested_shape(program(2, 4, 5), requirements.axes)) == expected


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({(0, 2): Dim()}, r"axis 2 of argument 0, which has 2 axes: f32\[s0,s1\]"),
        ({(3, 0): Dim()}, "axis 0 of argument 3; the program has 3 arguments"),
        ({(2, 2): Dim()}, "axis 2 of argument 2 is fixed at 64 by the program"),
        ({(0, 0): Dim(min=3)}, r"axis 0 of argument 0 \(s0\) is 2 in the program, .* 3 <= s0"),
        ({(0, 0): Dim(multiple_of=4)}, r"s0 % 4 == 0"),
        ({(0, 1): Dim(min=8), (1, 0): Dim(max=7)}, r"are one size \(s1\), and no size meets both"),
        ({(2, 0): Dim(max=7)}, r"2\*s0\*s1: give the bounds of axis 0 of argument 0 \(s0\) and axis 1"),
        ({(2, 1): Dim(4, 5)}, r"3\*s2: no size of it meets"),
    ],
)
def test_wishes_that_cannot_be_say_which_axis(axes: dict[tuple[int, int], Dim], says: str) -> None:
    requirements = ShapeRequirements(DYNAMIC, tuple((Axis(*at), dim) for at, dim in axes.items()))
    with pytest.raises(ArgumentError, match=says):
        requested_shape(program(2, 4, 5), requirements.axes)


def test_what_the_program_leaves_open_stays_open() -> None:
    spec = program(-1, 4, 5)
    assert texts(exact_shape(spec)) == ("f32[s0,4];f32[4,5];i32[8*s0,15,64]", "")
    named = requested_shape(spec, ((Axis(1, 1), Dim(max=9)),))
    assert texts(named) == ("f32[s0,4];f32[4,s2];i32[8*s0,3*s2,64]", "s2 <= 9")
    bounded = requested_shape(spec, ((Axis(0, 0), Dim(max=9)),))
    assert not one_of(spec, bounded).takes(spec), "a kernel for some sizes is none for an open axis"
    assert one_of(spec, exact_shape(spec)).takes(spec)
    assert one_of(program(7, 4, 5), bounded).takes(program(7, 4, 5))
    assert not one_of(spec, exact_shape(program(2, 4, 5))).takes(spec)


@pytest.mark.parametrize(
    ("arg_spec", "guard"),
    [
        ("f32[s0,s1];f32[s1,s2];i32[2*s0*s1,3*s2,65]", ""),
        ("f32[s0,4];f32[s1,s2];i32[8*s0,3*s2,64]", ""),
        ("f32[s0,s1];f32[s1,s2]", ""),
        ("f32[s0];f32[s1,s2];i32[2*s0*s1,3*s2,64]", ""),
        ("bad", ""),
        ("f32[s0,s1];f32[s1,s2];i32[2*s0*s1,3*s2,64]", "s7 == 4"),
        ("f32[s0,4];f32[4,s2];i32[8*s0,3*s2,64]", "s1 == 4"),
        ("f32[s0,s1];f32[s1,s2];i32[2*s0*s1,3*s2,64]", "s0 or s1"),
    ],
)
def test_shapes_of_other_specs_are_none_of_this_one(arg_spec: str, guard: str) -> None:
    assert variant(program(2, 4, 5), Shape(arg_spec, guard)) is None


def test_symbols_within_others_are_the_only_ones() -> None:
    bounded = ((Axis(0, 0), Dim(multiple_of=2)), (Axis(0, 1), Dim()))
    spec = program(2, 4, 5)
    assert texts(requested_shape(spec, bounded, within=frozenset({"s1"}))) == texts(
        requested_shape(spec, ((Axis(0, 1), Dim()),))
    )
    assert requested_shape(spec, (), within=frozenset()) == exact_shape(spec)
    assert requested_shape(spec, bounded, within=frozenset(NAMES)) == requested_shape(spec, bounded)


@given(st.lists(st.sampled_from(["2", "3", "s0", "s1", "s2"]), min_size=1, max_size=5), points)
def test_substitution_keeps_the_value(factors: list[str], at: tuple[int, ...]) -> None:
    values = dict(zip(NAMES, at, strict=True))
    formula = "*".join(factors)
    for count in range(4):
        some = {name: values[name] for name in NAMES[:count]}
        replaced = substitute(formula, some)
        assert evaluate(replaced, values) == evaluate(formula, values)
        assert not any(name in replaced for name in some)
    assert substitute("ceildiv(s0+1,4)", {"s0": 7}) == "2"
    assert substitute("ceildiv(s0+s1,4)", {"s0": 7}) == "ceildiv(7+s1,4)"


def test_arg_specs_are_read_back() -> None:
    assert parse_arg_spec("") == ()
    assert parse_arg_spec("i32[];f32[2,s0]") == (TensorSpec("i32", ()), TensorSpec("f32", ("2", "s0")))
    for bad in ("f32", "f32[2", "f32[2];", ";f32[2]", "f32[[2]]", "f 32[2]"):
        with pytest.raises(IntegrityError):
            parse_arg_spec(bad)


def test_a_wish_has_one_name() -> None:
    requirements = ShapeRequirements(AUTO, ((Axis(1, 0), Dim(3, 20, 8)), (Axis(0, 0), Dim())))
    two = ShapeRequirements(AUTO, ((Axis(0, 0), Dim(0)), (Axis(1, 0), Dim(8, 16, 8))))
    assert str(requirements) == str(two) == f"auto 0.0:0:{1 << 62}:1 1.0:8:16:8"
    assert str(ShapeRequirements()) == STATIC


@pytest.mark.parametrize(
    "bad",
    [{"min": -1}, {"max": -1}, {"multiple_of": 0}, {"min": 5, "max": 4}, {"min": 1.5}, {"max": True},
     {"min": 1, "max": 7, "multiple_of": 8}, {"max": 1 << 63}],
)  # fmt: skip
def test_bounds_that_are_none_are_rejected(bad: dict[str, int]) -> None:
    with pytest.raises(ArgumentError):
        Dim(**bad)


def test_wishes_that_contradict_themselves_are_rejected() -> None:
    axis = (Axis(0, 0), Dim())
    for mode, axes in ((STATIC, (axis,)), (DYNAMIC, (axis, axis)), ("sometimes", ())):
        with pytest.raises(ArgumentError):
            ShapeRequirements(mode, axes)
