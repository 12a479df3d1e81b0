"""Builds the emulator around a kernel and runs launches in a process of their own."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import llvmlite.binding as llvm

from tests.gpu.harness.translate import translate

SOURCES = sorted((Path(__file__).parent / "emulator").glob("*.c"))
ORDERS = ("forward", "reverse", "random")
INPUT, CONSTANT, OUTPUT, WORKSPACE = 0, 1, 2, 3
_COMPILER = ["cc", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing"]
_PAGE = 4096
#: Buffers lie apart, each at an odd multiple of 16 bytes: that is all that a kernel may count on.
_APART, _OFFSET = 1 << 16, 16
_LAUNCH = struct.Struct("128s10Q192Q")
_BUFFER = struct.Struct("3Q40s")


class EmulationError(AssertionError):
    """The kernel did what it must not, or the emulator cannot run it; the message says where."""


@dataclass(frozen=True)
class Pointer:
    """A parameter: a buffer of the request, plus bytes."""

    buffer: int
    offset: int = 0


@dataclass(frozen=True)
class Run:
    """One launch: sizes as numbers, parameters as pointers or integers; ``blocks``: which run, if not all."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    params: tuple[Pointer | int, ...]
    blocks: range = range(0)


@dataclass
class Buffer:
    """Bytes that the launches see under ``name``: ``content``, or ``size`` bytes, of which it is those from
    ``first`` on. The others are 0, and take no memory until they are written.
    """

    name: str
    kind: int
    content: bytearray
    first: int = 0
    size: int = 0

    @property
    def bytes(self) -> int:
        return self.size or len(self.content)


