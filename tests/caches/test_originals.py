"""Beside ``torch._inductor.cache``, where PyTorch is installed: the same interface, directory and entries."""

from __future__ import annotations

import inspect
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest

from kcache_grpc import caches
from kcache_grpc.caches.inductor import default_cache_dir
from tests.caches.harness.contract import entries

original = pytest.importorskip("torch._inductor.cache", exc_type=ImportError)
pytestmark = pytest.mark.issue(number=20, point=1)

CLASSES = ["Cache", "InMemoryCache", "AsyncCache", "OnDiskCache", "InductorOnDiskCache"]


def pairs_of_the_original() -> list[tuple[Any, Any]]:
    """Keys that the original allows, and values of all types."""
    return [(key, value) for key, value in entries(60) if not isinstance(key, bytes)]


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_method_has_the_parameters_of_the_original(name: str) -> None:
    """Ours may have more, by keyword; the name of the variable is a positional argument in both."""
    for method, function in inspect.getmembers(getattr(original, name), callable):
        if method.startswith("_"):
            continue
        theirs = list(inspect.signature(function).parameters)
        ours = inspect.signature(getattr(getattr(caches, name), method)).parameters
        more = list(ours.values())[len(theirs) :]
        assert [each for each in more if each.kind is not each.KEYWORD_ONLY] == [], method
        renamed = {"env_var": "name", "fpath": "path"}
        assert list(ours)[: len(theirs)] == [renamed.get(each, each) for each in theirs], method


def test_the_classes_derive_from_each_other_as_in_the_original() -> None:
    for name in CLASSES:
        for base in CLASSES:
            theirs = issubclass(getattr(original, name), getattr(original, base))
            assert issubclass(getattr(caches, name), getattr(caches, base)) is theirs
    assert issubclass(original.CacheError, ValueError)
    assert issubclass(caches.CacheError, ValueError)


def test_inductors_directory_is_that_of_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for user in ("me", "DOMAIN\\a:user", 'a/b*c?"<>|'):
        monkeypatch.setenv("LOGNAME", user)
        assert caches.InductorOnDiskCache().base_dir == original.InductorOnDiskCache().base_dir
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "other"))
    assert caches.InductorOnDiskCache().base_dir == original.InductorOnDiskCache().base_dir
    assert default_cache_dir().parent == tmp_path


def test_entries_of_the_original_are_read_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    theirs = original.InductorOnDiskCache()
    pairs = pairs_of_the_original()
    for key, value in pairs:
        assert theirs.insert(key, value) is True
    reading: Any = caches.InductorOnDiskCache(allow_pickle=True)
    assert [reading.get(key) for key, _ in pairs] == [value for _, value in pairs]
    assert [reading.insert(key, "new") for key, _ in pairs] == [False] * len(pairs)
    ours: Any = caches.InductorOnDiskCache()
    assert [ours.get(key) for key, _ in pairs] == [None] * len(pairs)


def test_both_use_one_directory_without_changing_entries_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    theirs, ours = original.InductorOnDiskCache(), caches.InductorOnDiskCache()
    pairs = pairs_of_the_original()
    for key, value in pairs:
        assert ours.insert(key, value) is True
        assert theirs.get(key) is None
        assert theirs.insert(key, "theirs") is True
    assert [theirs.get(key) for key, _ in pairs] == ["theirs"] * len(pairs)
    assert [ours.get(key) for key, _ in pairs] == [value for _, value in pairs]


def test_variables_and_files_of_the_original_are_read_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = pairs_of_the_original()
    text = ";".join(f"{pickle.dumps(key)!r},{pickle.dumps(value)!r}" for key, value in pairs)
    monkeypatch.setenv("CACHE_OF_A_TEST", text)
    (tmp_path / "file").write_bytes(pickle.dumps(dict(pairs)))
    theirs = [
        original.InMemoryCache.from_env_var("CACHE_OF_A_TEST"),
        original.InMemoryCache.from_file_path(tmp_path / "file"),
    ]
    ours: list[Any] = [
        caches.InMemoryCache.from_env_var("CACHE_OF_A_TEST", allow_pickle=True),
        caches.InMemoryCache.from_file_path(tmp_path / "file", allow_pickle=True),
    ]
    for cache in (*theirs, *ours):
        assert [cache.get(key) for key, _ in pairs] == [value for _, value in pairs]
