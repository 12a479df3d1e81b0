"""The encoding of keys and values: one form for each value, of the same types when it is read back."""

from __future__ import annotations

import hashlib
import math
import struct
import sys
from collections import OrderedDict, namedtuple
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcache_grpc.caches import CacheError, encoding
from kcache_grpc.caches.encoding import decode, describe, encode, encode_key, encode_value, key_digest

pytestmark = pytest.mark.issue(number=20, point=1)

text = st.text(st.characters(exclude_categories=()), max_size=20)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    text,
    st.binary(max_size=20),
)
hashables = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(hashables, inner, max_size=4),
    ),
    max_leaves=20,
)


def typed(value: Any) -> Any:
    """``value`` with its types, and its floats as bits, so that ``==`` compares both."""
    if isinstance(value, dict):
        return "dict", {repr(typed(key)): typed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value).__name__, [typed(item) for item in value]
    if isinstance(value, float):
        return "float", struct.pack(">d", value)
    return type(value).__name__, value


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 1 << 21])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_are_read_from_any_buffer_and_every_other_form_of_them_is_rejected(
    size: int, kind: Any
) -> None:
    value = bytes(range(256)) * (size // 256) + bytes(size % 256)
    data = encode(value)
    result = decode(kind(data))
    assert type(result) is bytes
    assert result == value
    assert decode(memoryview(data)[:]) == value
    longer = b"\x01b" + data[2 : -size or None][:-1] + bytes([data[-size - 1] | 0x80, 0]) + value
    for wrong in (data[:-1], data + b"N", b"\x02" + data[1:], longer):
        with pytest.raises(CacheError):
            decode(kind(wrong))


@given(values)
def test_a_value_is_read_back_with_the_same_types(value: Any) -> None:
    assert typed(decode(encode(value))) == typed(value)


@given(values)
def test_reading_and_encoding_again_gives_the_same_bytes(value: Any) -> None:
    assert encode(decode(encode(value))) == encode(value)


@given(values, values)
def test_equal_bytes_are_equal_values(first: Any, second: Any) -> None:
    assert (encode(first) == encode(second)) is (typed(first) == typed(second))


@given(st.dictionaries(hashables, scalars, max_size=6), st.randoms())
def test_the_insertion_order_of_a_dict_does_not_matter(mapping: dict[Any, Any], random: Any) -> None:
    items = list(mapping.items())
    random.shuffle(items)
    assert encode(dict(items)) == encode(mapping)


@given(st.binary(max_size=60))
def test_bytes_are_rejected_or_are_the_one_encoding_of_their_value(tail: bytes) -> None:
    data = b"\x01" + tail
    try:
        value = decode(data)
    except CacheError:
        return
    assert encode(value) == data


@given(values, st.data())
def test_a_changed_byte_is_rejected_or_is_another_value(value: Any, data: Any) -> None:
    encoded = bytearray(encode(value))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        changed = decode(encoded)
    except CacheError:
        return
    assert encode(changed) == bytes(encoded) != encode(value)


@given(values)
def test_every_truncation_is_rejected(value: Any) -> None:
    encoded = encode(value)
    for end in range(len(encoded)):
        with pytest.raises(CacheError):
            decode(encoded[:end])
    with pytest.raises(CacheError, match="1 bytes follow"):
        decode(encoded + b"N")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "014e"),
        (True, "0154"),
        (False, "0146"),
        (0, "01690100"),
        (-1, "016901ff"),
        (127, "0169017f"),
        (128, "0169020080"),
        (-128, "01690180"),
        (1.5, "01643ff8000000000000"),
        ("é", "017302c3a9"),
        ("\ud800", "017303eda080"),
        (b"x" * 200, "0162c801" + "78" * 200),
        ((), "017400"),
        ([1, "a"], "016c02690101730161"),
        ({"b": 1, "a": ()}, "016d02730161740073016269" + "0101"),
    ],
)
def test_the_bytes_are_those_of_the_documented_format(value: Any, expected: str) -> None:
    assert encode(value).hex() == expected
    assert typed(decode(bytes.fromhex(expected))) == typed(value)


def test_a_digest_is_that_of_the_documented_format() -> None:
    """It names entries in files and on servers: it must not change."""
    expected = hashlib.sha256(b"kcache.caches.key\0" + b"\x01t\x02s\x06matmuli\x02\x00\x80").digest()
    assert key_digest(("matmul", 128)) == expected


def test_values_that_python_takes_for_equal_are_different_keys() -> None:
    keys = [1, True, 1.0, "1", b"1", (1,), [1], {1: 1}, 0, False, 0.0, -0.0, "", b"", (), [], {}]
    assert len({key_digest(key) for key in keys}) == len(keys)


