"""Packs as they are read: an index of cases, and a bundle whose blobs have the records of some cases each.

The standard library is enough: blobs are compressed by LZMA, so that zstd, the compression of bundles, stores
them as they are. Each blob is checked against its digest in the index.
"""

from __future__ import annotations

import json
import lzma
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.kit.runtime.values import digest, seeded
from kcache_grpc.errors import IntegrityError
from kcache_grpc.model.gpu.launch import GpuCall, GpuLaunchSpec, calls
from kcache_grpc.model.gpu.target import GpuTarget, Version
from kcache_grpc.model.sizes.expression import evaluate, holds

INDEX, BUNDLE = "index.json", "kernels.kcb"
#: Version of the layout of packs.
FORMAT = 2
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_LENGTH = struct.Struct("<I")


class Record:
    """A case: kernels by target, constants, calls. ``header`` is what it says, ``payload`` its bytes."""

    def __init__(self, content: bytes) -> None:
        (size,) = _LENGTH.unpack_from(content)
        self.header: dict[str, Any] = json.loads(content[4 : 4 + size])
        self._payload = content[4 + size :]

    def data(self, place: Sequence[int]) -> bytes:
        """The bytes at an offset, of a length."""
        offset, size = place
        return self._payload[offset : offset + size]

    def argument(self, value: Mapping[str, Any]) -> bytes:
        """The bytes of an argument: stored, or of its seed."""
        if "data" in value:
            return self.data(value["data"])
        return seeded(value["dtype"], value["shape"], value["seed"]).tobytes()

    def kernel(self, target: str) -> PackedKernel:
        """The kernel for a target of the pack."""
        return PackedKernel(self, target, self.header["kernels"][target])


class PackedKernel:
    """A kernel for one target; the fields are those of a manifest."""

    def __init__(self, record: Record, target: str, said: Mapping[str, Any]) -> None:
        self.target = GpuTarget(target)
        self._record, self._said = record, said
        self.launches = tuple(_launch(one) for one in said["launches"])

    def artifact(self, kind: str) -> bytes | None:
        """``ptx``, ``cubin`` or ``llvm``; None if the pack lacks it."""
        places = self._said["artifacts"].get(kind)
        return None if places is None else b"".join(map(self._record.data, places))

    def constants(self) -> list[bytes]:
        """Contents of the lifted constants."""
        return [self._record.data(place) for place in self._record.header["constants"]]

    def symbols(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """Sizes by name, for arguments of these shapes. Raises ``IntegrityError`` if checks do not hold."""
        symbols = {name: shapes[arg][axis] for name, arg, axis in self._said["symbols"]}
        for check in self._said["checks"]:
            if not holds(check, symbols):
                raise IntegrityError(f"the kernel is not for these sizes: {check} with {symbols}")
        return symbols

    def workspace(self, symbols: Mapping[str, int]) -> int:
        """Bytes of the workspace."""
        return evaluate(self._said["workspace"], {**symbols, "workers": 1})

    def calls(self, symbols: Mapping[str, int]) -> tuple[GpuCall, ...]:
        """The launches at these sizes."""
        return calls(self.launches, symbols)


class Pack:
    """A folder that ``pack`` wrote. Raises ``IntegrityError`` for one of another format."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            content = (folder / INDEX).read_bytes()
            self.index: dict[str, Any] = json.loads(content)
            if self.index["format"] != FORMAT:
                raise IntegrityError(f"{folder} has format {self.index['format']}, this kit reads {FORMAT}")
            self.cases: dict[str, dict[str, Any]] = {case["name"]: case for case in self.index["cases"]}
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise IntegrityError(f"{folder} is no pack, or {INDEX} is damaged: {error!r}") from error
        self.digest = digest(content)
        self._number, self._blob = -1, b""

    def check(self) -> None:
        """Raises ``IntegrityError`` unless all blobs are those of the index."""
        for number in range(len(self.index["blobs"])):
            self._compressed(number)

    def record(self, name: str) -> Record:
        """The record of a case. Raises ``IntegrityError`` for bytes that are not those of the index.

        Cases in the order of ``priority`` read each blob once: the last one is kept.
        """
        case = self.cases[name]
        if case["blob"] != self._number:
            self._number, self._blob = case["blob"], lzma.decompress(self._compressed(case["blob"]))
        offset, size = case["place"]
        return Record(self._blob[offset : offset + size])

    def _compressed(self, number: int) -> bytes:
        blob = self.index["blobs"][number]
        try:
            with (self.folder / BUNDLE).open("rb") as file:
                file.seek(blob["offset"])
                content = _entry_content(file.read(blob["size"]))
        except (OSError, LookupError, struct.error, IntegrityError) as error:
            raise IntegrityError(f"{self.folder / BUNDLE} is damaged: {error}") from error
        if digest(content) != blob["sha256"]:
            raise IntegrityError(f"{self.folder / BUNDLE} is damaged: blob {number} has another digest")
        return content


def chosen_target(targets: Sequence[str], capability: Version) -> str | None:
    """The target of the pack for a device: the newest that it runs."""
    fitting = [GpuTarget(name) for name in targets if GpuTarget(name).runs_on(capability)]
    return max(fitting, key=lambda target: target.capability).arch if fitting else None


def _launch(said: Mapping[str, Any]) -> GpuLaunchSpec:
    grid, block = said["grid"], said["block"]
    return GpuLaunchSpec(
        said["name"],
        tuple(said["ops"]),
        said["entry"],
        said["when"],
        (grid[0], grid[1], grid[2]),
        (block[0], block[1], block[2]),
        said["shared_bytes"],
        tuple(said["params"]),
    )


def _entry_content(entry: bytes) -> bytes:
    """The content of a bundle entry: header, frames, 0."""
    (header,) = _LENGTH.unpack_from(entry)
    at, parts = _LENGTH.size + header, list[bytes]()
    while size := _LENGTH.unpack_from(entry, at)[0]:
        at += _LENGTH.size
        parts.append(stored_frame(entry[at : at + size]))
        at += size
    return b"".join(parts)


def stored_frame(frame: bytes) -> bytes:
    """The content of a zstd frame (RFC 8878) whose blocks are not compressed. Raises ``IntegrityError``."""
    descriptor = frame[4] if frame[:4] == _ZSTD_MAGIC and len(frame) > 4 else 0xFF
    single, flag = descriptor >> 5 & 1, descriptor >> 6
    if descriptor & 0b1011:
        raise IntegrityError("a block of the bundle has a reserved bit, or needs a dictionary")
    sizes = (single, 2, 4, 8)[flag]
    at, parts, last = 5 + (1 - single) + sizes, list[bytes](), False
    while not last:
        head = int.from_bytes(frame[at : at + 3], "little")
        at, last, kind, size = at + 3, bool(head & 1), head >> 1 & 3, head >> 3
        if kind > 1 or at > len(frame):
            raise IntegrityError("a block of the bundle is compressed or truncated")
        parts.append(frame[at : at + size] if kind == 0 else frame[at : at + 1] * size)
        at += size if kind == 0 else 1
    return b"".join(parts)
