"""The container: what is written is read, the same entries give the same bytes, memory stays flat."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kcache_grpc.bundle import (
    BundleMetadata,
    BundleWriter,
    EntryKind,
    ScheduleEntry,
    SpecEntry,
    open_bundle,
    read_stream,
)
from kcache_grpc.bundle.format import FOOTER, HEADER, LENGTH
from kcache_grpc.errors import ArgumentError, Conflict, IntegrityError
from kcache_grpc.model.signing import Signer, server_id
from tests.bundle.making import SIGNER, artifact, contents, read_all, schedule, some_entries, spec, written

pytestmark = pytest.mark.issue(number=20, point=4)

names = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,20}", fullmatch=True)
attributes = st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(max_size=20), max_size=4)
drawn_entries = st.lists(
    st.tuples(st.sampled_from(EntryKind), names, st.binary(max_size=5000), attributes),
    max_size=8,
    unique_by=lambda entry: entry[:2],
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    entries = some_entries()
    data = written(entries)
    path = tmp_path / "a.kcb"
    path.write_bytes(data)
    with open_bundle(path) as bundle:
        assert contents(bundle) == {f"{each.kind.label} {each.name}": each.content() for each in entries}
        assert [dict(entry.attributes) for entry in bundle.entries] == [
            dict(each.attributes) for each in entries
        ]
        assert bundle.signer == server_id(SIGNER.public_key)
        stored = bundle.find(EntryKind.SPEC, entries[0].name)
        assert stored is not None
        assert SpecEntry.from_bytes(bundle.read(stored)) == entries[0]
        [timings] = bundle.of_kind(EntryKind.SCHEDULE)
        assert set(ScheduleEntry.from_bytes(bundle.read(timings)).timings) == set(schedule().timings)
    assert read_all(data) == {f"{each.kind.label} {each.name}": each.content() for each in entries}


class ShortReads(io.BytesIO):
    """A stream that gives at most ``step`` bytes at a time."""

    def __init__(self, data: bytes, step: int) -> None:
        super().__init__(data)
        self._step = step

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self._step if size is None or size < 0 else min(size, self._step))


@given(drawn_entries, st.integers(1, 4000))
@settings(max_examples=25, deadline=None)
def test_round_trip(drawn: list[tuple[EntryKind, str, bytes, dict[str, str]]], step: int) -> None:
    stream = io.BytesIO()
    writer = BundleWriter(stream)
    for kind, name, content, described in drawn:
        writer.write(kind, name, [content[at : at + step] for at in range(0, len(content), step)], described)
    result = writer.finish(BundleMetadata(selection="drawn"), SIGNER)
    data = stream.getvalue()
    assert result.size == len(data)
    with read_stream(ShortReads(data, step)) as bundle:
        assert [(e.kind, e.name, bundle.read(e), dict(e.attributes)) for e in bundle.entries] == drawn
        assert bundle.digest == result.digest
        assert bundle.content_digest == result.content_digest
        assert bundle.metadata == result.metadata


def test_equal_entries_give_equal_bytes_but_for_who_made_them_and_when() -> None:
    entries = [*some_entries(), artifact(os.urandom(3 << 20) + bytes(3 << 20))]
    moment = datetime(2026, 11, 1, 12, 30, 0, 123456, tzinfo=timezone.utc)
    mine = written(entries, SIGNER, BundleMetadata(created=moment))
    other = written(entries, Signer.generate(), BundleMetadata(selection="another"))
    with read_stream(io.BytesIO(mine)) as a, read_stream(io.BytesIO(other)) as b:
        assert a.entries == b.entries
        assert a.content_digest == b.content_digest
        assert a.digest != b.digest
        assert a.metadata.created == moment
        end = a.entries[-1].end
    assert mine[:end] == other[:end]
    assert mine == written(entries, SIGNER, BundleMetadata(created=moment))


def test_the_blocks_are_zstd_frames_at_the_offsets_of_the_index() -> None:
    """As docs/guide/bundles.md says: what this reads, any other language can read."""
    content = os.urandom(1 << 20) + b"rest"
    data = written([artifact(content)])
    with read_stream(io.BytesIO(data)) as bundle:
        [entry] = bundle.entries
    assert data.startswith(HEADER)
    assert entry.offset == len(HEADER) == 16
    at = entry.offset
    (size,) = LENGTH.unpack_from(data, at)
    at += LENGTH.size + size
    blocks = []
    while (size := LENGTH.unpack_from(data, at)[0]) != 0:
        blocks.append(zstandard.ZstdDecompressor().decompress(data[at + 4 : at + 4 + size]))
        at += LENGTH.size + size
    assert [len(block) for block in blocks] == [1 << 20, 4]
    assert b"".join(blocks) == content
    assert at + LENGTH.size == entry.end
    assert data[entry.end : entry.end + LENGTH.size] == bytes(4)
    index_offset, index_size, key, _, magic = FOOTER.unpack(data[-FOOTER.size :])
    assert index_offset == entry.end + LENGTH.size
    assert index_offset + index_size + FOOTER.size == len(data)
    assert (key, magic) == (SIGNER.public_key, b"KCB-END\n")


def test_the_same_entry_twice_is_one_and_another_content_is_a_conflict() -> None:
    writer = BundleWriter(io.BytesIO())
    assert writer.add(spec()) is writer.add(spec())
    with pytest.raises(Conflict):
        writer.add(replace(spec(), canonicalizer=4))
    with pytest.raises(ArgumentError, match="already"):
        writer.write(EntryKind.SPEC, spec().name, [b""])


@pytest.mark.parametrize(
    "name", ["", "..", "a..b", "/etc/passwd", "a/b", "a\\b", ".hidden", "A", "a" * 201, "é"]
)
def test_names_that_could_be_paths_are_not_written(name: str) -> None:
    stream = io.BytesIO()
    writer = BundleWriter(stream)
    with pytest.raises(ArgumentError, match="name is 1 to 200"):
        writer.write(EntryKind.BLOB, name, [b"x"])
    assert stream.getvalue() == HEADER


def test_a_content_with_another_digest_ends_the_bundle() -> None:
    stream = io.BytesIO()
    writer = BundleWriter(stream)
    with pytest.raises(IntegrityError, match="does not match its digest"):
        writer.write(EntryKind.ARTIFACT, "a", [b"x"], sha256=bytes(32))
    with pytest.raises(ArgumentError, match="begin a new one"):
        writer.finish(BundleMetadata(), SIGNER)
    with pytest.raises(IntegrityError, match="truncated"):
        read_all(stream.getvalue())


def test_a_stream_that_takes_parts_gets_everything() -> None:
    class Narrow(io.RawIOBase):
        def __init__(self) -> None:
            self.content = bytearray()

        def write(self, data: memoryview) -> int:  # type: ignore[override]
            self.content += data[:7]
            return min(7, len(data))

    narrow = Narrow()
    writer = BundleWriter(narrow)
    for entry in some_entries():
        writer.add(entry)
    writer.finish(BundleMetadata(), SIGNER)
    assert bytes(narrow.content) == written(some_entries())


def test_many_threads_read_one_bundle() -> None:
    entries = [artifact(os.urandom(50_000)) for _ in range(8)]
    with read_stream(io.BytesIO(written(entries))) as bundle:
        wrong: list[str] = []

        def read() -> None:
            wrong.extend(
                entry.name
                for entry in bundle.entries * 3
                if hashlib.sha256(bundle.read(entry)).hexdigest() != entry.name
            )

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
    with pytest.raises(ArgumentError, match="closed"):
        bundle.read(bundle.entries[0])


FLAT = """
import hashlib, os, resource, sys
from kcache_grpc.bundle import BundleMetadata, BundleWriter, EntryKind, open_bundle, read_stream
from kcache_grpc.model.signing import Signer

