"""Targets of AMD's GPUs, and what their code objects say of themselves.

A code object is an ELF shared object: a descriptor of 64 bytes for each kernel (``NAME.kd``), and a note with
metadata in MessagePack. Both as LLVM's "User Guide for AMDGPU Backend" has them, code object version 5 and 6.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from kcache_compiler.errors import CompileFailed
from kcache_compiler.package.gpu import GpuTarget, Reach

TRIPLE = "amdgcn-amd-amdhsa"
#: Bytes of shared memory (LDS) of a block, and threads of a compute unit.
_SHARED, _THREADS = 64 << 10, 2048
#: Threads of a wave: two warps of NVIDIA's.
_WAVE = 64
#: Target -> the machine in the lowest byte of the flags in the ELF header.
MACHINES = {"gfx90a": 0x3F, "gfx942": 0x4C}
#: ``shared_opt_in`` is a little more: kernels leave what NVIDIA's system keeps of it.
AMD_TARGETS: dict[str, GpuTarget] = {
    name: GpuTarget(name, (0, 0), (0, 0), Reach.EXACT, _SHARED, _SHARED, _THREADS, TRIPLE)
    for name in MACHINES
}
#: Of ELF: the machine of AMD's GPUs, types of sections, of the note.
_EM_AMDGPU, _SHT_NOTE, _SHT_DYNSYM, _NT_METADATA = 224, 7, 11, 32
_DESCRIPTOR = struct.Struct("<III")


@dataclass(frozen=True)
class AmdKernel:
    """A kernel by its metadata: vector registers of a thread, those for accumulation among them, scalar ones
    of a wave, how many of them are spilled, bytes of shared memory of a block, of private memory of a thread,
    of parameters.
    """

    name: str
    vector_registers: int
    accumulation_registers: int
    scalar_registers: int
    vector_spills: int
    scalar_spills: int
    shared_bytes: int
    private_bytes: int
    parameter_bytes: int
    block_threads: int
    wave: int
    #: Of each parameter that a launch passes: its offset, its bytes, and whether it is a pointer.
    parameters: tuple[tuple[int, int, bool], ...]


def kernels_of(content: bytes, target: str) -> dict[str, AmdKernel]:
    """The kernels of a code object by name.

    Raises ``CompileFailed`` where it is none for ``target``, asks for symbols of others, or its descriptors
    contradict its metadata.
    """
    kind, machine = struct.unpack_from("<HH", content, 16)
    (flags,) = struct.unpack_from("<I", content, 48)
    if content[:4] != b"\x7fELF" or (kind, machine, flags & 0xFF) != (3, _EM_AMDGPU, MACHINES[target]):
        raise CompileFailed("hsaco", f"the linker made no code object for {target}")
    sections = list(_sections(content))
    metadata = _metadata(content, sections)
    if metadata["amdhsa.target"] != f"{TRIPLE}--{target}":
        raise CompileFailed("hsaco", f"its metadata are for {metadata['amdhsa.target']}, not for {target}")
    found = {kernel.name: kernel for kernel in map(_kernel, metadata["amdhsa.kernels"])}
    symbols = list(_symbols(content, sections))
    missing = [name for name, section, _ in symbols if name and not section]
    if missing:
        raise CompileFailed("hsaco", f"the code object asks for symbols of others: {', '.join(missing)}")
    places = {name: place for name, _, place in symbols}
    for name, kernel in found.items():
        at = places.get(f"{name}.kd")
        if at is None or at % 64:
            raise CompileFailed("hsaco", f"kernel {name} has no descriptor at a multiple of 64 bytes")
        said = _DESCRIPTOR.unpack_from(content, _offset(sections, at))
        if said != (kernel.shared_bytes, kernel.private_bytes, kernel.parameter_bytes):
            raise CompileFailed("hsaco", f"the descriptor of {name} contradicts its metadata: {said}")
    return found


@dataclass(frozen=True)
class _Section:
    kind: int
    address: int
    offset: int
    size: int
    link: int


def _sections(content: bytes) -> Iterator[_Section]:
    (start,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    for number in range(count):
        fields = struct.unpack_from("<IIQQQQI", content, start + number * size)
        yield _Section(fields[1], fields[3], fields[4], fields[5], fields[6])


def _offset(sections: list[_Section], address: int) -> int:
    """Where in the file an address lies."""
    for one in sections:
        if one.address and one.address <= address < one.address + one.size:
            return one.offset + address - one.address
    raise CompileFailed("hsaco", f"no section has the address {address}")


def _symbols(content: bytes, sections: list[_Section]) -> Iterator[tuple[str, int, int]]:
    """Name, section, which is 0 where there is none, and address."""
    for table in (one for one in sections if one.kind == _SHT_DYNSYM):
        names = sections[table.link].offset
        for at in range(table.offset, table.offset + table.size, 24):
            name, section, value = struct.unpack_from("<I2xHQ", content, at)
            end = content.index(b"\0", names + name)
            yield content[names + name : end].decode(), section, value


def _metadata(content: bytes, sections: list[_Section]) -> dict[str, Any]:
    for note in (one for one in sections if one.kind == _SHT_NOTE):
        named, size, kind = struct.unpack_from("<III", content, note.offset)
        start = note.offset + 12 + -(-named // 4) * 4
        if kind == _NT_METADATA and content[note.offset + 12 :][:6] == b"AMDGPU":
            read, _ = _unpacked(content[start : start + size], 0)
            return read
    raise CompileFailed("hsaco", "the code object has no metadata")


def _kernel(one: dict[str, Any]) -> AmdKernel:
    if one[".uses_dynamic_stack"]:
        raise CompileFailed("hsaco", f"nobody knows how much private memory {one['.name']} takes")
    if one[".wavefront_size"] != _WAVE:
        raise CompileFailed("hsaco", f"{one['.name']} is for waves of {one['.wavefront_size']}")
    passed = [given for given in one.get(".args", ()) if not given[".value_kind"].startswith("hidden_")]
    return AmdKernel(
        one[".name"],
        one[".vgpr_count"],
        one.get(".agpr_count", 0),
        one[".sgpr_count"],
        one[".vgpr_spill_count"],
        one[".sgpr_spill_count"],
        one[".group_segment_fixed_size"],
        one[".private_segment_fixed_size"],
        one[".kernarg_segment_size"],
        one[".max_flat_workgroup_size"],
        one[".wavefront_size"],
        tuple((given[".offset"], given[".size"], given[".value_kind"] != "by_value") for given in passed),
    )


#: First byte of MessagePack -> format of a number, or of a length and what it is the length of.
_NUMBERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_LENGTHS = {
    0xD9: (">B", "text"),
    0xDA: (">H", "text"),
    0xDB: (">I", "text"),
    0xDC: (">H", "list"),
    0xDD: (">I", "list"),
    0xDE: (">H", "map"),
    0xDF: (">I", "map"),
}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def _unpacked(data: bytes, at: int) -> tuple[Any, int]:
    """The value at a place of MessagePack, and the place after it."""
    first, at = data[at], at + 1
    if first < 0x80:
        return first, at
    if first in _CONSTANTS:
        return _CONSTANTS[first], at
    if first in _NUMBERS:
        (number,) = struct.unpack_from(_NUMBERS[first], data, at)
        return number, at + struct.calcsize(_NUMBERS[first])
    if first in _LENGTHS:
        form, kind = _LENGTHS[first]
        (length,) = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
    elif first < 0xC0:
        length, kind = (
            (first & 0x1F, "text") if first >= 0xA0 else (first & 0xF, "list" if first >= 0x90 else "map")
        )
    elif first >= 0xE0:
        return first - 0x100, at
    else:
        raise CompileFailed("hsaco", f"metadata has MessagePack of the kind {first:#x}")
    if kind == "text":
        return data[at : at + length].decode(), at + length
    values: list[Any] = []
    for _ in range(length * (2 if kind == "map" else 1)):
        value, at = _unpacked(data, at)
        values.append(value)
    if kind == "list":
        return values, at
    return dict(zip(cast("list[str]", values[::2]), values[1::2], strict=True)), at