class Color(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "value",
    [
        {1, 2}, frozenset(), 1j, bytearray(b"x"), memoryview(b"x"), object(), lambda: None, int, range(3),
        Color.RED, OrderedDict(a=1), namedtuple("P", "x")(1), type("S", (str,), {})("s"), ...,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
@pytest.mark.parametrize("inside", [False, True])
def test_other_types_are_rejected_and_named(value: Any, inside: bool) -> None:
    with pytest.raises(CacheError, match=f"type {type(value).__name__} is not supported"):
        encode(["a", {"b": (value,)}] if inside else value)


def test_an_error_names_the_key_or_value() -> None:
    with pytest.raises(CacheError, match=r"the key \('a', \{1\}\) cannot be encoded: type set"):
        encode_key(("a", {1}))
    with pytest.raises(CacheError, match=r"the value \{1\} cannot be encoded: type set"):
        encode_value({1})
    for check in (encode_key, encode_value):
        with pytest.raises(CacheError, match="cannot be None"):
            check(None)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_depth_is_limited_in_both_directions() -> None:
    assert decode(encode(nested(encoding.MAX_DEPTH))) == nested(encoding.MAX_DEPTH)
    with pytest.raises(CacheError, match="more than 64 containers"):
        encode(nested(encoding.MAX_DEPTH + 1))
    with pytest.raises(CacheError, match="more than 64 containers"):
        decode(b"\x01" + b"l\x01" * 65 + b"N")
    with pytest.raises(CacheError, match="more than 64 containers"):
        decode(b"\x01" + b"l\x01" * 1_000_000 + b"N")
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    with pytest.raises(CacheError, match="more than 64 containers"):
        encode(cyclic)


@pytest.mark.parametrize("value", [["a", "b"], {1: "a", 2: "b"}], ids=["list", "dict"])
def test_a_value_that_changes_while_it_is_encoded_is_encoded_as_it_was_at_some_moment(value: Any) -> None:
    def change(frame: Any, event: str, argument: Any) -> None:
        """Runs at every call of a function, as another thread might."""
        if frame.f_code.co_name == "add":
            value.append("c") if isinstance(value, list) else value.update({len(value) + 1: "c"})

    trace = sys.gettrace()
    sys.settrace(change)
    try:
        encoded = encode(value)
    finally:
        sys.settrace(trace)
    read = decode(encoded)
    assert len(value) > len(read) >= 2
    assert (read if isinstance(read, list) else list(read.values()))[:2] == ["a", "b"]


def test_items_are_limited_in_both_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of lists of one list may have more items than memory has bytes."""
    monkeypatch.setattr(encoding, "MAX_ITEMS", 1000)
    doubled: Any = []
    for _ in range(40):
        doubled = [doubled, doubled]
    with pytest.raises(CacheError, match="more than 1000 items"):
        encode(doubled)
    assert len(decode(b"\x01l" + encoding.size_bytes(999) + b"N" * 999)) == 999
    with pytest.raises(CacheError, match="more than 1000 items"):
        decode(b"\x01l" + encoding.size_bytes(1000) + b"N" * 1000)


def test_bytes_are_limited_in_both_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MAX_BYTES", 1000)
    assert decode(encode(b"x" * 996)) == b"x" * 996
    with pytest.raises(CacheError, match="more than 1000 bytes"):
        encode(b"x" * 997)
    with pytest.raises(CacheError, match="at most 1000 bytes; these are 1001"):
        decode(b"\x01b" + encoding.size_bytes(997) + b"x" * 997)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "needed"),
        ("024e", "not an encoded value"),
        ("0178", "unknown tag b'x' at offset 1"),
        ("016900", "not in its shortest form"),
        ("0169020001", "not in its shortest form"),
        ("01738000", "not in its shortest form"),
        ("0173808080808000", "more than 5 bytes"),
        ("017301ff", "is not UTF-8"),
        ("0162ffffffff0f", "are needed"),
        ("016cffffffff0f", "are needed"),
        ("016d02730162" + "4e" + "7301614e", "not in ascending order"),
        ("016d02730161" + "4e" + "7301614e", "not in ascending order"),
        ("016d016c004e", "not hashable"),
    ],
)
def test_other_bytes_are_rejected_with_their_offset(data: str, message: str) -> None:
    with pytest.raises(CacheError, match=message):
        decode(bytes.fromhex(data))


def test_keys_of_a_dict_that_python_takes_for_equal_are_rejected() -> None:
    with pytest.raises(CacheError, match="not in ascending order"):
        decode(b"\x01m\x02" + encode(1)[1:] + b"N" + encode(True)[1:] + b"N")
    with pytest.raises(CacheError, match="are equal"):
        decode(b"\x01m\x02" + encode(True)[1:] + b"N" + encode(1)[1:] + b"N")
    with pytest.raises(CacheError, match="one encoding"):
        encode({math.nan: 1, float("nan"): 2})


def test_descriptions_are_short_and_never_fail() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    for value in (
        "x" * 10**6,
        b"x" * 10**6,
        10**10000,
        [[1] * 1000] * 1000,
        {"a" * 1000: Broken()},
        nested(1000),
    ):
        assert len(describe(value)) < 1000
    assert describe(("a", 1)) == "('a', 1)"


@given(st.one_of(text, st.text(min_size=120, max_size=140)))
def test_a_short_key_has_the_encoding_of_a_value(key: str) -> None:
    assert encode_key(key) == encode(key)
