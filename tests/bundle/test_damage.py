"""Bundles that are damaged, truncated or made to harm: each is rejected, before anything of it counts."""

from __future__ import annotations

import errno
import hashlib
import io
import itertools
import os
import random
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from kcache_grpc._proto.kcache.v1 import bundle_pb2 as pb
from kcache_grpc.bundle import (
    BlobEntry,
    BundleMetadata,
    BundleWriter,
    EntryKind,
    IndexEntry,
    Limits,
    open_bundle,
    read_stream,
)
from kcache_grpc.bundle.blocks import decompress
from kcache_grpc.bundle.format import BUNDLE_DOMAIN, FOOTER, HEADER, LENGTH, Footer, index_to_bytes
from kcache_grpc.bundle.verify import verify_bundle
from kcache_grpc.errors import (
    ArgumentError,
    IntegrityError,
    KcacheError,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from kcache_grpc.model.signing import Signer, server_id
from tests.bundle.making import SIGNER, artifact, contents, read_all, schedule, some_entries, written

pytestmark = pytest.mark.issue(number=20, point=4)

SMALL = written(some_entries())


def finding(data: bytes) -> str:
    """What is named when a bundle is read from a stream; the same when it is read from a file."""
    with pytest.raises(KcacheError) as raised:
        read_all(data)
    return raised.value.metadata["finding"]


def read_file(path: Path) -> dict[str, bytes]:
    with open_bundle(path) as bundle:
        return contents(bundle)


def test_each_of_1000_random_single_byte_corruptions_is_detected(tmp_path: Path) -> None:
    rng = random.Random(20)
    path = tmp_path / "damaged.kcb"
    for _ in range(1000):
        at, value = rng.randrange(len(SMALL)), rng.randrange(1, 256)
        damaged = bytearray(SMALL)
        damaged[at] ^= value
        path.write_bytes(damaged)
        with pytest.raises((IntegrityError, ResourceExhausted)):
            read_file(path)
        with pytest.raises((IntegrityError, ResourceExhausted)):
            read_all(bytes(damaged))


def test_a_bundle_cut_anywhere_is_rejected() -> None:
    for end in range(len(SMALL)):
        with pytest.raises(IntegrityError):
            read_all(SMALL[:end])


def test_a_truncated_stream_says_where_it_ends() -> None:
    with read_stream(io.BytesIO(SMALL)) as bundle:
        entry = bundle.entries[1]
    with pytest.raises(IntegrityError, match=f"ends at byte {entry.end - 5}, inside artifact") as raised:
        read_all(SMALL[: entry.end - 5])
    assert raised.value.metadata["finding"] == "truncated"


def test_bytes_behind_a_bundle_are_rejected() -> None:
    assert finding(SMALL + b"x") == "truncated"
    assert finding(SMALL + SMALL) in ("truncated", "index")


def test_a_later_version_says_so() -> None:
    later = bytearray(SMALL)
    later[8] = 2
    with pytest.raises(IntegrityError, match="install a newer one") as raised:
        read_all(bytes(later))
    assert raised.value.metadata["finding"] == "version"


# Bundles that a signer made on purpose: index and signature hold.


class Forged:
    """The parts of a bundle, each free to be changed, put together and signed."""

    def __init__(self, records: Sequence[bytes], signer: Signer = SIGNER) -> None:
        self.records = list(records)
        self.signer = signer
        self.entries: list[IndexEntry] = []
        at = len(HEADER)
        for number, record in enumerate(self.records):
            stored = hashlib.sha256(record).digest()
            self.entries.append(
                IndexEntry(
                    EntryKind.BLOB, f"e{number}", {}, at, len(record), stored, 0, hashlib.sha256().digest()
                )
            )
            at += len(record)
        self.position = at + LENGTH.size

    def index(self) -> bytes:
        return index_to_bytes(self.entries, BundleMetadata(creator=server_id(self.signer.public_key)))

    def file(self, index: bytes | None = None) -> bytes:
        index = self.index() if index is None else index
        signed = self.signer.sign(BUNDLE_DOMAIN, hashlib.sha256(index).digest())
        footer = Footer(self.position, len(index), self.signer.public_key, signed.signature)
        return HEADER + b"".join(self.records) + bytes(4) + index + footer.to_bytes()


def record(name: str, frames: Sequence[bytes], kind: int = EntryKind.BLOB.value) -> bytes:
    """A header and blocks, whatever they are."""
    header = pb.BundleEntryHeader(kind=pb.BundleEntryKind.Name(kind), name=name).SerializeToString()  # pyright: ignore[reportArgumentType]
    blocks = b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)
    return LENGTH.pack(len(header)) + header + blocks + LENGTH.pack(0)


