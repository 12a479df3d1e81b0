"""Bundles out of one server and into others: what is preserved, what is rejected, and what never changes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kcache_grpc as kcache
from kcache_grpc import aio
from kcache_grpc._proto.kcache.v1 import bundles_pb2, bundles_pb2_grpc
from kcache_grpc.bundle import BlobEntry, BundleMetadata, BundleWriter, EntryKind, open_bundle
from kcache_grpc.bundle.verify import verify_bundle
from kcache_grpc.caches import RemoteCache
from kcache_grpc.errors import ArgumentError, IntegrityError, NotFound, PermissionDenied, Unavailable
from kcache_grpc.model.signing import Signer
from kcache_grpc.storage import open_store
from tests.s3 import S3Server
from tests.server.harness import large_jobs
from tests.server.harness.running import Running, config_in, running
from tests.serving import ServerProcess

pytestmark = [pytest.mark.issue(number=20, point=4)]

SIZES = (4, 8)


def program(size: int) -> str:
    kind = f"tensor<{size}xf32>"
    return (
        f"func.func @main(%a: {kind}) -> {kind} {{\n  %0 = stablehlo.add %a, %a : {kind}\n"
        f"  return %0 : {kind}\n}}\n"
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(config_in(tmp_path_factory.mktemp("source"))) as server:
        yield server


@pytest.fixture(scope="module")
def bundle(source: Running, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two kernels of one spec, one of them tuned for another target too."""
    folder = tmp_path_factory.mktemp("bundle")
    with kcache.Client(source.address, cache_dir=folder / "cache", strict=True, job="train-7") as client:
        for size in SIZES:
            client.compile(program(size))
        client.export_bundle(folder / "model.kcb")
    return folder / "model.kcb"


@pytest.fixture
def importing(tmp_path: Path) -> Iterator[tuple[Running, kcache.Client]]:
    """An empty server, and a client that may administer it."""
    config = replace(config_in(tmp_path), socket=tmp_path / "run" / "s")
    with (
        running(config) as server,
        kcache.Client(f"unix:{tmp_path}/run/s", cache_dir=tmp_path / "cache", strict=True) as client,
    ):
        yield server, client


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def signer_of(path: Path) -> str:
    with open_bundle(path) as bundle:
        return bundle.signer


def digests(path: Path) -> dict[str, set[str]]:
    """What an import must preserve."""
    with open_bundle(path) as bundle:
        return {kind.label: {entry.name for entry in bundle.of_kind(kind)} for kind in EntryKind}


def rows(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """All that imports could change, but for the audit log, which says that somebody tried."""
    tables = (
        "specs",
        "graph_mappings",
        "kernels",
        "kernel_artifacts",
        "artifacts",
        "artifact_chunks",
        "constants",
    )
    with closing(sqlite3.connect(folder / "kcache.sqlite")) as connection:
        return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables}


def test_what_a_client_used_runs_at_another_server_without_a_compile(
    bundle: Path, importing: tuple[Running, kcache.Client]
) -> None:
    _server, client = importing
    report = client.upload_bundle(bundle, trust=signer_of(bundle))
    assert ({item.kind for item in report.new}, report.rejected) == ({"mapping", "kernel"}, ())
    kernel = client.compile(program(8))
    assert kernel.origin == "preloaded"
    assert np.array_equal(kernel(np.ones(8, np.float32))[0], np.full(8, 2, np.float32))
    assert not list(client.audit("kind = publish"))


def test_a_second_import_finds_everything_present(
    bundle: Path, importing: tuple[Running, kcache.Client], tmp_path: Path
) -> None:
    _, client = importing
    first = client.upload_bundle(bundle, trust=signer_of(bundle))
    before = rows(tmp_path)
    second = client.upload_bundle(bundle, trust=signer_of(bundle))
    assert (second.new, second.rejected) == ((), ())
    assert len(second.present) == len(first.new) + len(first.present)
    assert rows(tmp_path) == before


