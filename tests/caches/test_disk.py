"""``OnDiskCache``: the contract, its files, their versions, and damage to them."""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import stat
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kcache_grpc.caches import AsyncCache, Cache, CacheError, InductorOnDiskCache, OnDiskCache
from kcache_grpc.caches.encoding import key_digest
from kcache_grpc.caches.files import Files
from kcache_grpc.caches.inductor import default_cache_dir
from tests.caches.harness.contract import AsyncCacheContract, Subject

pytestmark = pytest.mark.issue(number=20, point=1)

KEY = ("matmul", 128)
VALUE = {"tile": [32, 32], "name": "v" * 40}


class TestOnDiskCache(AsyncCacheContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> Subject:
        reopen = functools.partial(OnDiskCache, base_dir=tmp_path / "cache")
        return Subject(reopen(), reopen)


class TestInductorOnDiskCache(AsyncCacheContract):
    @pytest.fixture
    def subject(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        cache: InductorOnDiskCache[Any, Any] = InductorOnDiskCache()
        assert cache.base_dir.is_relative_to(tmp_path)
        return Subject(cache, InductorOnDiskCache)


@pytest.fixture
def cache(tmp_path: Path) -> OnDiskCache[Any, Any]:
    return OnDiskCache(base_dir=tmp_path / "cache")


def entry_of(cache: OnDiskCache[Any, Any], key: Any = KEY) -> Path:
    return cache.base_dir / key_digest(key).hex()


def files_below(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())


def test_the_classes_are_caches() -> None:
    assert issubclass(InductorOnDiskCache, OnDiskCache)
    assert issubclass(OnDiskCache, AsyncCache)
    assert issubclass(AsyncCache, Cache)


def test_there_is_one_file_for_a_key_named_by_its_digest(cache: OnDiskCache[Any, Any]) -> None:
    assert cache.get(KEY) is None
    assert not cache.base_dir.exists()
    cache.insert(KEY, VALUE)
    cache.insert("other", VALUE)
    cache.insert(KEY, VALUE)
    assert files_below(cache.base_dir) == sorted([key_digest(KEY).hex(), key_digest("other").hex()])
    content = entry_of(cache).read_bytes()
    assert content[:4] == cache.version_prefix
    assert content[4:36] == key_digest(KEY)


def test_the_directory_and_its_files_are_the_users_own(cache: OnDiskCache[Any, Any]) -> None:
    cache.insert(KEY, VALUE)
    for directory in (cache.base_dir, cache.base_dir / "tmp"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry_of(cache).stat().st_mode) == 0o600


def test_missing_parents_are_the_users_own_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client uses the same cache directory, and only if it is closed to others."""
    monkeypatch.setenv("KCACHE_CACHE_DIR", str(tmp_path / "home" / "kcache"))
    OnDiskCache("mine").insert(KEY, VALUE)
    for part in ("home", "home/kcache", "home/kcache/caches"):
        assert stat.S_IMODE((tmp_path / part).stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_directory_that_others_may_write_to_is_not_used(cache: OnDiskCache[Any, Any], mode: int) -> None:
    cache.insert(KEY, VALUE)
    cache.base_dir.chmod(mode)
    with pytest.raises(CacheError, match=f"other users may write to {cache.base_dir}; run: chmod 700"):
        cache.get(KEY)
    with pytest.raises(CacheError, match="chmod 700"):
        cache.insert("other", VALUE)
    cache.base_dir.chmod(0o700)
    assert cache.get(KEY) == VALUE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a directory away")
def test_a_directory_of_another_user_is_not_used(cache: OnDiskCache[Any, Any]) -> None:
    cache.base_dir.mkdir(mode=0o700)
    os.chown(cache.base_dir, 12345, -1)
    for call in (lambda: cache.get(KEY), lambda: cache.insert(KEY, VALUE)):
        with pytest.raises(CacheError, match="belongs to another user"):
            call()


def test_a_file_in_the_place_of_the_directory_is_an_error(cache: OnDiskCache[Any, Any]) -> None:
    cache.base_dir.write_text("")
    for call in (lambda: cache.get(KEY), lambda: cache.insert(KEY, VALUE)):
        with pytest.raises(CacheError, match=f"{cache.base_dir}"):
            call()


def test_names_are_below_the_cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCACHE_CACHE_DIR", str(tmp_path))
    assert OnDiskCache().base_dir == tmp_path / "caches" / "on_disk_cache"
    assert OnDiskCache("mine").base_dir == tmp_path / "caches" / "mine"
    assert OnDiskCache(str(tmp_path / "x")).base_dir == tmp_path / "x"
    assert OnDiskCache(tmp_path / "x").base_dir == tmp_path / "x"
    assert OnDiskCache("mine", base_dir="y").base_dir == Path.cwd() / "y"
    monkeypatch.delenv("KCACHE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert OnDiskCache("mine").base_dir == tmp_path / "home" / "kcache" / "caches" / "mine"
    for name in ("..", "../other", "a/b", "."):
        with pytest.raises(CacheError, match="neither the name of a directory nor an absolute path"):
            OnDiskCache(name)


def test_the_directory_may_be_assigned(cache: OnDiskCache[Any, Any], tmp_path: Path) -> None:
    cache.insert(KEY, VALUE)
    cache.base_dir = tmp_path / "second"
    assert cache.get(KEY) is None
    assert cache.insert(KEY, "second") is True
    assert entry_of(cache).is_relative_to(tmp_path / "second")


def test_a_directory_that_is_removed_is_made_again(cache: OnDiskCache[Any, Any]) -> None:
    import shutil

    cache.insert(KEY, VALUE)
    shutil.rmtree(cache.base_dir)
    assert cache.get(KEY) is None
    assert cache.insert(KEY, VALUE) is True
    assert cache.get(KEY) == VALUE


def test_an_entry_of_another_version_is_removed_and_counts_as_a_miss(
    cache: OnDiskCache[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.insert(KEY, VALUE)
    with monkeypatch.context() as patch:
        patch.setattr(OnDiskCache, "version", OnDiskCache.version + 1)
        assert cache.get(KEY) is None
        assert files_below(cache.base_dir) == ["lock"]
        assert cache.insert(KEY, "new") is True
        assert cache.get(KEY) == "new"
    assert cache.get(KEY) is None
    assert cache.insert(KEY, VALUE) is True
    assert cache.get(KEY) == VALUE


def test_an_entry_of_another_version_does_not_prevent_an_insert(
    cache: OnDiskCache[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.insert(KEY, VALUE)
    monkeypatch.setattr(OnDiskCache, "version", OnDiskCache.version + 1)
    assert cache.insert(KEY, "new") is True
    assert cache.insert(KEY, "newer") is False
    assert cache.get(KEY) == "new"


def test_a_subclass_has_a_version_of_its_own(tmp_path: Path) -> None:
    class Mine(OnDiskCache[Any, Any]):
        version = 7

    assert Mine(base_dir=tmp_path).version_prefix != OnDiskCache(base_dir=tmp_path).version_prefix


class Interrupting(Files):
    """Runs an action before the lock is taken, as if another process had been faster."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action

    @contextmanager
    def locked(self, path: Path, *, shared: bool = False) -> Generator[None, None, None]:
        self._action()
        with super().locked(path, shared=shared):
            yield


def test_a_stale_entry_that_another_process_has_replaced_is_not_removed(tmp_path: Path) -> None:
    class Next(OnDiskCache[Any, Any]):
        version = 1

    OnDiskCache(base_dir=tmp_path).insert(KEY, "old")
    other = Next(base_dir=tmp_path)
    for call, result in ((lambda c: c.get(KEY), "new"), (lambda c: c.insert(KEY, "late"), False)):
        late = Next(base_dir=tmp_path, files=Interrupting(lambda: other.insert(KEY, "new")))
        assert call(late) == result
        assert other.get(KEY) == "new"
        entry_of(other).unlink()
        OnDiskCache(base_dir=tmp_path).insert(KEY, "old")


class Witness(Files):
    """Records of each entry that is removed or renamed whether the lock is held."""

    def __init__(self, lock: Path) -> None:
        self._lock = lock
        self.held: list[bool] = []

    def _look(self, path: Path) -> None:
        if path.parent == self._lock.parent:
            with self._lock.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self.held.append(False)
                except BlockingIOError:
                    self.held.append(True)

    def remove(self, path: Path) -> None:
        self._look(path)
        super().remove(path)

    def rename(self, source: Path, target: Path) -> None:
        self._look(source)
        super().rename(source, target)


def test_entries_are_removed_and_set_aside_under_the_lock_only(tmp_path: Path) -> None:
    class Next(OnDiskCache[Any, Any]):
        version = 1

    witness = Witness(tmp_path / "lock")
    cache = Next(base_dir=tmp_path, files=witness)
    OnDiskCache(base_dir=tmp_path).insert(KEY, "old")
    assert cache.get(KEY) is None
    cache.insert(KEY, VALUE)
    entry_of(cache).write_bytes(entry_of(cache).read_bytes()[:-1])
    with pytest.raises(CacheError):
        cache.get(KEY)
    assert witness.held == [True, True]


def test_a_damaged_entry_that_another_process_has_replaced_is_not_set_aside(
    cache: OnDiskCache[Any, Any],
) -> None:
    cache.insert(KEY, VALUE)
    entry_of(cache).write_bytes(entry_of(cache).read_bytes()[:-1])

    def replace() -> None:
        with pytest.raises(CacheError):
            cache.get(KEY)
        assert cache.insert(KEY, "new") is True

    late: OnDiskCache[Any, Any] = OnDiskCache(base_dir=cache.base_dir, files=Interrupting(replace))
    assert late.get(KEY) == "new"


def check_damage(cache: OnDiskCache[Any, Any], content: bytes) -> None:
    """A damaged entry is an error that names the key, or a miss if its prefix is damaged; never a value."""
    entry_of(cache).write_bytes(content)
    if len(content) >= 4 and content[:4] != cache.version_prefix:
        assert cache.get(KEY) is None
    else:
        with pytest.raises(
            CacheError, match=r"the entry of key \('matmul', 128\) is damaged: .* was moved to"
        ):
            cache.get(KEY)
        assert (cache.base_dir / "corrupt" / key_digest(KEY).hex()).read_bytes() == content
    assert cache.get(KEY) is None
    assert not entry_of(cache).exists()


def test_truncated_entries_are_never_read(cache: OnDiskCache[Any, Any]) -> None:
    cache.insert(KEY, VALUE)
    whole = entry_of(cache).read_bytes()
    for end in range(len(whole)):
        check_damage(cache, whole[:end])
    check_damage(cache, whole + b"N")
    assert cache.insert(KEY, VALUE) is True
    assert cache.get(KEY) == VALUE


def test_changed_entries_are_never_read(cache: OnDiskCache[Any, Any]) -> None:
    cache.insert(KEY, VALUE)
    whole = entry_of(cache).read_bytes()
    for at in range(len(whole)):
        check_damage(cache, whole[:at] + bytes((whole[at] ^ (1 << at % 8),)) + whole[at + 1 :])
    assert cache.insert(KEY, VALUE) is True
    assert cache.get(KEY) == VALUE


def test_the_entry_of_another_key_is_never_read(cache: OnDiskCache[Any, Any]) -> None:
    cache.insert("other", "another value")
    check_damage(cache, entry_of(cache, "other").read_bytes())
    assert cache.get("other") == "another value"


def test_an_entry_with_a_valid_checksum_and_no_encoded_value_is_damaged(cache: OnDiskCache[Any, Any]) -> None:
    cache.insert(KEY, VALUE)
    check_damage(cache, cache._content(key_digest(KEY), b"\x01x"))
    check_damage(cache, cache._content(key_digest(KEY), b"\x01N"))


def test_an_insert_does_not_replace_a_damaged_entry(cache: OnDiskCache[Any, Any]) -> None:
    """It exists until a ``get`` has set it aside."""
    cache.insert(KEY, VALUE)
    entry_of(cache).write_bytes(entry_of(cache).read_bytes()[:-1])
    assert cache.insert(KEY, VALUE) is False
    with pytest.raises(CacheError):
        cache.get(KEY)
    assert cache.insert(KEY, VALUE) is True


@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "device", "socket"])
def test_what_is_no_file_is_set_aside_and_is_not_waited_for(
    cache: OnDiskCache[Any, Any], kind: str, tmp_path: Path
) -> None:
    cache.insert("other", VALUE)
    path = entry_of(cache)
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    else:
        path.symlink_to(tmp_path / "elsewhere" if kind == "link" else "/dev/zero")
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert cache.insert(KEY, VALUE) is False
    with pytest.raises(CacheError, match=r"key \('matmul', 128\) is damaged: it is not a regular file"):
        cache.get(KEY)
    assert os.path.lexists(cache.base_dir / "corrupt" / path.name)
    assert cache.get(KEY) is None
    assert cache.insert(KEY, VALUE) is True
    assert cache.get(KEY) == VALUE
    assert len(list(Path("/proc/self/fd").iterdir())) == before


