"""Pickles of plain data, read without ``pickle``: the same values, the same names of files, and no code."""

from __future__ import annotations

import collections
import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcache_grpc.caches import CacheError, OnDiskCache, encoding, pickled
from tests.caches.harness.contract import entries
from tests.caches.test_encoding import hashables, typed, values

pytestmark = pytest.mark.issue(number=20, point=1)

keys = st.recursive(
    st.one_of(st.text(max_size=300), st.integers(), st.integers(-(2**40), 2**40), st.integers(-(2**3000),
    2**3000)), lambda inner: st.lists(inner, max_size=5).map(tuple), max_leaves=12,
)  # fmt: skip


@pytest.mark.parametrize("protocol", pickled.PROTOCOLS)
@given(value=values)
def test_plain_data_is_read(protocol: int, value: Any) -> None:
    assert typed(pickled.loads(pickle.dumps(value, protocol))) == typed(value)
    shared = [value, value, {"a": value, "b": (value, "a", "a")}]
    assert typed(pickled.loads(pickle.dumps(shared, protocol))) == typed(shared)


def test_large_data_of_many_frames_and_references_is_read() -> None:
    texts = [str(number) for number in range(3000)]
    value = [b"x" * 100_000, "é" * 70_000, texts, dict.fromkeys(texts, 1), texts, 1 << 5000, tuple(texts)]
    assert pickled.loads(pickle.dumps(value, 4)) == value


@pytest.mark.parametrize("protocol", pickled.PROTOCOLS)
@given(key=st.one_of(keys, hashables))
def test_keys_have_the_bytes_of_pickle(protocol: int, key: Any) -> None:
    expected = pickle.dumps(key, protocol)
    assert pickled.dumps_key(key, protocol) == (expected if len(expected) <= 1 << 16 else None)


def test_keys_that_share_items_have_the_bytes_of_pickle() -> None:
    text, many = "".join(["a", "b"]), tuple(str(number) for number in range(400))
    for key in (
        (text, text),
        (text, "ab"),
        (many, many),
        ((text,), (text,)),
        ((), ()),
        (b"x" * 300, text, b""),
    ):
        assert pickled.dumps_key(key, 4) == pickle.dumps(key, 4)


@pytest.mark.parametrize("key", [[1], {"a": 1}, ("a", [1]), {1}, object(), "x" * 70_000], ids=type)
def test_keys_that_the_original_has_not_have_no_name(key: Any) -> None:
    assert pickled.dumps_key(key, 4) is None


