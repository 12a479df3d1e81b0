"""The library of a form as object code, which is linked with the kernels that use it.

It is compiled once per process, or once for all processes that share a ``LibraryCache``.
"""

from __future__ import annotations

import functools
import hashlib
import struct
import zlib
from dataclasses import dataclass

from kcache_compiler.llvm.compatibility import downgrade
from kcache_compiler.llvm.emission import assemble, assembles, emit, emit_object, optimize
from kcache_compiler.llvm.target import Target
from kcache_compiler.lower.gemm.amx import SIDE, matrix_strip, matrix_tile
from kcache_compiler.lower.gemm.driver import Driver
from kcache_compiler.lower.gemm.few_rows import direct_parts
from kcache_compiler.lower.gemm.in_place.driver import in_place_parts
from kcache_compiler.lower.gemm.micro_kernel import finish, row_counts, tile
from kcache_compiler.lower.gemm.pack_b import copy_b, pack_b
from kcache_compiler.lower.gemm.packing import consecutive, pack_a, runs, table
from kcache_compiler.lower.gemm.prepack import prepack
from kcache_compiler.lower.gemm.strip import strip
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.schedule.gemm_tiles import Form
from kcache_compiler.types import LibraryCache
from kcache_compiler.versions import CODE_VERSION, library_versions

#: MLIR passes from the library's text to the LLVM dialect.
PASSES = "convert-scf-to-cf,convert-arith-to-llvm,convert-cf-to-llvm,canonicalize,cse"
#: LLVM's optimization level.
LEVEL = 3
_SIZE = struct.Struct(">Q")


def lowered(text: str) -> mlir.Module:
    """The functions of ``text`` in the LLVM dialect."""
    module = mlir.parse(text)
    mlir.run_passes(module, f"builtin.module({PASSES})")
    return module


def splice_library(module: mlir.Module, form: Form) -> None:
    """Replace the library's declaration in a kernel's module by its definition, if nothing links it."""
    for function in mlir.named(module, "llvm.func"):
        if mlir.symbol_of(function) == f"{form.name}_run":
            function.erase()
    mlir.splice(module, str(lowered(library(form))))


@dataclass(frozen=True)
class Library:
    """The library of a form for a target."""

    object_code: bytes
    assembly: str


@functools.cache
def compiled_library(form: Form, target: Target, cache: LibraryCache | None = None) -> Library:
    """The library from ``cache``, or compiled and stored there."""
    text = library(form)
    name = library_name(form, target, text)
    content = cache.load(name) if cache is not None else None
    if content is not None:
        return _decoded(content)
    compiled = _compiled(form, target, text)
    if cache is not None:
        cache.save(name, _encoded(compiled))
    return compiled


def is_cached(form: Form, target: Target, cache: LibraryCache) -> bool:
    """Whether ``cache`` has the library."""
    return cache.load(library_name(form, target, library(form))) is not None


def library_name(form: Form, target: Target, text: str) -> str:
    """A name that covers everything that determines the bytes: text, passes, versions, target."""
    ingredients = (
        _SIZE.format,
        text,
        PASSES,
        LEVEL,
        library_versions(),
        CODE_VERSION,
        target,
        assembles(target),
    )
    return f"{form.name}-{hashlib.sha256(repr(ingredients).encode()).hexdigest()}"


def _compiled(form: Form, target: Target, text: str) -> Library:
    with mlir.new_context(), mlir.unknown_location():
        llvm_text = downgrade(mlir.to_llvm_text(lowered(text)))
    bitcode, assembly = emit(optimize(llvm_text, target, LEVEL), target, LEVEL)
    code = assemble(assembly, target) if assembles(target) else emit_object(bitcode, target, LEVEL)
    return Library(code, assembly)


def _encoded(compiled: Library) -> bytes:
    return (
        _SIZE.pack(len(compiled.object_code))
        + compiled.object_code
        + zlib.compress(compiled.assembly.encode(), 1)
    )


def _decoded(content: bytes) -> Library:
    end = _SIZE.size + _SIZE.unpack_from(content)[0]
    return Library(content[_SIZE.size : end], zlib.decompress(content[end:]).decode())


@functools.singledispatch
def library(form: Form) -> str:
    """Return the LLVM IR of the library functions of a form: packing, tiles and the driver."""
    parts = [
        consecutive(form),
        table(form),
        runs(form),
        pack_a(form),
        pack_b(form),
        prepack(form) if form.prepacked else copy_b(form),
    ]
    parts += [finish(form)] if form.summed else []
    if form.matrix:
        tiles = [matrix_tile(form, rows) for rows in (form.rows, SIDE)]
        return "\n".join([*parts, *tiles, matrix_strip(form), Driver(form).text()])
    if form.in_place:
        return "\n".join([*parts, *in_place_parts(form)])
    parts += [tile(form, rows) for rows in row_counts(form)]
    parts += [tile(form, form.rows, vectors=1)] if form.narrow else []
    if form.direct:
        parts += direct_parts(form)
    parts += [strip(form), Driver(form).text()]
    return "\n".join(parts)
