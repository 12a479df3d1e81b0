"""``InMemoryCache``: the contract, and its entries from an environment variable or a file."""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcache_grpc.caches import Cache, CacheError, InMemoryCache, encoding
from kcache_grpc.caches.encoding import MAX_DEPTH
from kcache_grpc.caches.memory import MAGIC
from tests.caches.harness.contract import CacheContract, Subject, entries

pytestmark = pytest.mark.issue(number=20, point=1)

NAME = "IN_MEMORY_CACHE_OF_A_TEST"
Loader = Callable[..., InMemoryCache[Any, Any]]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Loader:
    """The cache of a variable with a text."""

    def from_text(text: str | None, **arguments: Any) -> InMemoryCache[Any, Any]:
        if text is None:
            monkeypatch.delenv(NAME, raising=False)
        else:
            monkeypatch.setenv(NAME, text)
        return InMemoryCache.from_env_var(NAME, **arguments)

    return from_text


class TestInMemoryCache(CacheContract):
    @pytest.fixture
    def subject(self) -> Subject:
        return Subject(InMemoryCache())


class Witness(dict[bytes, bytes]):
    """Records its operations."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[str] = []

    def __contains__(self, key: object) -> bool:
        self.operations.append("contains")
        return super().__contains__(key)

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.operations.append("setitem")
        super().__setitem__(key, value)

    def setdefault(self, key: bytes, default: bytes = b"") -> bytes:
        self.operations.append("setdefault")
        return super().setdefault(key, default)


def test_a_key_is_looked_up_and_inserted_in_one_operation() -> None:
    """Two operations would interleave too seldom for a test of races, and a lock would survive a fork."""
    cache: InMemoryCache[str, int] = InMemoryCache()
    witness = Witness()
    cache._entries = witness  # pyright: ignore[reportPrivateUsage]
    assert cache.insert("key", 1) is True
    assert cache.insert("key", 1) is False
    assert witness.operations == ["setdefault"] * 2


def test_what_is_no_file_is_an_error_and_not_an_empty_cache(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path, tmp_path / "fifo", tmp_path / "loop", tmp_path / ("n" * 300), "\0", "/dev/zero"):
        with pytest.raises(CacheError, match="cannot be read"):
            InMemoryCache[Any, Any].from_file_path(path)


def test_the_deepest_key_and_value_are_written_to_a_file(tmp_path: Path) -> None:
    key: Any = "key"
    value: Any = "value"
    for _ in range(MAX_DEPTH):
        key, value = (key,), [value]
    cache: InMemoryCache[Any, Any] = InMemoryCache()
    assert cache.insert(key, value) is True
    cache.to_file_path(tmp_path / "file")
    assert InMemoryCache[Any, Any].from_file_path(tmp_path / "file").get(key) == value


def test_entries_that_exceed_a_limit_together_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache: InMemoryCache[Any, Any] = InMemoryCache()
    cache.insert("key", [0] * 10)
    cache.to_file_path(tmp_path / "file")
    cache.insert("other", [0] * 10)
    monkeypatch.setattr(encoding, "MAX_ITEMS", 20)
    with pytest.raises(CacheError, match=r"cannot be written to .*file: it has more than 20 items"):
        cache.to_file_path(tmp_path / "file")
    assert InMemoryCache[Any, Any].from_file_path(tmp_path / "file").count() == 1


def test_it_is_a_cache_and_counts_its_entries() -> None:
    cache: InMemoryCache[str, int] = InMemoryCache()
    assert isinstance(cache, Cache)
    assert cache.count() == 0
    cache.insert("a", 1)
    cache.insert("a", 2)
    assert cache.count() == 1


@pytest.mark.parametrize("text", [None, "", "  ", ";", " ; ;; "])
def test_an_unset_or_empty_variable_gives_an_empty_cache(load: Loader, text: str | None) -> None:
    assert load(text).count() == 0


@pytest.mark.parametrize(("space", "suffix"), list(itertools.product(["", " ", "\t\n "], ["", ";"])))
def test_a_variable_has_pairs_with_optional_whitespace_and_suffix(
    load: Loader, space: str, suffix: str
) -> None:
    pairs = entries(30)
    text = ";".join(f"{space}{key!r}{space},{space}{value!r}{space}" for key, value in pairs) + suffix
    cache = load(text)
    assert [cache.get(key) for key, _ in pairs] == [value for _, value in pairs]
    assert cache.count() == len(pairs)


literals = st.recursive(
    st.one_of(st.text(max_size=12), st.binary(max_size=12), st.integers(), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple)),
    max_leaves=6,
)


@given(st.lists(st.tuples(literals, literals), max_size=5, unique_by=lambda pair: encoding.encode(pair[0])))
def test_separators_inside_literals_belong_to_them(pairs: list[tuple[Any, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(NAME, ";".join(f"{key!r},{value!r}" for key, value in pairs))
        cache: InMemoryCache[Any, Any] = InMemoryCache.from_env_var(NAME)
    assert [cache.get(key) for key, _ in pairs] == [value for _, value in pairs]


def test_quotes_of_every_form_hide_separators(load: Loader) -> None:
    cache = load(
        "'a;,\\'', \"b;,'\" ; '''c;,''' , b';,' ; r'd\\;,', {'e;': (1, ';')}; \"\"\"f\"';,\"\"\",[1,2]"
    )
    assert cache.count() == 4
    assert cache.get("a;,'") == "b;,'"
    assert cache.get("c;,") == b";,"
    assert cache.get("d\\;,") == {"e;": (1, ";")}
    assert cache.get("f\"';,") == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("'a' 1", r"entry \"'a' 1\" of environment variable IN_MEMORY_CACHE_OF_A_TEST has no comma"),
        ("1,2;3", "entry '3' of .* has no comma"),
        ("1,2,3", "entry '1,2,3' of .* has 2 commas .* tuples in parentheses"),
        ("a,1", "the key of entry 'a,1' of .* is not a Python literal: 'a'; write a string in quotes"),
        ("1,a", "the value of entry '1,a' of .* is not a Python literal: 'a'"),
        ("b'x'/,b'y'/", "the key of entry .* is not a Python literal"),
        ("1,", "the value of entry '1,' .* is not a Python literal: ''"),
        (",1", "the key of entry ',1' .* is not a Python literal: ''"),
        ("1,'a", "the value of entry .* is not a Python literal"),
        ("1,(2", "the value of entry .* is not a Python literal"),
        ("1,2)", "the value of entry .* is not a Python literal"),
        ("1,__import__('os').getpid()", "is not a Python literal"),
        ("1,[x for x in (1,)]", "is not a Python literal"),
        ("1,f'{1}'", "is not a Python literal"),
        ("1,1+1", "is not a Python literal"),
        ("1,{1,2}", r"entry '1,\{1,2\}' of .* is invalid: the value \{1, 2\} cannot be encoded: type set"),
        ("1,2j", "type complex is not supported"),
        ("1,None", "a value cannot be None"),
        ("None,1", "a key cannot be None"),
        ("1," + "[" * 100 + "]" * 100, "more than 64 brackets"),
        ("1," + "-" * 10**5 + "1", "is not a Python literal: '---"),
        ("1," + "9" * 5000, "is not a Python literal"),
        ("1,2;" + "'k'," + "'" + "x" * 10**5, "is not a Python literal"),
    ],
)
def test_an_invalid_entry_is_named(load: Loader, text: str, message: str) -> None:
    with pytest.raises(CacheError, match=message) as caught:
        load(text)
    assert len(str(caught.value)) < 1000
    assert isinstance(caught.value, ValueError)


def test_identical_duplicates_are_allowed(load: Loader) -> None:
    cache = load("'a',{'x': 1, 'y': [2]} ; 2,'b' ; 'a', {'y': [2], 'x': 1}; 2,'b'")
    assert cache.get("a") == {"x": 1, "y": [2]}
    assert cache.count() == 2


@pytest.mark.parametrize(("first", "second"), [("1", "2"), ("1", "True"), ("[1]", "(1,)"), ("''", "b''")])
def test_conflicting_values_for_one_key_are_rejected(load: Loader, first: str, second: str) -> None:
    with pytest.raises(CacheError, match=r"key \('a', 1\) has two values in environment variable") as caught:
        load(f"('a', 1),{first};2,3;('a', 1),{second}")
    assert f"{first} and {second}" in str(caught.value)


def test_a_variable_of_the_original_needs_an_argument(load: Loader) -> None:
    pairs = entries(30)
    text = ";".join(f" {pickle.dumps(key)!r} , {pickle.dumps(value)!r} " for key, value in pairs) + ";"
    cache = load(text, allow_pickle=True)
    assert [cache.get(key) for key, _ in pairs] == [value for _, value in pairs]
    cache = load(text)
    assert [cache.get(key) for key, _ in pairs] == [None] * len(pairs)
    assert cache.get(pickle.dumps(pairs[0][0])) == pickle.dumps(pairs[0][1])


@pytest.mark.parametrize(
    "text",
    [
        "1,2",
        f"{pickle.dumps('a')!r},2",
        f"{pickle.dumps('a')!r}{pickle.dumps(1)!r}",
        f"{pickle.dumps('a')!r}/,{pickle.dumps(1)!r}/",
        f"{pickle.dumps('a')[::-1]!r},{pickle.dumps(1)[::-1]!r}",
        f"{pickle.dumps('a')!r},{pickle.dumps(1)!r};{pickle.dumps('a')!r},{pickle.dumps(2)!r}",
        f"{pickle.dumps('a')!r},{pickle.dumps(print)!r}",
    ],
    ids=["no bytes", "a value that is no bytes", "no comma", "no literal", "no pickle", "conflict", "code"],
)
def test_an_invalid_entry_of_the_original_is_rejected(load: Loader, text: str) -> None:
    with pytest.raises(CacheError, match=f"environment variable {NAME}"):
        load(text, allow_pickle=True)


def test_a_missing_file_gives_an_empty_cache(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", str(tmp_path / "missing"), tmp_path / "missing" / "too"):
        assert InMemoryCache.from_file_path(path).count() == 0


def filled() -> tuple[InMemoryCache[Any, Any], list[tuple[Any, Any]]]:
    cache: InMemoryCache[Any, Any] = InMemoryCache()
    pairs = entries(30)
    for key, value in pairs:
        cache.insert(key, value)
    return cache, pairs


def test_a_file_has_the_entries_of_the_cache_that_wrote_it(tmp_path: Path) -> None:
    cache, pairs = filled()
    path = tmp_path / "entries"
    cache.to_file_path(path)
    for again in (
        InMemoryCache.from_file_path(path),
        InMemoryCache.from_file_path(str(path), allow_pickle=True),
    ):
        assert [again.get(key) for key, _ in pairs] == [value for _, value in pairs]
        assert again.count() == len(pairs)
    before = path.read_bytes()
    InMemoryCache.from_file_path(path).to_file_path(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["entries"]


def test_a_file_that_cannot_be_written_leaves_the_older_one(tmp_path: Path) -> None:
    cache, _ = filled()
    (tmp_path / "entries").mkdir()
    with pytest.raises(OSError):
        cache.to_file_path(tmp_path / "entries")
    assert [each.name for each in tmp_path.iterdir()] == ["entries"]


def test_a_damaged_file_is_rejected_and_named(tmp_path: Path) -> None:
    cache, _ = filled()
    path = tmp_path / "entries"
    cache.to_file_path(path)
    whole = path.read_bytes()
    for at in [*range(0, len(whole), 37), len(whole) - 1]:
        path.write_bytes(whole[:at])
        with pytest.raises(CacheError, match=f"{path} does not contain the entries of a cache"):
            InMemoryCache.from_file_path(path)
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :])
        with pytest.raises(CacheError, match=f"{path} does not contain the entries of a cache"):
            InMemoryCache.from_file_path(path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2, 3], "not a list of pairs"),
        ({1: 2}, "not a list of pairs"),
        ([(1, 2, 3)], "not a list of pairs"),
        ([(1, 2), (1, 3)], "two values"),
        ([(1, None)], "cannot be None"),
    ],
)
def test_a_file_of_other_values_is_rejected(tmp_path: Path, value: Any, message: str) -> None:
    import hashlib

    content = encoding.encode(value)
    (tmp_path / "entries").write_bytes(MAGIC + hashlib.sha256(content).digest() + content)
    with pytest.raises(CacheError, match=message):
        InMemoryCache.from_file_path(tmp_path / "entries")


def test_a_file_of_the_original_needs_an_argument(tmp_path: Path) -> None:
    pairs = entries(30)
    path = tmp_path / "entries"
    path.write_bytes(pickle.dumps(dict(pairs)))
    with pytest.raises(CacheError, match=r"was not written by InMemoryCache\.to_file_path"):
        InMemoryCache.from_file_path(path)
    cache = InMemoryCache.from_file_path(path, allow_pickle=True)
    assert [cache.get(key) for key, _ in pairs] == [value for _, value in pairs]


@pytest.mark.parametrize(
    "data", [pickle.dumps({"a": 1})[::-1], pickle.dumps([1, 2, 3]), pickle.dumps({"a": print}), b"",
    pickle.dumps({"a": 1})[:-3]], ids=["no pickle", "no dict", "code", "empty", "truncated"],
)  # fmt: skip
def test_an_invalid_file_of_the_original_is_rejected(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "entries").write_bytes(data)
    with pytest.raises(CacheError, match=f"{tmp_path / 'entries'}"):
        InMemoryCache.from_file_path(tmp_path / "entries", allow_pickle=True)
