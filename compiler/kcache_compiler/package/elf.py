"""A reader of just so much ELF as tells what a shared object needs and exports."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kcache_compiler.errors import CompileFailed
from kcache_compiler.package.target import Target

#: What a kernel may leave to the C library.
ALLOWED_UNDEFINED = frozenset({"memcpy", "memmove", "memset", "memcmp", "bcmp"})
EXPORTED = frozenset({"kcache_run", "kcache_abi"})
#: The way in for CPython, beside every kernel.
CALLER_EXPORTED = frozenset({"kcache_cpython_call"})
#: What a kernel that brings a thread pool exports and needs besides (docs/abi.md). All are in the C library;
#: before glibc 2.34 the three of POSIX threads were in libpthread, which processes with threads have loaded.
POOL_EXPORTED = frozenset({"kcache_pool_start", "kcache_pool_stop"})
POOL_UNDEFINED = frozenset({"getpid", "pthread_create", "pthread_join", "pthread_sigmask", "syscall"})

_PT_DYNAMIC, _PT_GNU_STACK, _PT_GNU_RELRO = 2, 0x6474E551, 0x6474E552
_DT_NEEDED, _DT_BIND_NOW, _DT_FLAGS, _DT_FLAGS_1, _DT_TEXTREL, _DT_RPATH, _DT_RUNPATH = (
    1,
    24,
    30,
    0x6FFFFFFB,
    22,
    15,
    29,
)
_SHT_DYNSYM = 11
_PF_X = 1


@dataclass(frozen=True)
class SharedObject:
    """Facts of an ELF file."""

    machine: int
    exported: frozenset[str]
    undefined: frozenset[str]
    needed: tuple[str, ...]
    bind_now: bool
    relro: bool
    executable_stack: bool
    text_relocations: bool
    run_path: bool


def read(content: bytes) -> SharedObject:
    """Read a little-endian ELF64 file; raises ``CompileFailed`` for anything else."""
    if content[:6] != b"\x7fELF\x02\x01":
        raise CompileFailed("package", "not a little-endian ELF64 file")
    (machine,) = struct.unpack_from("<H", content, 18)
    program_at, section_at = struct.unpack_from("<QQ", content, 32)
    program_size, programs, section_size, sections = struct.unpack_from("<HHHH", content, 54)
    headers = [
        struct.unpack_from("<IIQQQQQQ", content, program_at + i * program_size) for i in range(programs)
    ]
    tables = [
        struct.unpack_from("<IIQQQQIIQQ", content, section_at + i * section_size) for i in range(sections)
    ]
    dynamic = _dynamic(content, headers)
    exported, undefined = _symbols(content, tables)
    tags = [tag for tag, _ in dynamic]
    flags = dict(dynamic)
    return SharedObject(
        machine=machine,
        exported=exported,
        undefined=undefined,
        needed=tuple(str(value) for tag, value in dynamic if tag == _DT_NEEDED),
        bind_now=_DT_BIND_NOW in tags
        or bool(flags.get(_DT_FLAGS, 0) & 8)
        or bool(flags.get(_DT_FLAGS_1, 0) & 1),
        relro=any(header[0] == _PT_GNU_RELRO for header in headers),
        executable_stack=not any(header[0] == _PT_GNU_STACK and not header[1] & _PF_X for header in headers),
        text_relocations=_DT_TEXTREL in tags,
        run_path=_DT_RPATH in tags or _DT_RUNPATH in tags,
    )


def _dynamic(content: bytes, headers: list[tuple[int, ...]]) -> list[tuple[int, int]]:
    for header in headers:
        if header[0] == _PT_DYNAMIC:
            offset, size = header[2], header[5]
            return [struct.unpack_from("<QQ", content, offset + at) for at in range(0, size, 16)]
    return []


def _symbols(content: bytes, tables: list[tuple[int, ...]]) -> tuple[frozenset[str], frozenset[str]]:
    exported: set[str] = set()
    undefined: set[str] = set()
    for table in tables:
        if table[1] != _SHT_DYNSYM:
            continue
        offset, size, names = table[4], table[5], tables[table[6]][4]
        for at in range(offset + 24, offset + size, 24):
            name_at, _, _, section, _, _ = struct.unpack_from("<IBBHQQ", content, at)
            start = names + name_at
            name = content[start : content.index(b"\0", start)].decode()
            (exported if section else undefined).add(name)
    return frozenset(exported), frozenset(undefined)


def check(content: bytes, target: Target) -> None:
    """Raise ``CompileFailed`` unless the shared object keeps what the design promises of kernels."""
    facts = read(content)
    pool = bool(facts.exported & POOL_EXPORTED)
    exports = EXPORTED | (POOL_EXPORTED if pool else frozenset[str]())
    undefined = facts.undefined - ALLOWED_UNDEFINED - (POOL_UNDEFINED if pool else frozenset())
    problems = {
        "machine": facts.machine != target.elf_machine,
        f"exports {sorted(facts.exported)}": facts.exported - CALLER_EXPORTED != exports,
        f"undefined symbols {sorted(undefined)}": bool(undefined),
        "needed libraries": bool(facts.needed),
        "lazy binding": not facts.bind_now,
        "writable relocations": not facts.relro,
        "executable stack": facts.executable_stack,
        "text relocations": facts.text_relocations,
        "a run path": facts.run_path,
    }
    found = [name for name, present in problems.items() if present]
    if found:
        raise CompileFailed("package", "the shared object has " + ", ".join(found))