def test_keys_are_those_of_the_importing_namespace(
    bundle: Path, importing: tuple[Running, kcache.Client]
) -> None:
    _server, client = importing
    other = "func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> {\n  return %a : tensor<3xf32>\n}\n"
    assert client.store(other) == 1
    client.upload_bundle(bundle, trust=signer_of(bundle))
    kernel = client.compile(program(4))
    assert kernel.key == 2
    assert (kernel.manifest.key, kernel.manifest.namespace) == (2, "default")
    with open_bundle(bundle) as opened:
        assert kernel.manifest.bundle_digest == opened.digest


def test_values_travel_with_a_bundle_and_overwrite_none(
    importing: tuple[Running, kcache.Client], tmp_path: Path
) -> None:
    values = {"small": b"x" * 10, "large": bytes(range(256)) * 9000, "taken": b"theirs"}
    with (
        running(config_in(tmp_path / "source")) as source,
        kcache.Client(source.address, cache_dir=tmp_path / "c", strict=True) as client,
    ):
        RemoteCache(client).insert_many(values.items(), seconds=2.0)
        report = client.export_bundle(tmp_path / "values.kcb", blobs=True)
    assert report.entries == {"blob": 3}
    _, client = importing
    cache: RemoteCache[str, bytes] = RemoteCache(client)
    assert cache.insert("taken", b"mine")
    uploaded = client.upload_bundle(tmp_path / "values.kcb", trust=signer_of(tmp_path / "values.kcb"))
    assert (len(uploaded.new), len(uploaded.present), len(uploaded.rejected)) == (2, 0, 1)
    assert "another value" in uploaded.rejected[0].reason
    assert cache.get_many(list(values)) == [values["small"], values["large"], b"mine"]
    again = client.upload_bundle(tmp_path / "values.kcb", trust=signer_of(tmp_path / "values.kcb"))
    assert (len(again.new), len(again.present), len(again.rejected)) == (0, 2, 1)
    assert client.stats().blob_seconds_saved == 4.0


def test_a_server_that_is_killed_in_an_import_keeps_whole_kernels_only(
    source: Running, tmp_path: Path
) -> None:
    path = tmp_path / "many.kcb"
    with kcache.Client(source.address, cache_dir=tmp_path / "c", strict=True, namespace="many") as client:
        client.compile_many([program(size) for size in range(20, 32)])
        client.export_bundle(path)
    other = ServerProcess(tmp_path / "other")
    with other:
        address = f"unix:{tmp_path}/other/run/kcache.sock"
        with kcache.Client(address, cache_dir=tmp_path / "d", strict=True, timeout=240) as client:
            upload = ThreadPoolExecutor(1).submit(client.upload_bundle, path, trust=signer_of(path))
            with closing(sqlite3.connect(other.database)) as connection:
                while not connection.execute("SELECT count(*) FROM kernels").fetchone()[0]:
                    assert not upload.done() or not upload.exception()
            other.kill()
            with open_store(f"sqlite:///{other.database}") as store:
                space = store.find_namespace("default")
                assert space is not None
                stored = [row.kernel.kernel_digest for row in store.page_kernels(space, 0, 100)]
                assert 1 <= len(stored) <= 12
                assert set(store.find_kernels(space, stored)) == set(stored)
            assert isinstance(upload.exception(), Unavailable | None)  # None: it was done before the kill
        other.start()
        with kcache.Client(address, cache_dir=tmp_path / "d", strict=True, timeout=240) as client:
            again = client.upload_bundle(path, trust=signer_of(path))
            assert again.rejected == ()
            assert len(stored) <= sum(item.kind == "kernel" for item in again.present)
            kernels = [item for item in (*again.new, *again.present) if item.kind == "kernel"]
            assert len(kernels) == 12


def test_exports_and_imports_are_in_the_audit_log(
    bundle: Path, source: Running, importing: tuple[Running, kcache.Client], tmp_path: Path
) -> None:
    _, client = importing
    digest = client.upload_bundle(bundle, trust=signer_of(bundle)).digest
    events = list(client.audit("kind = import AND outcome = ok"))
    assert [digest in event.detail and '"new": 4' in event.detail for event in events] == [True]
    with kcache.Client(source.address, cache_dir=tmp_path / "reader", strict=True) as reader:
        exports = list(reader.audit("kind = export"))
    assert digest in {event.detail[12:76] for event in exports}