class ReadOnly(Files):
    """A directory without permission to write."""

    @contextmanager
    def locked(self, path: Path, *, shared: bool = False) -> Generator[None, None, None]:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        yield


def test_in_a_read_only_directory_a_stale_entry_is_a_miss_and_a_damaged_one_an_error(tmp_path: Path) -> None:
    class Next(OnDiskCache[Any, Any]):
        version = 1

    OnDiskCache(base_dir=tmp_path).insert(KEY, VALUE)
    assert Next(base_dir=tmp_path, files=ReadOnly()).get(KEY) is None
    cache: OnDiskCache[Any, Any] = OnDiskCache(base_dir=tmp_path, files=ReadOnly())
    assert cache.get(KEY) == VALUE
    entry_of(cache).write_bytes(entry_of(cache).read_bytes()[:-1])
    with pytest.raises(
        CacheError,
        match=r"'matmul', 128.* is damaged: it is truncated .* moved to corrupt/: Read-only file system",
    ):
        cache.get(KEY)


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_path_that_the_system_does_not_have_is_an_error(tmp_path: Path, name: str) -> None:
    cache: OnDiskCache[Any, Any] = OnDiskCache(base_dir=str(tmp_path / name))
    for call in (lambda: cache.get(KEY), lambda: cache.insert(KEY, VALUE)):
        with pytest.raises(CacheError, match=r"'matmul', 128.* cannot be"):
            call()


