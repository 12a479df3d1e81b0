"""A minimal ELF reader for the dependencies and exports of a shared object."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise, takewhile

from kcache_compiler.errors import CompileFailed
from kcache_compiler.llvm.target import Target

#: Symbols of the C library that a kernel may use.
ALLOWED_UNDEFINED = frozenset({"memcpy", "memmove", "memset", "memcmp", "bcmp"})
EXPORTED = frozenset({"kcache_run", "kcache_abi"})
#: The additional export of a kernel with bound arguments.
PREPARE_EXPORTED = frozenset({"kcache_prepare"})
#: Additional exports and undefined symbols of a kernel with a thread pool (docs/reference/c-abi.md). All are
#: in the C library; before glibc 2.34 those of POSIX threads were in libpthread, which processes with threads
#: have loaded.
POOL_EXPORTED = frozenset({"kcache_pool_start", "kcache_pool_stop"})
POOL_UNDEFINED = frozenset({"getpid", "pthread_create", "pthread_join", "pthread_sigmask", "syscall"})

_PT_LOAD = 1
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
_DT_STRTAB, _DT_SYMTAB = 5, 6
#: Code that a loader runs: DT_INIT, DT_FINI, DT_INIT_ARRAY, DT_FINI_ARRAY, DT_PREINIT_ARRAY.
_DT_RUN = (12, 13, 25, 26, 32)
#: Libraries that a loader loads besides those of DT_NEEDED: DT_AUXILIARY, DT_FILTER, DT_AUDIT, DT_DEPAUDIT.
_DT_LOADS = (0x7FFFFFFD, 0x7FFFFFFF, 0x6FFFFEFC, 0x6FFFFEFB)
#: Tables of relocations with addends, each with the tag of its size.
_DT_RELOCATIONS = ((7, 8), (23, 2))  # DT_RELA and DT_RELASZ, DT_JMPREL and DT_PLTRELSZ
#: R_X86_64_IRELATIVE and R_AARCH64_IRELATIVE: a loader calls code for their values.
_IRELATIVE = (37, 1032)
_DT_NULL = 0
_SHT_DYNSYM = 11
_PF_X, _PF_W = 1, 2
#: Kinds of symbols that a loader resolves by calling them.
_STT_GNU_IFUNC = 10


@dataclass(frozen=True)
class SharedObject:
    """Properties of an ELF file."""

    machine: int
    exported: frozenset[str]
    undefined: frozenset[str]
    needed: tuple[str, ...]
    bind_now: bool
    relro: bool
    executable_stack: bool
    text_relocations: bool
    run_path: bool
    writable_code: bool
    run_by_loader: bool
    misplaced_symbols: bool


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
    relocations = _relocations(content, headers, flags)
    stack_flags = [header[1] for header in headers if header[0] == _PT_GNU_STACK]
    return SharedObject(
        machine=machine,
        exported=exported,
        undefined=undefined,
        needed=tuple(str(value) for tag, value in dynamic if tag == _DT_NEEDED or tag in _DT_LOADS),
        bind_now=_DT_BIND_NOW in tags
        or bool(flags.get(_DT_FLAGS, 0) & 8)
        or bool(flags.get(_DT_FLAGS_1, 0) & 1),
        relro=any(header[0] == _PT_GNU_RELRO for header in headers),
        executable_stack=any(flag & _PF_X for flag in stack_flags) or not stack_flags,
        text_relocations=_DT_TEXTREL in tags or bool(flags.get(_DT_FLAGS, 0) & 4),
        run_path=_DT_RPATH in tags or _DT_RUNPATH in tags,
        writable_code=any(
            header[0] == _PT_LOAD and header[1] & _PF_X and header[1] & _PF_W for header in headers
        ),
        run_by_loader=any(tag in tags for tag in _DT_RUN)
        or _has_resolvers(content, tables)
        or any(kind in _IRELATIVE for _, kind in relocations),
        misplaced_symbols=not _same_symbols(headers, tables, flags)
        or any(symbol >= _symbol_count(tables) for symbol, _ in relocations),
    )


def _dynamic(content: bytes, headers: list[tuple[int, ...]]) -> list[tuple[int, int]]:
    """The entries of the dynamic section that a loader reads: those before ``DT_NULL``, at its address.

    Raises ``ValueError`` if loaders could read another section, or if segments overlap.
    """
    loaded = [(header[3], header[3] + header[6]) for header in headers if header[0] == _PT_LOAD]
    if any(end > start for (_, end), (start, _) in pairwise(loaded)):
        raise ValueError("segments overlap, or are out of order")
    places = [header for header in headers if header[0] == _PT_DYNAMIC]
    if len(places) > 1 or any(_offset(headers, header[3]) != header[2] for header in places):
        raise ValueError("the dynamic section is not where its address is")
    entries = [
        struct.unpack_from("<QQ", content, header[2] + at)
        for header in places
        for at in range(0, header[5], 16)
    ]
    return list(takewhile(lambda entry: entry[0] != _DT_NULL, entries))


def _relocations(
    content: bytes, headers: list[tuple[int, ...]], dynamic: dict[int, int]
) -> list[tuple[int, int]]:
    """The index of the symbol and the type of every relocation. Raises ``ValueError`` for one not loaded."""
    relocations: list[tuple[int, int]] = []
    for table, size in _DT_RELOCATIONS:
        if not dynamic.get(size):
            continue
        start = _offset(headers, dynamic.get(table, -1))
        if start < 0:
            raise ValueError("relocations lie outside of the loaded segments")
        for at in range(start, start + dynamic[size], 24):
            (info,) = struct.unpack_from("<Q", content, at + 8)
            relocations.append((info >> 32, info & 0xFFFFFFFF))
    return relocations


def _symbol_count(tables: list[tuple[int, ...]]) -> int:
    """The number of symbols of the first dynamic symbol table, which ``_same_symbols`` compares."""
    return next((table[5] // 24 for table in tables if table[1] == _SHT_DYNSYM), 0)


def _has_resolvers(content: bytes, tables: list[tuple[int, ...]]) -> bool:
    return any(
        content[at + 4] & 15 == _STT_GNU_IFUNC
        for table in tables
        if table[1] == _SHT_DYNSYM
        for at in range(table[4], table[4] + table[5], 24)
    )


def _same_symbols(
    headers: list[tuple[int, ...]], tables: list[tuple[int, ...]], dynamic: dict[int, int]
) -> bool:
    """Whether the symbol table of the sections is the one that a loader, which ignores sections, reads."""
    for table in tables:
        if table[1] == _SHT_DYNSYM:
            places = (table[4], tables[table[6]][4])
            return places == tuple(_offset(headers, dynamic.get(tag, -1)) for tag in (_DT_SYMTAB, _DT_STRTAB))
    return False


def _offset(headers: list[tuple[int, ...]], address: int) -> int:
    """The file offset of an address; -1 if it is not loaded from the file."""
    for kind, _, offset, start, _, size, _, _ in headers:
        if kind == _PT_LOAD and start <= address < start + size:
            return offset + address - start
    return -1


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


def check_untrusted(content: bytes, target: Target) -> None:
    """``check`` for untrusted bytes. Raises ``CompileFailed``."""
    try:
        check(content, target)
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise CompileFailed("package", f"the shared object is not ELF: {error}") from None


def check(content: bytes, target: Target) -> None:
    """Raise ``CompileFailed`` unless the shared object satisfies the requirements of kernels."""
    facts = read(content)
    pool = bool(facts.exported & POOL_EXPORTED)
    exports = EXPORTED | (POOL_EXPORTED if pool else frozenset[str]())
    exports |= facts.exported & PREPARE_EXPORTED
    undefined = facts.undefined - ALLOWED_UNDEFINED - (POOL_UNDEFINED if pool else frozenset())
    problems = {
        "machine": facts.machine != target.elf_machine,
        f"exports {sorted(facts.exported)}": facts.exported != exports,
        f"undefined symbols {sorted(undefined)}": bool(undefined),
        "needed libraries": bool(facts.needed),
        "lazy binding": not facts.bind_now,
        "writable relocations": not facts.relro,
        "executable stack": facts.executable_stack,
        "text relocations": facts.text_relocations,
        "a run path": facts.run_path,
        "a writable segment with code": facts.writable_code,
        "code that the loader runs": facts.run_by_loader,
        "other symbols than its sections say": facts.misplaced_symbols,
    }
    violations = [name for name, present in problems.items() if present]
    if violations:
        raise CompileFailed("package", "the shared object has " + ", ".join(violations))