def frame(content: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(content)


def with_content(forged: Forged, number: int, content: bytes) -> Forged:
    entry = forged.entries[number]
    forged.entries[number] = replace(entry, size=len(content), sha256=hashlib.sha256(content).digest())
    return forged


def test_the_forger_can_make_a_good_bundle() -> None:
    forged = with_content(Forged([record("e0", [frame(b"good")])]), 0, b"good")
    assert read_all(forged.file()) == {"blob e0": b"good"}


def test_a_decompression_bomb_is_not_inflated() -> None:
    """1 MiB of zeros in 50 bytes, many times: 20,000 times as much."""
    bomb = frame(bytes(1 << 20))
    content = bytes(64 << 20)
    forged = with_content(Forged([record("e0", [bomb] * 64)]), 0, content)
    assert len(forged.file()) < 10_000
    assert finding(forged.file()) == "bomb"


def test_the_writer_keeps_honest_zeros_below_the_ratio_of_a_bomb() -> None:
    content = bytes(3 << 20)
    data = written([artifact(content)])
    assert len(data) < len(content) / 300
    assert list(read_all(data).values()) == [content]


def test_a_frame_that_states_too_much_is_not_inflated() -> None:
    with pytest.raises(IntegrityError, match="states"):
        decompress(frame(bytes((1 << 20) + 1)))
    unknown = zstandard.ZstdCompressor(write_content_size=False).compress(b"content of no stated size")
    with pytest.raises(IntegrityError, match="states"):
        decompress(unknown)


def test_a_frame_that_lies_about_its_size_or_has_a_tail_is_rejected() -> None:
    honest = frame(os.urandom(100))
    assert decompress(honest)
    for data in (honest + b"tail", honest + frame(b"another"), honest[:-1], b"no frame", b""):
        with pytest.raises(IntegrityError):
            decompress(data)


def test_an_entry_that_has_more_than_the_index_says_is_rejected() -> None:
    content = os.urandom(1000)
    forged = with_content(Forged([record("e0", [frame(content), frame(content)])]), 0, content)
    assert finding(forged.file()) == "bomb"
    forged = with_content(Forged([record("e0", [frame(content)])]), 0, content + b"x")
    assert finding(forged.file()) == "content"


@pytest.mark.parametrize(
    "name", ["..", "../../etc/passwd", "/etc/passwd", "a/../b", "a\\b", "", ".ssh", "A b"]
)
def test_names_that_could_be_paths_are_rejected(name: str) -> None:
    data = Forged([record(name, [frame(b"x")])]).file()
    assert finding(data) == "name"
    # Also where the index alone has it, which a reader of a file sees first.
    forged = Forged([record("e0", [frame(b"x")])])
    index = pb.BundleIndex.FromString(forged.index())
    index.entries[0].header.name = name
    assert finding(forged.file(index.SerializeToString())) == "name"


def test_a_duplicate_entry_is_rejected(tmp_path: Path) -> None:
    data = record("e0", [frame(b"x")])
    forged = Forged([data, data])
    forged.entries[1] = replace(forged.entries[1], name="e0")
    assert finding(forged.file()) == "duplicate"
    path = tmp_path / "twice.kcb"
    path.write_bytes(forged.file())
    with pytest.raises(IntegrityError, match="blob e0 twice"):
        open_bundle(path)


def test_a_header_that_differs_from_the_index_is_rejected() -> None:
    forged = with_content(Forged([record("other", [frame(b"x")])]), 0, b"x")
    assert finding(forged.file()) == "header"


def test_an_unknown_kind_says_what_to_do() -> None:
    header = b"\x08\x63\x12\x02e0"  # kind 99
    data = LENGTH.pack(len(header)) + header + LENGTH.pack(0)
    with pytest.raises(IntegrityError, match="install a newer kcache-grpc"):
        read_all(Forged([data]).file())


@pytest.mark.parametrize(
    "change",
    [
        lambda e: replace(e, offset=0),
        lambda e: replace(e, offset=1 << 62),
        lambda e: replace(e, stored_size=e.stored_size + 1),
        lambda e: replace(e, stored_size=(1 << 64) - 1),
        lambda e: replace(e, offset=e.offset - 1),
        lambda e: replace(e, stored_sha256=b"short"),
    ],
)
def test_an_index_that_points_outside_is_rejected(change: Callable[[IndexEntry], IndexEntry]) -> None:
    forged = Forged([record("e0", [frame(b"x")]), record("e1", [frame(b"y")])])
    forged.entries[1] = change(forged.entries[1])
    assert finding(forged.file()) == "index"


def test_a_gap_between_entries_or_before_the_index_is_rejected() -> None:
    forged = Forged([record("e0", []), record("e1", [])])
    del forged.entries[1]
    assert finding(forged.file()) == "index"
    forged = Forged([record("e0", []), record("e1", [])])
    del forged.entries[0]
    assert finding(forged.file()) == "index"


@pytest.mark.parametrize(("offset", "size"), [(0, 10), (1 << 63, 10), (16, 1 << 63), (20, 0)])
def test_a_footer_that_points_outside_is_rejected(offset: int, size: int) -> None:
    _, _, key, signature, magic = FOOTER.unpack(SMALL[-FOOTER.size :])
    data = SMALL[: -FOOTER.size] + FOOTER.pack(offset, size, key, signature, magic)
    assert finding(data) == "index"


def test_another_key_does_not_sign_for_the_creator() -> None:
    forged = Forged([])
    index = index_to_bytes([], BundleMetadata(creator="0" * 64))
    assert finding(forged.file(index)) == "creator"


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (Limits(max_file_bytes=100), "bundle.file_bytes"),
        (Limits(max_entries=2), "bundle.entries"),
        (Limits(max_index_bytes=100), "bundle.index_bytes"),
        (Limits(max_entry_bytes=100), "bundle.entry_bytes"),
        (Limits(max_total_bytes=500), "bundle.total_bytes"),
    ],
)
def test_limits_are_named_by_readers_and_writers(limits: Limits, limit: str, tmp_path: Path) -> None:
    path = tmp_path / "a.kcb"
    path.write_bytes(SMALL)
    with pytest.raises(ResourceExhausted) as opened:
        open_bundle(path, limits=limits)
    with pytest.raises(ResourceExhausted) as streamed:
        read_stream(io.BytesIO(SMALL), limits=limits)
    with pytest.raises(ResourceExhausted) as raised:
        write_some(limits)
    assert {error.value.metadata["limit"] for error in (opened, streamed, raised)} == {limit}


