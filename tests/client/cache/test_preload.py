"""Kernels of bundles in clients: preloaded in place, or imported into the cache directory."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc import aio, embedded
from kcache_grpc.bundle import ArtifactEntry, Entry, KernelEntry, MappingEntry, SpecEntry
from kcache_grpc.client.bundles import imported
from kcache_grpc.errors import (
    ArgumentError,
    IntegrityError,
    KcacheError,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unavailable,
)
from kcache_grpc.model.signing import Signer, server_id
from tests.bundle.making import metadata_of, spec, stored_entries, written
from tests.client.conftest import PROGRAM, NewClient
from tests.client.fake import CONSTANT, FakeServer, FakeService
from tests.serving import ServerProcess

pytestmark = pytest.mark.issue(number=20, point=3)

OTHER = PROGRAM.replace("4xf32", "5xf32")


@pytest.fixture
def entries(fake: FakeServer, service: FakeService, tmp_path: Path) -> list[Entry]:
    """Of a kernel with a constant, compiled for this machine and for x86-64-v2; the service is away then."""
    service.constants = (CONSTANT,)
    service.change_binding = lambda binding: replace(binding, key=1)  # the same for both targets
    with kcache.Client(fake.address, cache_dir=tmp_path / "maker", strict=True) as client:
        client.compile(PROGRAM)
        client.compile(PROGRAM, target="x86-64-v2")
    fake.stop()
    unique = {(entry.kind, entry.name): entry for entry in stored_entries(tmp_path / "maker")}
    return [spec(), *unique.values()]


Bundles = Callable[..., Path]


@pytest.fixture
def bundle(entries: list[Entry], service: FakeService, tmp_path: Path) -> Bundles:
    """Writes a bundle of the entries, signed by the service unless said otherwise."""

    def make(
        name: str = "a.kcb",
        chosen: list[Entry] | None = None,
        signer: Signer | None = None,
        folder: Path = tmp_path,
    ) -> Path:
        kept = entries if chosen is None else chosen
        path = folder / name
        path.write_bytes(written(kept, signer or service.signer, metadata_of(kept, service.signer)))
        return path

    return make


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., kcache.Client]]:
    """Clients of no service at all: none at an address, and none to embed."""
    monkeypatch.setattr(embedded, "missing", lambda: "this machine has no server")
    monkeypatch.setattr(embedded, "start", _cannot_start)
    clients: list[kcache.Client] = []

    def make(name: str = "light") -> kcache.Client:
        clients.append(kcache.Client(cache_dir=tmp_path / name, timeout=20))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def _cannot_start(*_: Any) -> None:
    raise Unavailable("this machine has no server")


def trusted(service: FakeService) -> str:
    return server_id(service.signer.public_key)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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


def test_a_trust_that_is_no_identity_is_refused(bundle: Bundles, alone: Callable[..., kcache.Client]) -> None:
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


# The setting.


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


# Imports.


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
        async with aio.Client(cache_dir=tmp_path / "async", timeout=20) as client:
            await client.preload(path, trust=trusted(service))
            first = (await client.compile(PROGRAM)).origin
        async with aio.Client(cache_dir=tmp_path / "async", timeout=20) as client:
            await client.import_bundle(path, trust=trusted(service))
            return first, (await client.compile(PROGRAM)).origin

    assert asyncio.run(work()) == ("preloaded", "disk")


# A real kernel, on a machine with nothing but the light client.

LIGHT = """
import importlib.abc, sys

BLOCKED = ("torch_mlir", "llvmlite", "sqlalchemy", "alembic", "grpc_health", "grpc_reflection", "onnx",
           "prometheus_client")
OURS = ("kcache_compiler", "kcache_migrations", "kcache_grpc.server", "kcache_grpc.service",
        "kcache_grpc.storage", "kcache_grpc.worker")

class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(each + ".") for each in BLOCKED):
            raise ModuleNotFoundError(f"{name} is not on this machine", name=name)

sys.meta_path.insert(0, Block())
import numpy as np
import kcache_grpc as kcache

program, how, path, trust, cache = sys.argv[1:]
client = kcache.Client(cache_dir=cache, timeout=20)
if how == "preload":
    client.preload(path, trust=trust)
