"""Kernels of bundles, preloaded in place."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import kcache_grpc as kcache
from kcache_grpc import aio
from kcache_grpc.bundle import ArtifactEntry, Entry, KernelEntry, MappingEntry
from kcache_grpc.errors import (
    ArgumentError,
    IntegrityError,
    KcacheError,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from kcache_grpc.model.signing import Signer, server_id
from tests.client.cache.bundles import Bundles, files_in, trusted
from tests.client.conftest import PROGRAM, NewClient
from tests.client.fake import FakeServer, FakeService

pytestmark = pytest.mark.issue(number=20, point=3)


OTHER = PROGRAM.replace("4xf32", "5xf32")


def test_a_preloaded_kernel_needs_no_service(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService
) -> None:
    client = alone()
    with pytest.raises(Unavailable):
        client.compile(PROGRAM)
    report = client.preload(bundle(), trust=trusted(service))
    assert [item.kind for item in report.new] == ["mapping", "kernel", "kernel"]
    assert (report.present, report.rejected) == ((), ())
    assert report.unused == {"spec": 1}
    assert report.signers == (trusted(service),)
    kernel = client.compile(PROGRAM)
    assert kernel.origin == "preloaded"
    assert kernel.server_id == trusted(service)
    assert kernel.artifact("so").startswith(b"\x7fELF not really")
    assert client.compile(PROGRAM).origin == "memory"
    assert client.compile(PROGRAM.encode()).origin == "memory"
    assert client.compile(PROGRAM, target="x86-64-v2").origin == "preloaded"
    with pytest.raises(Unavailable):
        client.compile(PROGRAM, options=kcache.Options(opt_level=0))
    with pytest.raises(Unavailable):
        client.compile(OTHER)


def test_preloading_again_finds_everything_present(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService
) -> None:
    client = alone()
    client.preload(bundle(), trust=[trusted(service)])
    again = client.preload(bundle("b.kcb"), trust=[trusted(service)])
    assert again.new == ()
    assert len(again.present) == 3


def test_nothing_is_written_by_a_preload(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService, tmp_path: Path
) -> None:
    client = alone()
    before = files_in(tmp_path / "light")
    client.preload(bundle(), trust=trusted(service))
    client.compile(PROGRAM)
    assert files_in(tmp_path / "light") == before


def test_the_pinned_service_is_trusted_and_comes_after_the_bundle(
    bundle: Bundles, fake: FakeServer, service: FakeService, new_client: NewClient
) -> None:
    path = bundle()
    fake.start()
    client = new_client(fake.address)
    with pytest.raises(PermissionDenied, match="not trusted"):
        client.preload(path)
    client.compile(OTHER)  # pins the service
    assert client.preload(path).new
    service.calls.clear()
    assert client.compile(PROGRAM).origin == "preloaded"
    assert not service.calls


@pytest.mark.parametrize("change", ["epoch", "toolchain"])
def test_a_kernel_that_the_service_disowned_is_not_used(
    bundle: Bundles, fake: FakeServer, service: FakeService, new_client: NewClient, change: str
) -> None:
    """A preloaded kernel is not used once its own service has another epoch or toolchain."""
    path = bundle()
    if change == "epoch":
        service.epoch += 1
    else:
        service.toolchain = (("llvm", "23"),)
    service.compiled.clear()
    fake.start()
    client = new_client(fake.address)
    client.compile(OTHER)
    client.preload(path)
    assert client.compile(PROGRAM).origin == "compiled"
    assert client.stats().client["preload_disowned"] == 1


def test_a_kernel_in_memory_ends_with_its_epoch(
    bundle: Bundles, fake: FakeServer, service: FakeService, new_client: NewClient
) -> None:
    path = bundle()
    service.epoch += 1
    service.compiled.clear()
    fake.start()
    client = new_client(fake.address, server_id=trusted(service))
    client.preload(path)
    assert client.compile(PROGRAM).origin == "preloaded"  # nothing was heard of the service yet
    assert client.compile(PROGRAM).origin == "memory"
    client.compile(OTHER)  # asks the service, which says its epoch
    assert client.compile(PROGRAM).origin == "compiled"


def test_what_an_earlier_process_heard_counts(
    bundle: Bundles, fake: FakeServer, service: FakeService, new_client: NewClient
) -> None:
    path = bundle()
    service.epoch += 1
    fake.start()
    new_client(fake.address).compile(OTHER)
    fake.stop()
    client = new_client(fake.address)
    client.preload(path)
    with pytest.raises(Unavailable):
        client.compile(PROGRAM)


def test_an_untrusted_signer_is_rejected_and_nothing_changes(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService, tmp_path: Path
) -> None:
    client = alone()
    before = files_in(tmp_path / "light")
    stranger = Signer.generate()
    path = bundle(signer=stranger)
    for use in (client.preload, client.import_bundle):
        with pytest.raises(PermissionDenied, match=server_id(stranger.public_key)):
            use(path, trust=trusted(service))
    # The bundle is trusted, and the service that signed its kernels is not.
    report = client.preload(path, trust=server_id(stranger.public_key))
    assert report.new == ()
    assert {item.kind for item in report.rejected} == {"mapping", "kernel"}
    assert all(trusted(service) in item.reason for item in report.rejected)
    assert files_in(tmp_path / "light") == before
    with pytest.raises(Unavailable):
        client.compile(PROGRAM)
    both = [trusted(service), server_id(stranger.public_key)]
    assert len(client.preload(path, trust=both).new) == 3


def test_a_trust_that_is_no_identity_is_rejected(
    bundle: Bundles, alone: Callable[..., kcache.Client]
) -> None:
    with pytest.raises(ArgumentError, match="64 lower-case hex"):
        alone().preload(bundle(), trust="somebody")


def test_entries_that_contradict_what_was_signed_are_rejected(
    entries: list[Entry], bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService
) -> None:
    """A trusted creator that mixes up entries: each is named with the reason, the others are used."""
    [mapping] = [entry for entry in entries if isinstance(entry, MappingEntry)]
    kernels = [entry for entry in entries if isinstance(entry, KernelEntry)]
    others = [entry for entry in entries if not isinstance(entry, MappingEntry | KernelEntry)]
    wrong: list[Entry] = [
        replace(mapping, program_digest=b"\1" * 32),
        replace(kernels[0], kernel_digest=b"\2" * 32),
        replace(kernels[1], manifest=replace(kernels[1].manifest, signature=bytes(64))),
    ]
    client = alone()
    report = client.preload(bundle(chosen=[*others, mapping, *wrong]), trust=trusted(service))
    reasons = [item.reason for item in report.rejected]
    assert [item.name for item in report.new] == [mapping.name]
    assert "program digest" in reasons[0]
    assert "kernel digest" in reasons[1]
    assert "signature" in reasons[2]


def test_a_kernel_without_its_bytes_is_rejected(
    entries: list[Entry], bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService
) -> None:
    without = [entry for entry in entries if not isinstance(entry, ArtifactEntry)]
    client = alone()
    report = client.preload(bundle(chosen=without), trust=trusted(service))
    assert report.new == ()
    assert len(report.rejected) == 3
    assert all("does not have the" in item.reason for item in report.rejected)


def test_kernels_for_other_targets_are_rejected_where_a_target_is_named(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService, tmp_path: Path
) -> None:
    client = alone()
    report = client.preload(bundle(), trust=trusted(service), target="x86-64-v2")
    [rejected] = report.rejected
    assert "not x86-64-v2" in rejected.reason
    before = files_in(tmp_path / "light")
    with pytest.raises(ArgumentError, match="has no kernel for aarch64"):
        client.import_bundle(bundle(), trust=trusted(service), target="aarch64")
    assert files_in(tmp_path / "light") == before


def test_a_kernel_whose_bytes_changed_after_the_preload_is_not_used(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService
) -> None:
    client, path = alone(), bundle()
    client.preload(path, trust=trusted(service))
    content = bytearray(path.read_bytes())
    at = content.index(b"\x7fELF not really")
    content[at] ^= 1
    with path.open("r+b") as file:
        file.write(content)
    with pytest.warns(kcache.KcacheWarning, match="not used"), pytest.raises(Unavailable):
        client.compile(PROGRAM)


def test_a_bundle_that_changed_leaves_the_kernel_to_another_one_that_has_its_bytes(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService, entries: list[Entry]
) -> None:
    client, (_, second) = alone(), [entry for entry in entries if isinstance(entry, KernelEntry)]
    path = bundle("a.kcb", [entry for entry in entries if entry is not second])
    for each in (path, bundle("b.kcb")):
        assert client.preload(each, trust=trusted(service)).new
    content = path.read_bytes().replace(b"\x7fELF not really", b"\x7fELF not REALLY")
    with path.open("r+b") as file:
        file.write(content)
    for target in ("host", "x86-64-v2"):
        assert client.compile(PROGRAM, target=target).origin == "preloaded"


def test_a_name_in_the_setting_that_no_file_can_have_is_a_warning(
    bundle: Bundles,
    alone: Callable[..., kcache.Client],
    service: FakeService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KCACHE_PRELOAD", f"/{'n' * 300}.kcb:{bundle()}")
    monkeypatch.setenv("KCACHE_TRUST", trusted(service))
    with pytest.warns(kcache.KcacheWarning, match="File name too long"):
        assert alone().compile(PROGRAM).origin == "preloaded"


def test_a_folder_of_bundles(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService, tmp_path: Path
) -> None:
    folder = tmp_path / "bundles"
    folder.mkdir()
    good = bundle("good.kcb", folder=folder)
    (folder / "bad.kcb").write_bytes(b"no bundle")
    (folder / "link.kcb").symlink_to(good)
    (folder / "notes.txt").write_text("not a bundle, and not looked at")
    report = alone().preload(folder, trust=trusted(service))
    assert report.bundles == (str(good),)
    assert [(Path(item.name).name, item.kind) for item in report.rejected] == [
        ("bad.kcb", "bundle"),
        ("link.kcb", "bundle"),
    ]
    assert "symbolic link" in report.rejected[1].reason


@pytest.mark.parametrize("what", ["missing", "garbage", "truncated", "link"])
def test_a_bad_file_raises_where_it_is_named(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService, tmp_path: Path, what: str
) -> None:
    path, client = bundle(), alone()
    if what == "missing":
        path.unlink()
    elif what == "garbage":
        path.write_bytes(os.urandom(5000))
    elif what == "truncated":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        (tmp_path / "link.kcb").symlink_to(path)
        path = tmp_path / "link.kcb"
    before = files_in(tmp_path / "light")
    for use in (client.preload, client.import_bundle):
        with pytest.raises((NotFound, IntegrityError, ArgumentError)):
            use(path, trust=trusted(service))
    assert files_in(tmp_path / "light") == before


def test_the_setting_preloads_for_every_client(
    bundle: Bundles,
    alone: Callable[..., kcache.Client],
    service: FakeService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KCACHE_PRELOAD", str(bundle()))
    monkeypatch.setenv("KCACHE_TRUST", f"{'0' * 64},{trusted(service)}")
    for client in (alone("one"), alone("two")):
        assert client.compile(PROGRAM).origin == "preloaded"


def test_a_missing_or_bad_file_of_the_setting_warns_once_and_breaks_nothing(
    bundle: Bundles,
    fake: FakeServer,
    service: FakeService,
    new_client: NewClient,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    bad = tmp_path / "bad.kcb"
    bad.write_bytes(b"no bundle")
    paths = [tmp_path / "missing.kcb", bad, bundle()]
    monkeypatch.setenv("KCACHE_PRELOAD", ":".join(map(str, paths)))
    monkeypatch.setenv("KCACHE_TRUST", trusted(service))
    fake.start()
    client = new_client(fake.address)
    with pytest.warns(kcache.KcacheWarning, match="missing.kcb is not used") as warned:
        assert client.compile(PROGRAM).origin == "preloaded"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert client.compile(OTHER).origin == "compiled"
    assert len(warned) == 1
    assert client.stats().client["preload_failures"] == 2


def test_an_identity_in_the_setting_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCACHE_TRUST", "somebody")
    with pytest.raises(ArgumentError, match="KCACHE_TRUST"):
        kcache.Client()


def test_many_threads_preload_and_compile(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService
) -> None:
    client, path = alone(), bundle()
    origins: list[str] = []
    errors: list[KcacheError] = []

    def work() -> None:
        try:
            client.preload(path, trust=trusted(service))
            origins.append(client.compile(PROGRAM).origin)
        except KcacheError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert set(origins) <= {"preloaded", "memory"}
    assert len(origins) == 8


def test_the_asynchronous_client_does_the_same(
    bundle: Bundles, alone: Callable[..., kcache.Client], service: FakeService, tmp_path: Path
) -> None:
    path = bundle()
    alone()  # no service for anybody

    async def work() -> tuple[str, str]:
        async with aio.Client(cache_dir=tmp_path / "async", timeout=240) as client:
            await client.preload(path, trust=trusted(service))
            first = (await client.compile(PROGRAM)).origin
        async with aio.Client(cache_dir=tmp_path / "async", timeout=240) as client:
            await client.import_bundle(path, trust=trusted(service))
            return first, (await client.compile(PROGRAM)).origin

    assert asyncio.run(work()) == ("preloaded", "disk")
