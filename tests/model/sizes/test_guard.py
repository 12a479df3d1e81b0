"""Guards: what they admit, that equal predicates have equal texts, that bad texts are rejected."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcache_grpc.errors import ArgumentError, IntegrityError
from kcache_grpc.model.sizes.guard import ANY, MAX_SIZE, Guard, guard_of, parse_guard, sizes

SYMBOLS: tuple[str, ...] = ("s0", "s1", "s10")
#: Above every bound that is drawn: what holds here holds beyond, but for divisibility, which 24 has in it.
SMALL = range(26)
EVERYWHERE: list[dict[str, int]] = [
    dict(zip(SYMBOLS, point, strict=True)) for point in itertools.product(SMALL, repeat=3)
]


@st.composite
def atoms(draw: st.DrawFn) -> str:
    symbol, other = draw(st.sampled_from(SYMBOLS)), draw(st.sampled_from(SYMBOLS))
    bound = draw(st.integers(0, 12))
    relation = draw(st.sampled_from(["==", "<=", "<", ">=", ">"]))
    return draw(
        st.sampled_from(
            [
                f"{symbol} {relation} {bound}",
                f"{bound}{relation}{symbol}",
                f"{symbol} % {bound or 1} == 0",
                f"{symbol}=={other}",
            ]
        )
    )


texts = st.lists(atoms(), max_size=5).map(" & ".join)


def meaning(text: str, values: dict[str, int]) -> bool:
    """What Python makes of the same text."""
    return all(eval(atom, {}, values) for atom in text.split("&") if atom.strip())


def parsed(text: str) -> Guard | None:
    try:
        return parse_guard(text)
    except ArgumentError:
        return None


@given(texts)
def test_a_guard_means_what_its_text_says(text: str) -> None:
    guard = parsed(text)
    admitted = [values for values in EVERYWHERE[::29] if guard is not None and guard.holds(values)]
    assert admitted == [values for values in EVERYWHERE[::29] if meaning(text, values)]


@given(texts, texts)
def test_texts_are_equal_exactly_when_the_guards_are(left: str, right: str) -> None:
    """Over sizes up to 11, which are all tried: there the sets decide, whatever the texts were."""
    bounds = " & ".join(f"{symbol} <= 11" for symbol in SYMBOLS)
    first, second = (parsed(f"{text} & {bounds}" if text else bounds) for text in (left, right))
    box: list[dict[str, int]] = [
        dict(zip(SYMBOLS, point, strict=True)) for point in itertools.product(range(12), repeat=3)
    ]
    sets = [[guard is not None and guard.holds(values) for values in box] for guard in (first, second)]
    texts_of = [None if guard is None else guard.text for guard in (first, second)]
    assert (texts_of[0] == texts_of[1]) == (sets[0] == sets[1])


@given(texts)
def test_the_canonical_text_is_a_fixed_point(text: str) -> None:
    guard = parsed(text)
    if guard is not None:
        assert parse_guard(guard.text) == guard
        assert parse_guard(guard.text).text == guard.text


@given(texts, st.randoms(use_true_random=False))
def test_order_repetition_and_spaces_do_not_matter(text: str, random: Random) -> None:
    guard = parsed(text)
    parts = text.split(" & ") if text else []
    random.shuffle(parts)
    again = parsed("  &".join(parts + parts[:1]))
    assert guard == again


@given(texts)
def test_what_never_holds_is_rejected_and_nothing_else(text: str) -> None:
    if parsed(text) is None:
        assert not any(meaning(text, values) for values in EVERYWHERE[::3])
        probes = [dict.fromkeys(SYMBOLS, size) for size in (27720, 27720 * 7, 0, 1)]
        assert not any(meaning(text, values) for values in probes)


@given(texts, st.tuples(*[st.integers(0, 30)] * 3))
def test_the_broken_atom_is_false_and_of_the_symbol_that_is_named(text: str, sizes_: tuple[int, ...]) -> None:
    guard = parsed(text)
    if guard is None:
        return
    values: dict[str, int] = dict(zip(SYMBOLS, sizes_, strict=True))
    broken = guard.broken(values)
    assert (broken is None) == guard.holds(values)
    if broken is not None:
        symbol, atom = broken
        assert symbol in atom
        assert not meaning(atom, values)


@given(texts)
def test_the_count_is_how_many_sizes_are_admitted(text: str) -> None:
    bounded = " & ".join(filter(None, [text, *(f"{symbol} <= 9" for symbol in SYMBOLS)]))
    guard = parsed(bounded)
    if guard is not None:
        ten = itertools.product(range(10), repeat=3)
        assert guard.count(SYMBOLS) == sum(guard.holds(dict(zip(SYMBOLS, p, strict=True))) for p in ten)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        ("  ", ""),
        ("s0 >= 0", ""),
        ("s0 % 1 == 0 & s0 < 4611686018427387905", None),
        ("s0<5&s0>2", "3 <= s0 & s0 <= 4"),
        ("s0 % 8 == 0 & s0 >= 3 & s0 <= 30", "8 <= s0 & s0 <= 24 & s0 % 8 == 0"),
        ("s0 % 4 == 0 & s0 % 6 == 0", "s0 % 12 == 0"),
        ("s0 % 8 == 0 & s0 <= 15 & s0 >= 1", "s0 == 8"),
        ("s10 == s2 & s2 == s1", "s1 == s2 & s1 == s10"),
        ("s0 == s1 & s1 == 4", "s0 == 4 & s1 == 4"),
        ("7 == s0", "s0 == 7"),
    ],
)
def test_canonical_texts(text: str, canonical: str | None) -> None:
    if canonical is None:
        with pytest.raises(IntegrityError, match="above"):
            parse_guard(text)
    else:
        assert parse_guard(text).text == canonical


@pytest.mark.parametrize(
    "text",
    [
        "s0",
        "s0 ==",
        "== 4",
        "s0 == 4 &",
        "& s0 == 4",
        "s0 != 4",
        "s0 == -1",
        "s0 % 8 == 1",
        "s0 % 0 == 0",
        "s0 % s1 == 0",
        "s0 <= s1",
        "4 == 4",
        "s0 == 4 or s1 == 4",
        "s0 == 4 s1 == 4",
        "< == %",
        "__import__('os')",
        "s0 == 4; s1",
        "s\u0660 == 1",
        "s0 == \u0664",
        "s0 == 99999999999999999999999999",
        "s0 == 4 & " * 600 + "s0 == 4",
    ],
)
def test_bad_texts_are_rejected(text: str) -> None:
    with pytest.raises(IntegrityError):
        parse_guard(text)


@pytest.mark.parametrize(
    "text", ["s0 == 4 & s0 == 5", "s0 < 0", "s0 % 8 == 0 & 1 <= s0 & s0 <= 7", "s0==s1 & s0<3 & s1>3"]
)
def test_what_cannot_hold_says_so(text: str) -> None:
    with pytest.raises(ArgumentError, match="is unsatisfiable"):
        parse_guard(text)


def test_an_unknown_symbol_is_named() -> None:
    with pytest.raises(IntegrityError, match="'s1'"):
        parse_guard("s1 == 4").holds({"s0": 4})


def test_guards_are_made_of_sizes_too() -> None:
    eight = sizes(2, 64, 8)
    assert eight is not None
    assert guard_of({"s0": eight, "s1": ANY}) == parse_guard("8 <= s0 & s0 <= 64 & s0 % 8 == 0")
    assert guard_of({"s0": ANY}, [("s0", "s1")]) == parse_guard("s0 == s1")
    assert guard_of({"s0": eight}, [("s0", "s0")]) == guard_of({"s0": eight})
    assert sizes(5, 7, 8) is None
    assert MAX_SIZE in ANY