@functools.cache
def _folder() -> Path:
    """Where executables are built; ``KCACHE_EMULATOR_FOLDER`` names one that processes share."""
    if shared := os.environ.get("KCACHE_EMULATOR_FOLDER"):
        return Path(shared)
    folder = Path(tempfile.mkdtemp(prefix="kcache-emulator-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def _runtime() -> tuple[Path, Path]:
    """The emulator's program and its library, compiled once a folder."""
    program, library = _folder() / "emulator", _folder() / "libemulator.so"
    if not library.exists() or not program.exists():
        with tempfile.TemporaryDirectory(dir=_folder()) as folder:
            objects = _compiled(Path(folder))
            main = objects.pop("main")
            output = Path(folder) / library.name
            _linked([*_COMPILER, "-shared", f"-Wl,-soname,{library.name}", *objects.values()], output)
            output.replace(library)
            flags = f"-L{_folder()}", "-lemulator", "-Wl,-rpath,$ORIGIN", "-ldl"
            _linked([*_COMPILER, main, *flags], output)
            output.replace(program)
    return program, library


def _compiled(folder: Path) -> dict[str, str]:
    """The object files of the emulator's C part by name, compiled side by side."""
    objects = {source.stem: str(folder / f"{source.stem}.o") for source in SOURCES}
    running = [
        subprocess.Popen([*_COMPILER, "-fPIC", "-c", str(source), "-o", objects[source.stem]])
        for source in SOURCES
    ]
    statuses = [process.wait(timeout=240) for process in running]
    if any(statuses):
        raise EmulationError("the emulator does not compile")
    return objects


def _linked(command: list[str], output: Path) -> None:
    linked = subprocess.run([*command, "-lm", "-o", str(output)], capture_output=True, text=True, timeout=240)
    if linked.returncode:
        missing = sorted(set(re.findall(r"undefined reference to `(\w+)'", linked.stderr)))
        raise EmulationError(f"the emulator has no {', '.join(missing)}" if missing else linked.stderr)


@functools.cache
def _linker() -> list[str]:
    """The command that links a kernel, without its driver, which takes longer than linking does."""
    runtime = subprocess.run(["cc", "-print-libgcc-file-name"], capture_output=True, text=True, timeout=240)
    libraries = [str(_runtime()[1]), runtime.stdout.strip()]
    return ["ld", "-shared", "-z", "defs", "--allow-shlib-undefined", *libraries]


@functools.lru_cache(maxsize=256)
def build(kernel_ir: str) -> tuple[Path, tuple[str, ...]]:
    """A shared object with the kernels of ``kernel_ir``, and the lines that messages name."""
    translated = translate(kernel_ir)
    path = _folder() / f"{hashlib.sha256(kernel_ir.encode()).hexdigest()[:24]}.so"
    part = path.with_suffix(f".{os.getpid()}")  # another process may build or run the same kernel
    try:
        (part_object := part.with_suffix(f"{part.suffix}.o")).write_bytes(_object(translated.text))
    except RuntimeError as error:
        raise EmulationError(f"the host's LLVM does not take the kernel: {error}") from None
    program, *options = _linker()
    _linked([program, str(part_object), *options], part)
    part_object.unlink()
    part.replace(path)
    return path, tuple(translated.sites)


def _object(text: str) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = llvm.get_process_triple()
    features = llvm.get_host_cpu_features() if triple.startswith("x86_64") else {}
    wanted = [f"+{feature}" for feature in ("avx2", "fma", "f16c") if features.get(feature)]
    # Most kernels take longer to compile than to run.
    machine = llvm.Target.from_triple(triple).create_target_machine(
        features=",".join(wanted), opt=0, reloc="pic"
    )
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = triple
    module.data_layout = str(machine.target_data)
    module.verify()
    return machine.emit_object(module)


def launch(
    kernel_ir: str,
    buffers: Sequence[Buffer],
    runs: Sequence[Run],
    order: str = "forward",
    seed: int = 1,
    timeout: float = 240,
) -> None:
    """Runs all launches over ``buffers``, which are changed in place. Raises ``EmulationError``."""
    kernel, sites = build(kernel_ir)
    with tempfile.NamedTemporaryFile(dir=_folder()) as request:
        places = _write(Path(request.name), buffers, runs, order, seed)
        try:
            done = subprocess.run(
                [str(_runtime()[0]), str(kernel), request.name],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise EmulationError(f"the launches do not end within {timeout:g} s") from None
        if done.returncode:
            reason = done.stderr.strip() or f"the emulator ended with status {done.returncode}"
            raise EmulationError(re.sub(r"@@(\d+)", lambda at: f"`{sites[int(at[1])]}`", reason))
        with Path(request.name).open("rb") as file:
            for buffer, place in zip(buffers, places, strict=True):
                file.seek(place + buffer.first)
                buffer.content[:] = file.read(len(buffer.content))


def _write(path: Path, buffers: Sequence[Buffer], runs: Sequence[Run], order: str, seed: int) -> list[int]:
    """Writes a request; the offsets of the buffers in it."""
    parts = [struct.pack("4Q", len(buffers), len(runs), ORDERS.index(order), seed)]
    parts += [_packed(run) for run in runs]
    start = sum(map(len, parts)) + len(buffers) * _BUFFER.size
    places = list[int]()
    for buffer in buffers:
        start = -(-start // _PAGE) * _PAGE + _APART + _OFFSET
        places.append(start)
        parts.append(_BUFFER.pack(start, buffer.bytes, buffer.kind, buffer.name.encode()))
        start += buffer.bytes
    with path.open("r+b") as file:
        file.write(b"".join(parts))
        for buffer, place in zip(buffers, places, strict=True):
            file.seek(place + buffer.first)
            file.write(buffer.content)
        file.truncate(start + _APART)
    return places


def _packed(run: Run) -> bytes:
    params = list[int]()
    for parameter in run.params:
        pointer = isinstance(parameter, Pointer)
        params += [1, parameter.buffer, parameter.offset] if pointer else [0, 0, parameter % (1 << 64)]
    params += [0] * (192 - len(params))
    sizes = (*run.grid, *run.block, run.shared_bytes, len(run.params), run.blocks.start, len(run.blocks))
    return _LAUNCH.pack(run.entry.encode(), *sizes, *params)
