"""The table of eager kernels on disk."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

pytest.importorskip("torch")

from kcache_grpc.integrations.torch.eager_kernel_table import EagerKernelTable, TableDirectory

pytestmark = pytest.mark.issue(number=20, point=5)

TOOLCHAIN = "0123456789abcdef"


def key(number: int) -> str:
    return f"{number:032x}"


def table(path: Path, toolchain: str = TOOLCHAIN) -> EagerKernelTable:
    opened = EagerKernelTable(path, toolchain)
    opened.refresh()
    return opened


def test_a_missing_file_is_an_empty_table(tmp_path: Path) -> None:
    assert len(table(tmp_path / "none")) == 0


def test_entries_are_found_by_key_and_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    writer = table(path)
    assert writer.add(key(1), {"program": "a"})
    assert not writer.add(key(1), {"program": "a"})
    assert writer.add(key(1), {"program": "b"})
    assert not table(path).add(key(1), {"program": "b"})
    assert table(path).find(key(1)) == [{"program": "a"}, {"program": "b"}]
    assert table(path).find(key(2)) == []


def test_each_line_is_a_json_object_with_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    table(path).add(key(7), {"text": 'quotes " and \n lines'})
    line = path.read_bytes().rstrip(b"\n")
    value = json.loads(line)
    assert value["entry"] == {"text": 'quotes " and \n lines'}
    assert (value["toolchain"], value["key"]) == (TOOLCHAIN, key(7))
    assert int(value["check"], 16) == zlib.crc32(line[len('{"check":"') + 8 :])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_entries_of_another_toolchain_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    table(path, "f" * 16).add(key(1), {"program": "old"})
    opened = table(path)
    assert (opened.skipped, opened.corrupt, opened.find(key(1))) == (1, 0, [])
    assert opened.add(key(1), {"program": "new"})
    assert table(path).find(key(1)) == [{"program": "new"}]


def test_every_changed_byte_of_a_line_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    table(path).add(key(1), {"program": "a"})
    good = path.read_bytes()
    for place in range(len(good) - 1):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :] + good)
        opened = table(path)
        assert opened.corrupt >= 1, place
        assert opened.find(key(1)) == [{"program": "a"}]


def test_a_truncated_line_hides_nothing_that_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    table(path).add(key(1), {"program": "a"})
    good = path.read_bytes()
    for end in range(1, len(good)):
        path.write_bytes(good + good[:end])
        table(path).add(key(2), {"program": "b"})
        opened = table(path)
        assert opened.find(key(1))[0] == {"program": "a"}
        assert opened.find(key(2)) == [{"program": "b"}]
        assert opened.corrupt == (end != len(good) - 1)


_WRITER = """
import sys
from pathlib import Path
from kcache_grpc.integrations.torch.eager_kernel_table import EagerKernelTable
table = EagerKernelTable(Path(sys.argv[1]), "0123456789abcdef")
for number in range(100):
    table.add(f"{int(sys.argv[2]) * 1000 + number:032x}", {"program": sys.argv[2]})
    table.add(f"f{number:031x}", {"program": "shared"})
"""


def test_8_processes_writing_one_table_lose_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(path), str(number + 1)]) for number in range(8)
    ]
    assert [writer.wait() for writer in writers] == [0] * 8
    opened = table(path)
    assert (opened.corrupt, opened.skipped) == (0, 0)
    assert len(opened) == 8 * 100 + 100
    for number in range(8):
        for entry in range(100):
            assert opened.find(key((number + 1) * 1000 + entry)) == [{"program": str(number + 1)}]


def test_20_000_entries_load_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    first = table(path)
    first.add(key(0), {"program": "0" * 64, "metadata": ["x" * 300]})
    line = path.read_bytes()
    rest = line[len('{"check":"') + 8 : -1]
    lines = [line]
    for number in range(1, 20_000):
        other = rest.replace(key(0).encode(), key(number).encode(), 1)
        lines.append(b'{"check":"%08x%b\n' % (zlib.crc32(other), other))
    path.write_bytes(b"".join(lines))
    opened = table(path)
    assert (len(opened), opened.corrupt) == (20_000, 0)
    assert opened.find(key(19_999))[0]["program"] == "0" * 64


def test_programs_are_named_by_their_bytes(tmp_path: Path) -> None:
    folder = TableDirectory(tmp_path / "cache")
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    name = folder.save_program(b"text")
    assert folder.program(name) == b"text"
    (folder.path / "programs" / f"{name}.mlir").write_bytes(b"changed")
    assert folder.program(name) is None
    assert folder.program("0" * 64) is None


def test_a_folder_that_others_may_write_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o755)
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(PermissionError, match="open to other users"):
        TableDirectory(tmp_path / "cache")