class Opens:
    """Its pickle creates a file when ``pickle`` reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_calls_code_is_rejected_and_calls_nothing(tmp_path: Path) -> None:
    path = tmp_path / "created"
    for value in (Opens(path), ["a", {"b": Opens(path)}]):
        for protocol in range(6):
            with pytest.raises(CacheError):
                pickled.loads(pickle.dumps(value, protocol))
    assert not path.exists()
    pickle.loads(pickle.dumps(Opens(path)))
    assert path.exists()


@pytest.mark.parametrize("depth", [64, 200_000])
def test_a_key_of_a_dict_that_is_too_deep_to_be_hashed_is_rejected(depth: int) -> None:
    """CPython hashes a tuple recursively, and overflows its stack without an exception."""
    with pytest.raises(CacheError, match="more than 64 containers inside each other"):
        pickled.loads(b"\x80\x04}K\x01" + b"\x85" * depth + b"K\x02s.")


def test_keys_that_refer_to_each_other_are_limited_in_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MAX_ITEMS", 1000)
    doubled = b"".join(b"h%ch%c\x86\x94" % (number, number) for number in range(12))
    with pytest.raises(CacheError, match="more than 1000 items"):
        pickled.loads(b"\x80\x04K\x01\x94" + doubled + b"}h\x0cK\x01s.")


@pytest.mark.parametrize(
    "value", [print, object(), {1}, frozenset({1}), 1j, bytearray(b"x"), collections.OrderedDict(a=1),
    ValueError("x"), int], ids=lambda value: getattr(value, "__name__", type(value).__name__),
)  # fmt: skip
def test_other_types_are_rejected(value: Any) -> None:
    with pytest.raises(CacheError):
        pickled.loads(pickle.dumps([value]))


def test_a_cyclic_value_is_rejected() -> None:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    with pytest.raises(CacheError, match="containers"):
        pickled.loads(pickle.dumps(cyclic))


def assert_plain_or_rejected(content: bytes) -> None:
    """What is read of damaged bytes is a value like any other: ``pickle`` writes it, and it is read again."""
    try:
        read = pickled.loads(content)
    except CacheError:
        return
    assert typed(pickled.loads(pickle.dumps(read, 4))) == typed(read)


@given(values, st.data())
def test_damaged_pickles_raise_cache_errors_only(value: Any, data: Any) -> None:
    whole = pickle.dumps(value, 4)
    at = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CacheError):
        pickled.loads(whole[:at])
    assert_plain_or_rejected(whole[:at] + bytes((data.draw(st.integers(0, 255)),)) + whole[at + 1 :])


@given(st.binary(max_size=30))
def test_other_bytes_raise_cache_errors_only(tail: bytes) -> None:
    assert_plain_or_rejected(b"\x80\x04" + tail + b".")


def legacy_entry(directory: Path, key: Any, content: bytes, version: int = 0, protocol: int = 4) -> Path:
    """An entry as the original writes it."""
    path = directory / hashlib.sha256(pickle.dumps(key, protocol)).hexdigest()[:32]
    path.write_bytes(hashlib.sha256(str(version).encode()).digest()[:4] + content)
    return path


@pytest.fixture
def both(tmp_path: Path) -> tuple[OnDiskCache[Any, Any], OnDiskCache[Any, Any]]:
    """A cache that reads entries of the original, and one that does not."""
    return OnDiskCache(base_dir=tmp_path, allow_pickle=True), OnDiskCache(base_dir=tmp_path)


def test_entries_of_the_original_need_an_argument(both: Any, tmp_path: Path) -> None:
    reading, other = both
    pairs = entries(30)
    for number, (key, value) in enumerate(pairs):
        protocol = 4 + number % 2
        legacy_entry(tmp_path, key, pickle.dumps(value, protocol), protocol=protocol)
    assert [reading.get(key) for key, _ in pairs] == [value for _, value in pairs]
    assert [other.get(key) for key, _ in pairs] == [None] * len(pairs)
    assert [reading.insert(key, "new") for key, _ in pairs] == [False] * len(pairs)
    assert [other.insert(key, "new") for key, _ in pairs] == [True] * len(pairs)


def test_entries_of_the_original_are_never_changed_or_removed(both: Any, tmp_path: Path) -> None:
    reading, _ = both
    stale = legacy_entry(tmp_path, "stale", pickle.dumps("old"), version=1)
    damaged = legacy_entry(tmp_path, "damaged", pickle.dumps("old")[:-2])
    assert reading.get("stale") is None
    with pytest.raises(
        CacheError, match=r"the entry of key 'damaged' in .* cannot be read: .* insert the key"
    ):
        reading.get("damaged")
    assert reading.insert("stale", "new") is True
    assert reading.insert("damaged", "new") is True
    assert (reading.get("stale"), reading.get("damaged")) == ("new", "new")
    assert stale.exists()
    assert damaged.exists()


def test_an_entry_of_the_original_that_calls_code_is_rejected(both: Any, tmp_path: Path) -> None:
    reading, _ = both
    legacy_entry(tmp_path, "key", pickle.dumps(Opens(tmp_path / "created")))
    with pytest.raises(CacheError, match="the entry of key 'key'"):
        reading.get("key")
    assert not (tmp_path / "created").exists()


def test_an_entry_of_the_original_is_read_under_its_lock(both: Any, tmp_path: Path) -> None:
    """The original writes in place: a reader without its lock would see a part."""
    import fcntl
    import threading

    reading, _ = both
    path = legacy_entry(tmp_path, "key", pickle.dumps("value")[:5])
    (tmp_path / "locks").mkdir()
    results: list[Any] = []
    with (tmp_path / "locks" / f"{path.name[:4]}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        reader = threading.Thread(target=lambda: results.append(reading.get("key")))
        reader.start()
        legacy_entry(tmp_path, "key", pickle.dumps("value"))
    reader.join(60)
    assert results == ["value"]