elif how == "import":
    client.import_bundle(path, trust=trust)
kernel = client.compile(program)
x = np.arange(12, dtype=np.float32).reshape(4, 3)
(y,) = kernel(x)
np.testing.assert_array_equal(y, x * 2)
assert not [name for name in OURS if name in sys.modules]
print(kernel.origin)
"""

DOUBLE = (
    "func.func @main(%x: tensor<4x3xf32>) -> tensor<4x3xf32> {\n"
    "  %c = stablehlo.constant dense<2.0> : tensor<4x3xf32>\n"
    "  %0 = stablehlo.multiply %x, %c : tensor<4x3xf32>\n"
    "  return %0 : tensor<4x3xf32>\n}\n"
)


WIDE = DOUBLE.replace("4x3", "7x3")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A bundle of real kernels, static, dynamic and automatic, and the identity of its signer."""
    folder = tmp_path_factory.mktemp("real")
    with (
        ServerProcess(folder / "server") as server,
        kcache.Client(server.address, cache_dir=folder / "maker", strict=True) as client,
    ):
        client.compile(DOUBLE)
        client.compile(WIDE)
        client.compile([DOUBLE, WIDE], dynamic=True)
        graph = client.normalize(DOUBLE)
    stored = {(entry.kind, entry.name): entry for entry in stored_entries(folder / "maker")}
    entries = [SpecEntry(graph.digest, graph.text, "default", 1), *stored.values()]
    signer = Signer.from_file(next((folder / "server" / "state").glob("**/*key*")))
    path = folder / "real.kcb"
    path.write_bytes(written(entries, signer, metadata_of(entries)))
    return path, server_id(signer.public_key)


def test_a_machine_with_the_light_client_alone_runs_the_kernels_of_a_bundle(
    real: tuple[Path, str], tmp_path: Path
) -> None:
    path, trust = real
    for how, origin in (("preload", "preloaded"), ("import", "disk"), ("again", "disk")):
        command = [sys.executable, "-c", LIGHT, DOUBLE, how, str(path), trust, str(tmp_path / "cache")]
        ran = subprocess.run(command, capture_output=True, text=True, env=_light_environment())
        assert (ran.returncode, ran.stdout.strip()) == (0, origin), ran.stderr


@pytest.mark.parametrize("how", ["preload", "import_bundle"])
def test_kernels_for_all_sizes_and_automatic_ones(
    real: tuple[Path, str], alone: Callable[..., kcache.Client], how: str
) -> None:
    path, trust = real
    client = alone()
    getattr(client, how)(path, trust=trust)
    origin = {"preload": "preloaded", "import_bundle": "disk"}[how]
    dynamic = client.compile([DOUBLE, WIDE], dynamic=True)
    assert (dynamic.origin, dynamic.manifest.arg_spec) == (origin, "f32[s0,3]")
    for rows in (4, 7, 19):
        x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        np.testing.assert_array_equal(dynamic(x)[0], 2 * x)
    # Of kernels that take the sizes of the program, the most special one.
    assert client.compile(DOUBLE, dynamic="auto").manifest.arg_spec == "f32[4,3]"
    assert client.compile(DOUBLE, dynamic="auto").origin == "memory"
    # Evidence that the bundle does not have, and a dynamic kernel without evidence, are for a service.
    for program in ([DOUBLE, DOUBLE.replace("4x3", "9x3")], DOUBLE):
        with pytest.raises(Unavailable):
            client.compile(program, dynamic=True)


FORKED = """
import os, sys
import kcache_grpc as kcache

program, path, trust, cache = sys.argv[1:]
client = kcache.Client(cache_dir=cache, timeout=20)
client.preload(path, trust=trust)
child = os.fork()
if child == 0:
    os._exit(0 if client.compile(program).origin == "preloaded" else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert client.compile(program).origin == "preloaded"
"""


def test_a_forked_child_uses_the_bundles_of_its_parent(real: tuple[Path, str], tmp_path: Path) -> None:
    path, trust = real
    command = [sys.executable, "-c", FORKED, WIDE, str(path), trust, str(tmp_path / "cache")]
    ran = subprocess.run(command, capture_output=True, text=True, env=_light_environment())
    assert ran.returncode == 0, ran.stderr


def _light_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("KCACHE_")}
