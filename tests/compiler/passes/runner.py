"""Run passes on a small module, as the first line of a test file says, and print the IR that they leave.

A test file begins with ``// RUN: PIPELINE PASSES [option=value ...]``. ``PIPELINE`` is ``cpu`` or
``nvidia``; ``PASSES`` are names of its passes in order, ``first..last`` for all from one to another. The last
one is the subject of the test. Options: ``numerics``, ``target``, ``schedule``, ``tuning``, ``opt_level``.
The modules of a file are separated by ``// -----``. ``python -m tests.compiler.passes.runner FILE`` prints
the IR before and after the subject, which ``BEFORE`` and ``CHECK`` lines are matched with.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llvmlite import binding

from kcache_compiler.errors import CompilerError
from kcache_compiler.llvm import elf
from kcache_compiler.llvm.target import target_named
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.stage import Stage, Unit, UpstreamPasses, run
from kcache_compiler.pipelines import cpu, nvidia
from kcache_compiler.types import CompileOptions

ROOT = Path(__file__).parent
SEPARATOR = "// -----"
PIPELINES = {"cpu": (cpu, "x86-64-v3"), "nvidia": (nvidia, "sm_90")}
#: Fields of a unit that passes derive from the module; one that a pass sets is printed behind the module.
FACTS = (
    *("inputs", "constants", "outputs", "symbols", "narrow_buffers", "size_checks"),
    *("launches", "workspace", "scratch", "gpu_launches", "checks"),
)

ELF_TYPES = {1: "relocatable", 2: "executable", 3: "shared"}


@dataclass(frozen=True)
class Run:
    """The first line of a test file."""

    pipeline: str
    passes: tuple[str, ...]
    options: dict[str, str]

    @staticmethod
    def parse(line: str) -> Run:
        marker, _, rest = line.lstrip("/; ").partition(":")
        assert marker == "RUN", f"the first line is not a RUN line: {line}"
        pipeline, *words = rest.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        return Run(pipeline, tuple(word for word in words if "=" not in word), options)

    def stages(self) -> Iterator[Stage]:
        """The passes to run, in the order of the pipeline."""
        pipeline = PIPELINES[self.pipeline][0]()
        names = [stage.name for stage in pipeline]
        for word in self.passes:
            first, _, last = word.partition("..")
            yield from pipeline[names.index(first) : names.index(last or first) + 1]

    @property
    def subject(self) -> str:
        """The name of the pass that the file tests."""
        return self.passes[-1].rpartition("..")[2]

    def unit(self, source: str) -> Unit:
        settings: dict[str, Any] = dict(self.options)
        target = target_named(settings.pop("target", PIPELINES[self.pipeline][1]))
        level = int(settings.pop("opt_level", "3"))
        return Unit(source, 0, target, CompileOptions(opt_level=level, **settings))


def files() -> list[Path]:
    """All test files, below this folder."""
    return sorted(path for path in ROOT.rglob("*") if path.suffix in (".mlir", ".ll"))


def run_of(path: Path) -> Run:
    return Run.parse(path.read_text().splitlines()[0])


def sections(path: Path) -> list[str]:
    """The modules of a file, each behind as many empty lines as there are lines before it."""
    parts: list[str] = []
    lines = 0
    for part in path.read_text().split(SEPARATOR):
        parts.append("\n" * lines + part)
        lines += part.count("\n")
    return parts


def transform(run_line: Run, source: str) -> tuple[str, str]:
    """The IR before and after the subject; what it raises is the IR after it."""
    unit = run_line.unit(source)
    *setup, subject = run_line.stages()
    with mlir.new_context(), mlir.unknown_location():
        _read(unit, source, setup[0] if setup else subject)
        if setup:
            run(tuple(setup), unit, lambda _: None)
        before = printed(unit, {})
        known = {name: repr(getattr(unit, name)) for name in FACTS}
        try:
            run((subject,), unit, lambda _: None)
            return before, printed(unit, known)
        except CompilerError as error:
            return before, f"error: {type(error).__name__}: {error}\n"
        finally:
            if unit.assembler is not None:
                unit.assembler.close()


def _read(unit: Unit, source: str, first: Stage) -> None:
    """Give the unit its module, in MLIR or LLVM IR, and make all arguments of ``main`` inputs."""
    if not source.lstrip().startswith(("; RUN", ";")):
        try:
            module = mlir.parse(source)
        except mlir.MLIRError:
            assert first.name == "parse", f"the module does not parse: {source}"
            return
        if isinstance(first, UpstreamPasses) or first.name != "parse":
            unit.module = module
        names = [mlir.symbol_of(op) for op in mlir.operations(module.body)]
        if "main" in names:
            unit.n_inputs = len(mlir.block_of(mlir.main_function(module)).arguments)
    else:
        unit.llvm_ir = _uncommented(source)


def printed(unit: Unit, known: dict[str, str]) -> str:
    """The latest form of the program, then the facts that are not as in ``known``."""
    facts = [
        f"// {name}: {getattr(unit, name)}" for name in known if repr(getattr(unit, name)) != known[name]
    ]
    if unit.assembler is not None:
        facts.append("// assembler: running")
    if unit.object_code:
        kind, machine = struct.unpack_from("<HH", unit.object_code, 16)
        facts.append(f"// object code: ELF {ELF_TYPES[kind]} for machine {machine}")
    if unit.shared_object:
        library = elf.read(unit.shared_object)
        facts.append(
            f"// shared object: exports {sorted(library.exported)}, imports {sorted(library.undefined)}"
        )
    return "\n".join([_program(unit), *facts, ""])


def _program(unit: Unit) -> str:
    if unit.assembly:
        return unit.assembly
    if unit.bitcode:
        return str(binding.parse_bitcode(unit.bitcode))
    return unit.llvm_ir or str(vars(unit).get("module") or _uncommented(unit.source))


def _uncommented(text: str) -> str:
    """Text without lines of comments, in which ``CHECK`` lines would match themselves."""
    return "".join(f"{line}\n" for line in text.splitlines() if not line.startswith(("//", ";")))


def main(path: Path) -> None:
    run_line = run_of(path)
    for section in sections(path):
        before, after = transform(run_line, section)
        print(f"// BEFORE {run_line.subject}\n{before}\n// AFTER {run_line.subject}\n{after}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
