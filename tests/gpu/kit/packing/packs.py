"""Packs for tests: cases of the kit, whole or with a kernel that is broken on purpose."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.gpu.kit.packing.programs import Call, Program, Source, argument, near
from benchmarks.gpu.kit.packing.samples import benchmark_set
from benchmarks.gpu.kit.packing.sources import test_set as sources_of_tests
from benchmarks.gpu.kit.packing.writing import packed, write_pack
from kcache_compiler.types import CompiledKernel

TARGET = "sm_90"
#: Of every form of a kernel that is small.
RIGHT = (
    "template/pointwise/f32/3x5",
    "template/softmax/f32/dynamic",
    "template/transpose/f32/33x31",
    "template/batched/bf16/2x33x40x24",
    "template/batched/f16/2x33x40x24",
    "attention/f16/1x1x16x8x8",
    "attention/plain/f32",
    "loops/collatz",
    "overwriting/2/dynamic",
    "ops/compare-f32",
    "ops/sort-f32",
    "ops/multiply-c64",
    "narrow/multiply/f8E5M2",
)


@dataclass(frozen=True)
class Mutant:
    """A case whose IR has ``replacement`` at one place where ``pattern`` is."""

    case: str
    pattern: str
    replacement: str
    place: int = 0

    @property
    def name(self) -> str:
        return f"mutant/{self.case}/{self.pattern[:8]}/{self.place}"


MUTANTS = (
    Mutant("template/pointwise/f32/3x5", "fadd", "fsub"),
    Mutant("template/pointwise/f32/3x5", "fmul", "fadd", -1),
    Mutant("template/softmax/f32/3x5", "fdiv", "fmul"),
    Mutant("template/softmax/bf16/3x5", "maximum", "minimum"),
    Mutant("template/row_sums/f32/3x5", "fadd", "fsub"),
    Mutant(
        "template/row_sums/f32/3x5",
        r"bfly\.i32\(i32 -1, i32 (\S+), i32 1,",
        r"bfly.i32(i32 -1, i32 \1, i32 2,",
    ),
    Mutant("template/column_sums/f16/3x5", "fadd", "fmul", -1),
    Mutant("template/batched/f32/3x7x5x9", "fmul", "fadd"),
    Mutant("template/matmul/f32/16x8x16", "maximum", "minimum"),
    Mutant("ops/negate-i64", "sub i64", "add i64"),
)
#: Its loop never ends.
HANGING = Mutant("template/transpose/f32/3x5", r"ret void", "br label %forever\nforever:\nbr label %forever")
#: It writes beyond its buffer: ``block * 256 - thread``.
OUTSIDE = Mutant("ops/add-i32", r"(mul i32 \S+ 256\n.*) add i32", r"\1 sub i32")


@cache
def sources() -> dict[str, Source]:
    """The cases of the kit by name."""
    return {source.name: source for source in (*sources_of_tests(), *benchmark_set())}


def broken(mutant: Mutant) -> Source:
    """The source of a mutant."""
    source = sources()[mutant.case]

    def build() -> Program:
        program = source.build()
        return replace(program, compiled=lambda target: _changed(program.compiled(target), mutant))

    return replace(source, name=mutant.name, build=build)


def all_nan() -> Source:
    """The case ``nan``: its arguments are NaN, and so are its results."""
    source = sources()["template/pointwise/f32/3x5"]

    def build() -> Program:
        program = source.build()
        (call,) = program.calls
        numbers = [np.full(value.shape, np.nan, np.float32) for value in (*call.arguments, *call.expected)]
        arguments = tuple(argument("f32", array) for array in numbers[:-1])
        return replace(program, calls=(Call(arguments, (near("f32", numbers[-1], 0.0, 1.0),)),))

    return replace(source, name="nan", build=build)


def _changed(kernel: CompiledKernel, mutant: Mutant) -> CompiledKernel:
    ir = kernel.artifacts["llvm"].decode()
    place = [*re.finditer(mutant.pattern, ir)][mutant.place]
    changed = ir[: place.start()] + place.expand(mutant.replacement) + ir[place.end() :]
    return replace(kernel, artifacts={**kernel.artifacts, "llvm": changed.encode()})


def write(folder: Path, chosen: Iterable[Source]) -> None:
    """A pack of these cases, with IR for the emulator."""
    work = folder / "work"
    work.mkdir(parents=True)
    entries, contents = list[dict[str, object]](), dict[str, Path]()
    for number, source in enumerate(chosen):
        entry, content = packed(source, [TARGET], ir=True)
        assert "unsupported" not in entry, entry
        contents[source.name] = work / f"{number}.record"
        contents[source.name].write_bytes(content)
        entries.append(entry)
    write_pack(folder, entries, contents, {"targets": [TARGET], "commit": "tested"})