@pytest.mark.parametrize(
    "choice",
    [
        {"keys": [1]},
        {"job": "train-7"},
        {"filter": "kind = publish"},
        {"since": "2020-01-01T00:00:00Z", "until": "2100-01-01T00:00:00Z"},
        {"everything": True},
    ],
)
def test_every_selection_gives_a_whole_bundle(
    bundle: Path, source: Running, tmp_path: Path, choice: dict[str, object]
) -> None:
    with kcache.Client(source.address, cache_dir=tmp_path / "cache", strict=True) as client:
        client.export_bundle(tmp_path / "b.kcb", **choice)  # pyright: ignore[reportArgumentType]
    with open_bundle(tmp_path / "b.kcb") as opened:
        report = verify_bundle(opened, trusted=[opened.signer])
    assert (report.findings, report.entries["kernel"], report.entries["mapping"]) == ((), 2, 2)
    assert digests(tmp_path / "b.kcb") == digests(bundle)


def test_a_program_selects_its_own_mapping_only(bundle: Path, source: Running, tmp_path: Path) -> None:
    with open_bundle(bundle) as opened:
        digest = opened.of_kind(EntryKind.MAPPING)[0].name.partition(".")[0]
    with kcache.Client(source.address, cache_dir=tmp_path / "cache", strict=True) as client:
        client.export_bundle(tmp_path / "b.kcb", programs=[digest])
    assert digests(tmp_path / "b.kcb")["mapping"] == {f"{digest}.default"}


def test_a_selection_of_nothing_is_an_error_and_leaves_no_file(
    bundle: Path, source: Running, tmp_path: Path
) -> None:
    target = tmp_path / "out" / "b.kcb"
    target.parent.mkdir()
    with kcache.Client(source.address, cache_dir=tmp_path / "cache", strict=True) as client:
        for choice in ({"keys": [77]}, {"job": "nobody"}, {"everything": True, "targets": ["sm_90"]}):
            with pytest.raises(NotFound):
                client.export_bundle(target, **choice)  # pyright: ignore[reportArgumentType]
        with pytest.raises(ArgumentError, match="used no kernel yet"):
            client.export_bundle(target)
        with pytest.raises(ArgumentError, match="filter"):
            client.export_bundle(target, filter="nonsense")
    assert list(target.parent.iterdir()) == []


def test_bundles_that_may_not_be_imported_change_nothing(
    bundle: Path, importing: tuple[Running, kcache.Client], tmp_path: Path
) -> None:
    server, client = importing
    client.store(program(2))
    before, trust = rows(tmp_path), signer_of(bundle)
    data = bundle.read_bytes()
    with pytest.raises(PermissionDenied, match="not trusted"):
        client.upload_bundle(bundle)
    with pytest.raises(ArgumentError, match="no kernel for sm_90"):
        client.upload_bundle(bundle, trust=trust, targets=["sm_90"])
    bad = tmp_path / "bad.kcb"
    bad.write_bytes(data[:-1])
    with pytest.raises(IntegrityError):
        client.upload_bundle(bad, trust=trust)
    for offset in range(40, len(data) - 400, len(data) // 12):
        bad.write_bytes(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])
        with pytest.raises(IntegrityError):
            client.upload_bundle(bad, trust=trust)
    with (
        kcache.Client(server.address, cache_dir=tmp_path / "tcp", strict=True) as remote,
        pytest.raises(PermissionDenied, match="Unix socket only"),
    ):
        remote.upload_bundle(bundle, trust=trust)
    assert rows(tmp_path) == before
    assert list((tmp_path / "state" / "spool").iterdir()) == []


def test_a_bundle_that_is_truncated_while_it_is_uploaded_changes_nothing_and_says_so(
    importing: tuple[Running, kcache.Client], tmp_path: Path
) -> None:
    _, client = importing
    path, signer = tmp_path / "values.kcb", Signer.generate()
    with path.open("wb") as file:
        writer = BundleWriter(file)
        for number in range(4):
            writer.add(BlobEntry("default", bytes([number]) * 32, random.Random(number).randbytes(1 << 20)))
        writer.finish(BundleMetadata(), signer)
    content = path.read_bytes()

    def cut(sent: int) -> None:
        if sent >= 1 << 20:
            os.truncate(path, 1 << 20)

    with pytest.raises(IntegrityError, match="the bundle is truncated: it ends at byte 1048576"):
        client.upload_bundle(path, trust=signer_of(path), on_progress=cut)
    path.write_bytes(content)
    assert len(client.upload_bundle(path, trust=signer_of(path)).new) == 4