@pytest.mark.parametrize("fails", [False, True])
def test_a_lock_does_not_remain_with_a_process_that_was_forked_under_it(tmp_path: Path, fails: bool) -> None:
    """A fork copies the descriptor of the lock, as ``dup`` does."""
    path = tmp_path / "lock"
    copies: list[int] = []
    with suppress(KeyError), Files().locked(path):
        held = [each for each in Path("/proc/self/fd").iterdir() if each.resolve() == path]
        copies.extend(os.dup(int(each.name)) for each in held)
        if fails:
            raise KeyError
    assert len(copies) == 1
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(copies[0])


class Full(Files):
    """A device without space."""

    def write(self, descriptor: int, data: bytes) -> None:
        super().write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_device_is_an_error_that_names_the_key_and_leaves_nothing(tmp_path: Path) -> None:
    full: OnDiskCache[Any, Any] = OnDiskCache(base_dir=tmp_path, files=Full())
    with pytest.raises(
        CacheError,
        match=r"the entry of key \('matmul', 128\) in .* cannot be written: No space left on device",
    ):
        full.insert(KEY, VALUE)
    assert files_below(tmp_path) == []
    assert full.get(KEY) is None
    assert OnDiskCache(base_dir=tmp_path).insert(KEY, VALUE) is True


