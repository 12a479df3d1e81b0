"""A server publishes no shared object that its compiler would not make, whatever a worker returns."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import kcache_compiler
from kcache_compiler.types import CompiledKernel, CompileOptions
from kcache_grpc.errors import CompileFailed
from kcache_grpc.model.target import parse_target
from kcache_grpc.service.compile.object_inspection import inspect

pytestmark = pytest.mark.issue(number=19, point=11)

TARGET = parse_target("x86-64-v3")
_PROGRAM = b"""func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  %r = stablehlo.add %a, %a : tensor<8xf32>
  return %r : tensor<8xf32> }"""
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_DT_NULL, _DT_INIT = 0, 12


@pytest.fixture(scope="module")
def kernel() -> CompiledKernel:
    canonical = kcache_compiler.canonicalize(_PROGRAM, "stablehlo")
    return kcache_compiler.compile_spec(
        canonical.spec_text, canonical.arg_spec, str(TARGET), CompileOptions(), lambda _: None
    )


def changed(kernel: CompiledKernel, content: bytes) -> CompiledKernel:
    return CompiledKernel({**kernel.artifacts, "so": content}, kernel.interface, kernel.stage_seconds)


def headers(content: bytes | bytearray, kind: int) -> list[int]:
    """Where the program headers of ``kind`` begin."""
    (start,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    every = [start + index * size for index in range(count)]
    return [at for at in every if struct.unpack_from("<I", content, at)[0] == kind]


def test_what_the_compiler_makes_passes(kernel: CompiledKernel) -> None:
    assert inspect(kernel, TARGET) is kernel


@pytest.mark.parametrize(
    ("kind", "problem"), [(_PT_GNU_STACK, "executable stack"), (_PT_LOAD, "writable segment with code")]
)
def test_segments_are_not_writable_and_executable(kernel: CompiledKernel, kind: int, problem: str) -> None:
    content = bytearray(kernel.artifacts["so"])
    for at in headers(content, kind):
        struct.pack_into("<I", content, at + 4, 7)
    with pytest.raises(CompileFailed, match=problem):
        inspect(changed(kernel, bytes(content)), TARGET)


def test_a_loader_runs_nothing(kernel: CompiledKernel) -> None:
    content = bytearray(kernel.artifacts["so"])
    (at,) = headers(content, _PT_DYNAMIC)
    (offset,) = struct.unpack_from("<Q", content, at + 8)
    while struct.unpack_from("<Q", content, offset)[0] != _DT_NULL:
        offset += 16
    struct.pack_into("<QQ", content, offset, _DT_INIT, 0x1000)
    with pytest.raises(CompileFailed, match="code that the loader runs"):
        inspect(changed(kernel, bytes(content)), TARGET)


def test_symbols_are_those_of_kernels(kernel: CompiledKernel) -> None:
    content = kernel.artifacts["so"]
    for renamed in (
        content.replace(b"kcache_abi\0", b"system_abi\0"),
        content.replace(b"kcache_run\0", b"x" * 11),
    ):
        with pytest.raises(CompileFailed, match="exports"):
            inspect(changed(kernel, renamed), TARGET)


def test_symbols_of_sections_are_those_that_a_loader_reads(kernel: CompiledKernel) -> None:
    content = bytearray(kernel.artifacts["so"])
    (at,) = headers(content, _PT_DYNAMIC)
    (offset,) = struct.unpack_from("<Q", content, at + 8)
    while struct.unpack_from("<Q", content, offset)[0] != 6:  # DT_SYMTAB
        offset += 16
    struct.pack_into("<Q", content, offset + 8, struct.unpack_from("<Q", content, offset + 8)[0] + 24)
    with pytest.raises(CompileFailed, match="other symbols"):
        inspect(changed(kernel, bytes(content)), TARGET)


def entry(content: bytes | bytearray, tag: int) -> int:
    """Where the entry of ``tag`` lies in the dynamic section."""
    (at,) = headers(content, _PT_DYNAMIC)
    (offset,) = struct.unpack_from("<Q", content, at + 8)
    while struct.unpack_from("<Q", content, offset)[0] != tag:
        offset += 16
    return offset


def test_what_a_loader_does_not_read_hides_nothing(kernel: CompiledKernel) -> None:
    """Entries after the end of the dynamic section, a second section or stack, and an address elsewhere."""
    content = kernel.artifacts["so"]
    (dynamic,) = headers(content, _PT_DYNAMIC)
    (stack,) = headers(content, _PT_GNU_STACK)
    end, symbols = entry(content, _DT_NULL), entry(content, 6)
    hidden, second, elsewhere, stacks = (bytearray(content) for _ in range(4))
    # A loader takes the table of symbols that precedes the end; the one behind it agrees with the sections.
    (address,) = struct.unpack_from("<Q", content, symbols + 8)
    struct.pack_into("<QQ", hidden, symbols, 6, address + 24)
    struct.pack_into("<Q", hidden, dynamic + 32, end + 32 - struct.unpack_from("<Q", content, dynamic + 8)[0])
    struct.pack_into("<QQ", hidden, end + 16, 6, address)
    second[stack : stack + 56] = content[dynamic : dynamic + 56]
    (place,) = struct.unpack_from("<Q", content, dynamic + 16)
    struct.pack_into("<Q", elsewhere, dynamic + 16, place + 16)
    relro = headers(content, 0x6474E552)[0]
    stacks[relro : relro + 56] = content[stack : stack + 56]
    struct.pack_into("<I", stacks, relro + 4, 7)
    for damaged, problem in (
        (hidden, "other symbols"),
        (second, "dynamic section"),
        (elsewhere, "dynamic section"),
        (stacks, "executable stack"),
    ):
        with pytest.raises(CompileFailed, match=problem):
            inspect(changed(kernel, bytes(damaged)), TARGET)


@pytest.mark.parametrize(
    ("info", "problem"), [(37, "code that the loader runs"), (1 << 32 << 10 | 6, "other symbols")]
)
def test_relocations_call_nothing_and_name_symbols_of_the_table(
    kernel: CompiledKernel, info: int, problem: str
) -> None:
    """A table of one relocation, in place of what the dynamic section has of them."""
    content = bytearray(kernel.artifacts["so"])
    table, unused = 7, 0x6FFFFEF5  # DT_RELA; DT_GNU_HASH, which no check reads
    at = entry(content, unused)
    (address,) = struct.unpack_from("<Q", content, at + 8)
    loads = [struct.unpack_from("<IIQQQQQQ", content, place) for place in headers(content, _PT_LOAD)]
    (start,) = [load[2] + address - load[3] for load in loads if load[3] <= address < load[3] + load[5]]
    struct.pack_into("<QQQ", content, start, 0, info, 0)
    struct.pack_into("<QQ", content, at, table, address)
    struct.pack_into("<QQ", content, entry(content, 10), 8, 24)  # DT_RELASZ, in place of DT_STRSZ
    with pytest.raises(CompileFailed, match=problem):
        inspect(changed(kernel, bytes(content)), TARGET)


def test_anything_else_is_a_clear_error(kernel: CompiledKernel, tmp_path: Path) -> None:
    content = kernel.artifacts["so"]
    ends = [
        b"",
        b"\x7fELF",
        content[:64],
        content[:100],
        content[: len(content) // 2],
        b"\x7fELF\x02\x01" + b"\xff" * 200,
    ]
    for other in ends:
        with pytest.raises(CompileFailed, match="not published"):
            inspect(changed(kernel, other), TARGET)