@pytest.mark.parametrize("name", [".", "/", "", "a\0b"])
def test_an_export_to_what_is_no_name_of_a_file_is_an_argument_error(
    source: Running, name: str, tmp_path: Path
) -> None:
    with (
        kcache.Client(source.address, cache_dir=tmp_path / "cache", strict=True) as client,
        pytest.raises(ArgumentError, match="not the name of a file"),
    ):
        client.export_bundle(name, everything=True)


def test_an_untrusted_manifest_is_rejected_and_the_rest_is_imported(
    bundle: Path, importing: tuple[Running, kcache.Client], tmp_path: Path
) -> None:
    """The bundle's own signature never stands in for that of a manifest."""
    _, client = importing
    carrier = Signer.generate()
    path = tmp_path / "carried.kcb"
    with open_bundle(bundle) as opened, path.open("wb") as file:
        writer = BundleWriter(file)
        for entry in opened.entries:
            writer.write(entry.kind, entry.name, opened.chunks(entry), entry.attributes)
        writer.finish(replace(opened.metadata, signer_public_keys=(opened.public_key,)), carrier)
    report = client.upload_bundle(path, trust=signer_of(path))
    assert {item.kind for item in report.rejected} == {"mapping", "kernel"}
    assert all("not trusted" in item.reason for item in report.rejected)
    assert client.upload_bundle(path, trust=[signer_of(path), signer_of(bundle)]).rejected == ()


