"""Kernels of bundles, imported into the cache directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kcache_grpc as kcache
from kcache_grpc.client.bundles import imported
from kcache_grpc.errors import IntegrityError, PermissionDenied, ResourceExhausted, Unavailable
from tests.client.cache.bundles import Bundles, files_in, trusted
from tests.client.conftest import PROGRAM
from tests.client.fake import CONSTANT, FakeService

pytestmark = pytest.mark.issue(number=20, point=3)


def test_an_imported_kernel_is_on_disk_for_later_clients(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService
) -> None:
    path = bundle()
    report = alone().import_bundle(path, trust=trusted(service))
    assert [item.kind for item in report.new] == ["kernel", "kernel", "mapping"]
    assert (report.new_artifacts, report.new_artifact_bytes) == (2, len(CONSTANT) + len(CODE))
    path.unlink()
    client = alone()
    kernel = client.compile(PROGRAM)
    assert (kernel.origin, kernel.server_id) == ("disk", trusted(service))
    assert client.compile(PROGRAM).origin == "memory"


CODE = b"\x7fELF not really " + bytes(32)


def test_a_second_import_changes_nothing(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService, tmp_path: Path
) -> None:
    client = alone()
    client.import_bundle(bundle(), trust=trusted(service))
    before = files_in(tmp_path / "light")
    again = client.import_bundle(bundle("again.kcb"))  # the signer is trusted from now on
    assert (again.new, again.new_artifacts) == ((), 0)
    assert len(again.present) == 3
    assert files_in(tmp_path / "light") == before


def test_a_signer_whose_file_is_removed_is_not_trusted_any_more(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService, tmp_path: Path
) -> None:
    alone().import_bundle(bundle(), trust=trusted(service))
    (tmp_path / "light" / "signers" / f"{trusted(service)}.json").unlink()
    client = alone()
    with pytest.raises(Unavailable):
        client.compile(PROGRAM)
    with pytest.raises(PermissionDenied):
        client.preload(bundle())


@pytest.mark.parametrize("folder", ["imported/mappings", "imported/kernels", "blobs"])
def test_a_damaged_file_of_an_import_is_a_miss_and_is_imported_again(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService, tmp_path: Path, folder: str
) -> None:
    alone().import_bundle(bundle(), trust=trusted(service))
    for path in (tmp_path / "light" / folder).rglob("*"):
        if path.is_file():
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
    client = alone()
    for target in ("host", "x86-64-v2"):
        with pytest.raises(Unavailable):
            client.compile(PROGRAM, target=target)
    client.import_bundle(bundle())
    for target in ("host", "x86-64-v2"):
        assert client.compile(PROGRAM, target=target).origin == "disk"


def test_a_corrupt_artifact_fails_the_import_before_anything_is_written(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService, tmp_path: Path
) -> None:
    path, client = bundle(), alone()
    content = bytearray(path.read_bytes())
    content[content.index(b"\x7fELF not really") + 5] ^= 1
    path.write_bytes(content)
    before = files_in(tmp_path / "light")
    with pytest.raises(IntegrityError, match="artifact"):
        client.import_bundle(path, trust=trusted(service))
    assert files_in(tmp_path / "light") == before


def test_a_folder_that_cannot_be_written_is_named_and_the_import_can_be_repeated(
    bundle: Bundles,
    alone: Callable[..., kcache.Client],
    service: FakeService,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    path, client = bundle(), alone()
    real, writes = os.fsync, [3]

    def full(descriptor: int) -> None:
        writes[0] -= 1
        if writes[0] < 0:
            raise OSError(28, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(ResourceExhausted, match="make room and import it again"):
            client.import_bundle(path, trust=trusted(service))
    assert client.import_bundle(path, trust=trusted(service)).new
    assert client.compile(PROGRAM).origin == "disk"


def test_an_import_that_fails_leaves_no_trust_in_its_signers(
    bundle: Bundles,
    alone: Callable[..., kcache.Client],
    service: FakeService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, real = bundle(), os.fsync
    allowed = left = 0

    def full(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    while True:
        left, client = allowed, alone(f"light-{allowed}")
        try:
            client.import_bundle(path, trust=trusted(service))
        except ResourceExhausted:
            with pytest.raises(PermissionDenied, match="not trusted"):
                client.import_bundle(path)
        else:
            break
        allowed += 1
    assert allowed > 4
    left = 100
    assert client.import_bundle(path).new == ()


@pytest.mark.parametrize("folder", ["imported/kernels", "imported/mappings"])
def test_a_damaged_file_of_an_import_is_not_present(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService, tmp_path: Path, folder: str
) -> None:
    client = alone()
    client.import_bundle(bundle(), trust=trusted(service))
    for path in (tmp_path / "light" / folder).rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1])
    again = client.import_bundle(bundle())
    assert {item.kind for item in again.new} == {folder.removeprefix("imported/").removesuffix("s")}
    assert client.compile(PROGRAM).origin == "disk"


@pytest.mark.parametrize(
    "failure",
    [OSError(24, "Too many open files"), IntegrityError("install a newer kcache-grpc", skew="bundle")],
    ids=["system", "version"],
)
def test_a_file_of_an_import_that_cannot_be_read_now_is_not_removed(
    bundle: Bundles,
    alone: Callable[..., kcache.Client],
    service: FakeService,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    failure: Exception,
) -> None:
    client = alone()
    client.import_bundle(bundle(), trust=trusted(service))
    before = files_in(tmp_path / "light" / "imported")

    def fail(*_: Any) -> Any:
        raise failure

    with monkeypatch.context() as patched:
        patched.setattr(imported, "read_regular", fail)
        with pytest.raises(Unavailable):
            client.compile(PROGRAM)
    assert files_in(tmp_path / "light" / "imported") == before
    assert client.compile(PROGRAM).origin == "disk"


def test_an_import_without_a_cache_directory_says_so(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService, tmp_path: Path
) -> None:
    (tmp_path / "light").mkdir(mode=0o755)
    with pytest.warns(kcache.KcacheWarning, match="chmod 700"):
        client = alone()
    with pytest.raises(PermissionDenied, match="preload the bundle instead"):
        client.import_bundle(bundle(), trust=trusted(service))
    client.preload(bundle(), trust=trusted(service))
    assert client.compile(PROGRAM).origin == "preloaded"