def chunks():
    block = os.urandom(1 << 16) + bytes(1 << 16)
    for number in range(1600):
        yield number.to_bytes(4, "little") + block

path = sys.argv[1]
BundleWriter  # imported before the measurement
warm = open(os.devnull, "wb")
BundleWriter(warm).write(EntryKind.BLOB, "a", [bytes(1 << 20)])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with open(path, "wb") as file:
    writer = BundleWriter(file)
    entry = writer.write(EntryKind.BLOB, "large", chunks())
    writer.finish(BundleMetadata(), Signer.generate())
for opened in (open_bundle(path), read_stream(open(path, "rb", buffering=0), directory=None)):
    with opened as bundle:
        digest, size = hashlib.sha256(), 0
        for chunk in bundle.chunks(bundle.entries[0]):
            digest.update(chunk)
            size += len(chunk)
        assert digest.digest() == entry.sha256 and size == entry.size
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(entry.size, after - before)
"""


def test_an_entry_of_200_mb_is_written_and_read_with_flat_memory(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FLAT, str(tmp_path / "large.kcb")], check=True, capture_output=True, text=True
    )
    size, growth = map(int, ran.stdout.split())
    assert size > 200_000_000
    assert growth < 24 << 10, f"{growth} KiB more"


def test_a_lazy_import_is_all_that_the_format_needs_of_zstandard() -> None:
    code = "import sys, kcache_grpc.bundle, kcache_grpc.client.client; print('zstandard' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "False"