def test_servers_preload_bundles_and_start_whatever_lies_there(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bundles"
    folder.mkdir()
    (folder / "a.kcb").write_bytes(bundle.read_bytes())
    (folder / "bad.kcb").write_bytes(bundle.read_bytes()[:-9])
    signers = tmp_path / "signers"
    signers.write_text(f"{signer_of(bundle)}  # the trainer\n")
    config = replace(
        config_in(tmp_path), preload=(folder, tmp_path / "missing.kcb"), trust_signer=(str(signers),)
    )
    with (
        running(config) as server,
        kcache.Client(server.address, cache_dir=tmp_path / "cache", strict=True) as client,
    ):
        assert client.compile(program(4)).origin == "preloaded"


@pytest.mark.long
def test_digests_survive_from_sqlite_through_postgres_to_an_object_store(
    bundle: Path, url: str, s3_server: S3Server, tmp_path: Path
) -> None:
    """Each store signs anew; programs, specs, kernels and bytes keep their digests."""
    objects = f"s3://{s3_server.bucket()}/bundles"
    places = ({"db": url}, {"objects": objects, "objects_inline_bytes": 0})
    path = bundle
    for number, place in enumerate(places):
        home = tmp_path / str(number)
        home.mkdir()
        config = replace(config_in(home, **place), socket=home / "run" / "s")
        with (
            running(config),
            kcache.Client(f"unix:{home}/run/s", cache_dir=home / "cache", strict=True) as client,
        ):
            assert client.upload_bundle(path, trust=signer_of(path)).rejected == ()
            client.export_bundle(home / "next.kcb", everything=True)
        assert signer_of(home / "next.kcb") != signer_of(path)
        path = home / "next.kcb"
        assert digests(path) == digests(bundle)
        with open_bundle(path) as opened:
            assert verify_bundle(opened, trusted=[opened.signer]).ok


def test_imports_that_race_compiles_of_the_same_programs(
    source: Running, importing: tuple[Running, kcache.Client], tmp_path: Path
) -> None:
    """The first writer of each kernel wins; whoever comes second has the same digests, and no row is half."""
    path, sizes = tmp_path / "raced.kcb", range(40, 46)
    with kcache.Client(source.address, cache_dir=tmp_path / "s", strict=True, namespace="raced") as maker:
        maker.compile_many([program(size) for size in sizes])
        maker.export_bundle(path)
    server, client = importing
    start, contenders = threading.Barrier(6), ExitStack()

    def imports(_: int) -> list[str]:
        start.wait(60)
        report = client.upload_bundle(path, trust=signer_of(path))
        return [item.reason for item in report.rejected]

    def compiles(number: int) -> list[tuple[str, str]]:
        folder = tmp_path / f"compiler-{number}"
        own = contenders.enter_context(kcache.Client(server.address, cache_dir=folder, strict=True))
        start.wait(60)
        order = sorted(sizes, reverse=bool(number % 2))
        kernels = [own.compile(program(size)) for size in order]
        return [(kernel.manifest.kernel_digest.hex(), sha(kernel.artifact("so"))) for kernel in kernels]

    with contenders, ThreadPoolExecutor(6) as pool:
        importers = [pool.submit(imports, number) for number in range(3)]
        compilers = [pool.submit(compiles, number) for number in range(3)]
        assert [each.result(240) for each in importers] == [[]] * 3
        seen = [dict(each.result(240)) for each in compilers]
    assert seen[0] == seen[1] == seen[2]
    assert {*seen[0]} == digests(path)["kernel"]
    with closing(sqlite3.connect(tmp_path / "kcache.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM kernels").fetchone() == (len(sizes),)
        assert connection.execute("SELECT count(*) FROM conflicts").fetchone() == (0,)
    client.export_bundle(tmp_path / "after.kcb", everything=True)
    assert digests(tmp_path / "after.kcb") == digests(path)
    with open_bundle(tmp_path / "after.kcb") as opened:
        assert verify_bundle(opened, trusted=[opened.signer]).ok
    again = client.upload_bundle(path, trust=signer_of(path))
    assert (again.new, again.rejected) == ((), ())


def test_artifacts_above_1_mib_are_streamed_both_ways(
    importing: tuple[Running, kcache.Client], tmp_path: Path
) -> None:
    _, client = importing
    path, heard = tmp_path / "large.kcb", list[int]()
    with running(config_in(tmp_path / "source", worker=large_jobs.settings())) as source:
        with kcache.Client(source.address, cache_dir=tmp_path / "s", strict=True) as maker:
            content = maker.compile(program(4)).artifact("so")
            maker.export_bundle(path, everything=True)
        stub = bundles_pb2_grpc.BundlesStub(source.channel)
        selection = bundles_pb2.BundleSelection(all=True)
        replies = list(stub.ExportBundle(bundles_pb2.ExportBundleRequest(selection=selection)))
    assert len(content) > large_jobs.MORE
    assert max(reply.ByteSize() for reply in replies) < 4 << 20
    assert len(replies) >= 3
    uploaded = client.upload_bundle(path, trust=signer_of(path), on_progress=heard.append)
    assert uploaded.rejected == ()
    assert heard == sorted(heard)
    assert len(heard) >= 3
    assert heard[-1] == path.stat().st_size
    kernel = client.compile(program(4))
    assert (kernel.origin, kernel.artifact("so")) == ("preloaded", content)


def test_the_asynchronous_client_exports_uploads_and_imports(
    bundle: Path, importing: tuple[Running, kcache.Client], tmp_path: Path
) -> None:
    server, _ = importing
    trust, address = signer_of(bundle), f"unix:{server.config.socket}"

    async def work() -> list[str]:
        async with aio.Client(address, cache_dir=tmp_path / "a", strict=True) as client:
            with pytest.raises(PermissionDenied, match="not trusted"):
                await client.upload_bundle(bundle)
            uploaded = await client.upload_bundle(bundle, trust=trust)
            assert (len(uploaded.new) >= 4, uploaded.rejected) == (True, ())
            origins = [(await client.compile(program(size))).origin for size in SIZES]
            await client.export_bundle(tmp_path / "next.kcb")
            with pytest.raises(NotFound):
                await client.export_bundle(tmp_path / "none.kcb", keys=[77])
        async with aio.Client(address, cache_dir=tmp_path / "b", strict=True) as client:
            await client.import_bundle(tmp_path / "next.kcb", trust=signer_of(tmp_path / "next.kcb"))
            return [*origins, *[(await client.compile(program(size))).origin for size in SIZES]]

    assert asyncio.run(work()) == ["preloaded", "preloaded", "disk", "disk"]
    assert digests(tmp_path / "next.kcb") == digests(bundle)
    assert not (tmp_path / "none.kcb").exists()