def write_some(limits: Limits) -> None:
    writer = BundleWriter(io.BytesIO(), limits=limits)
    for entry in some_entries():
        writer.add(entry)
    writer.finish(BundleMetadata(), SIGNER)


def test_an_endless_stream_ends_at_the_limit() -> None:
    class Endless:
        """A blob without an end."""

        def __init__(self) -> None:
            self._rest = HEADER + record("e0", [])[: -LENGTH.size]
            self._block = LENGTH.pack(1000) + bytes(1000)

        def read(self, size: int, /) -> bytes:
            if not self._rest:
                self._rest = self._block
            part, self._rest = self._rest[:size], self._rest[size:]
            return part

    with pytest.raises(ResourceExhausted, match="file_bytes"):
        read_stream(Endless(), limits=Limits(max_file_bytes=1 << 20))


# Paths.


def test_a_symbolic_link_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "real.kcb").write_bytes(SMALL)
    (tmp_path / "link.kcb").symlink_to(tmp_path / "real.kcb")
    with pytest.raises(ArgumentError, match="symbolic link"):
        open_bundle(tmp_path / "link.kcb")


def test_what_is_no_regular_file_is_not_opened_and_nobody_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.kcb")
    (tmp_path / "folder.kcb").mkdir()
    for name in ("fifo.kcb", "folder.kcb"):
        with pytest.raises(ArgumentError, match="not a regular file"):
            open_bundle(tmp_path / name)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.kcb"))
        with pytest.raises(ArgumentError, match="cannot be opened"):
            open_bundle(tmp_path / "s.kcb")
    with pytest.raises(NotFound):
        open_bundle(tmp_path / "missing.kcb")


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_path_that_the_system_does_not_have_is_an_argument_error(name: str) -> None:
    with pytest.raises(ArgumentError, match="cannot be opened"):
        open_bundle(name)


def test_a_device_that_fails_is_an_error_of_kcache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.kcb").write_bytes(SMALL)
    with open_bundle(tmp_path / "a.kcb") as bundle:

        def fail(*_: int) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "pread", fail)
        with pytest.raises(Unavailable, match=r"a.kcb cannot be read: Input/output error"):
            bundle.read(bundle.entries[0])


def test_a_time_that_is_out_of_range_is_a_finding() -> None:
    message = pb.BundledSchedule.FromString(schedule().content())
    message.timings[0].create_time.seconds = -(2**62)
    stream = io.BytesIO()
    writer = BundleWriter(stream)
    writer.write(EntryKind.SCHEDULE, schedule().name, (message.SerializeToString(),))
    writer.finish(BundleMetadata(), SIGNER)
    with read_stream(io.BytesIO(stream.getvalue())) as bundle:
        (fault,) = verify_bundle(bundle).findings
    assert (fault.name, fault.entry) == ("entry", f"schedule {schedule().name}")
    assert "out of range" in fault.message


def test_a_stream_that_takes_nothing_ends_the_writer() -> None:
    class Stuck:
        def write(self, data: memoryview, /) -> int:
            return min(len(data), 1) if next(calls) < 20 else 0

    calls = itertools.count()
    writer = BundleWriter(Stuck())
    with pytest.raises(Unavailable, match="takes no more bytes"):
        writer.add(artifact(b"content"))
    with pytest.raises(ArgumentError, match="begin a new one"):
        writer.finish(BundleMetadata(), SIGNER)


def test_a_bundle_that_changes_while_it_is_open_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.kcb"
    path.write_bytes(written([BlobEntry("ns", b"k", os.urandom(1000))]))
    with open_bundle(path) as bundle:
        [entry] = bundle.entries
        with path.open("r+b") as file:
            file.seek(entry.offset + 200)
            byte = file.read(1)
            file.seek(entry.offset + 200)
            file.write(struct.pack("B", byte[0] ^ 1))
        with pytest.raises(IntegrityError, match="do not match their digest"):
            bundle.read(entry)
        os.truncate(path, entry.offset + 100)
        with pytest.raises(IntegrityError, match="truncated"):
            bundle.read(entry)