def test_abandoned_temporary_files_are_removed_and_those_in_use_are_not(tmp_path: Path) -> None:
    first: OnDiskCache[Any, Any] = OnDiskCache(base_dir=tmp_path)
    first.insert(KEY, VALUE)
    for name, age in ((".tmp-old", 7200), (".tmp-new", 10)):
        (tmp_path / "tmp" / name).write_text("")
        os.utime(tmp_path / "tmp" / name, (time.time() - age, time.time() - age))
    OnDiskCache(base_dir=tmp_path).insert("other", VALUE)
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == [".tmp-new"]


def test_inductors_directory_is_where_inductor_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "DOMAIN\\a:user")
    assert default_cache_dir() == tmp_path / "torchinductor_DOMAIN_a_user"
    cache: InductorOnDiskCache[Any, Any] = InductorOnDiskCache()
    assert cache.base_dir == default_cache_dir() / "cache" / "inductor_on_disk_cache"
    cache.insert(KEY, VALUE)
    assert InductorOnDiskCache().get(KEY) == VALUE


@pytest.mark.parametrize("part", ["torchinductor_me", "torchinductor_me/cache"])
def test_inductors_directory_is_not_used_if_others_may_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "me")
    cache: InductorOnDiskCache[Any, Any] = InductorOnDiskCache()
    cache.insert(KEY, VALUE)
    (tmp_path / part).chmod(0o777)
    for call in (lambda: cache.get(KEY), lambda: cache.insert("other", VALUE)):
        with pytest.raises(CacheError, match=f"other users may write to {tmp_path / part}"):
            call()
