"""Packs as they are written: a blob for each case, the index, and the modules that run them."""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import shutil
import struct
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.gpu.kit.packing.kernels import kernels_for
from benchmarks.gpu.kit.packing.programs import Argument, Expected, Program, Source
from benchmarks.gpu.kit.runtime.reading import BUNDLE, FORMAT, INDEX, Pack
from benchmarks.gpu.kit.runtime.values import digest
from kcache_compiler.errors import CompileFailed, UnsupportedOp
from kcache_compiler.types import CompiledKernel, KernelInterface
from kcache_grpc.bundle import BlobEntry, BundleMetadata, BundleWriter
from kcache_grpc.model.signing import Signer
from kcache_grpc.model.sizes.expression import evaluate, holds

ROOT = Path(__file__).resolve().parents[4]
#: What a pack contains of this repository, so that it runs on a machine without it.
RUNTIME = (
    "benchmarks/__init__.py",
    "benchmarks/gpu/__init__.py",
    "benchmarks/gpu/rivals.py",
    "benchmarks/gpu/kit/__init__.py",
    "benchmarks/gpu/kit/runtime/__init__.py",
    *(
        f"benchmarks/gpu/kit/runtime/{name}.py"
        for name in ("child", "cuda", "devices", "reading", "replay", "results", "sanitize", "speed")
    ),
    *(f"benchmarks/gpu/kit/runtime/{name}.py" for name in ("values", "worker")),
    "kcache_grpc/__init__.py",
    "kcache_grpc/errors.py",
    "kcache_grpc/model/__init__.py",
    "kcache_grpc/model/gpu/__init__.py",
    "kcache_grpc/model/gpu/launch.py",
    "kcache_grpc/model/gpu/target.py",
    "kcache_grpc/model/sizes/__init__.py",
    "kcache_grpc/model/sizes/expression.py",
    "kcache_grpc/runtime/__init__.py",
    "kcache_grpc/runtime/gpu/__init__.py",
    *(f"kcache_grpc/runtime/gpu/{name}.py" for name in ("device", "driver", "packed_launches")),
)
_RUN = '''"""``python run.py --minutes N [--json FILE]``: executes the kernels of this folder on a GPU.

Needs Python 3.10, NumPy and cuda-bindings; ``--help`` lists the options.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "lib"))

from benchmarks.gpu.kit.runtime.replay import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "run.py", HERE))
'''
_NAMESPACE = "gpu-kit"
#: Bytes of records in a blob, if there is more than one: what two records have in common is stored once.
_BLOB = 8 << 20
#: Of LZMA: blobs are a seventh larger than with the default preset, which takes six times as long.
_PRESET = 1
#: zstd then stores what LZMA has compressed, so that the pack's reader needs no zstd.
_LEVEL = -50
#: First word of a launch's operations -> the form of the kernel (docs/internals/gpu.md).
_FORMS = {
    "stream": "elementwise",
    "transposition": "transpose",
    "contraction": "matmul",
    "while": "while loop",
}
#: Forms of which there is one with MMA instructions and one without.
_MATRIX = ("matmul", "attention")


class _Payload:
    """Bytes of a record, each content once."""

    def __init__(self) -> None:
        self._parts, self._size = list[bytes](), 0
        self._places = dict[bytes, tuple[int, int]]()

    def place(self, content: bytes) -> tuple[int, int]:
        if content not in self._places:
            self._places[content] = (self._size, len(content))
            self._parts.append(content)
            self._size += len(content)
        return self._places[content]

    def bytes(self) -> bytes:
        return b"".join(self._parts)


def packed(source: Source, targets: Sequence[str], ir: bool) -> tuple[dict[str, Any], bytes]:
    """The index entry of a case and its record; ``unsupported`` in the entry if there is none.

    With ``ir`` the record has LLVM IR too, which the emulator executes.
    """
    entry: dict[str, Any] = {"name": source.name, "group": source.group, "kind": source.kind}
    entry |= {"dtype": source.dtype, **source.facts}
    try:
        program = source.build()
        kernels = kernels_for(program, targets)
    except (UnsupportedOp, CompileFailed) as error:
        return entry | {"unsupported": f"{type(error).__name__}: {error}"[:300]}, b""
    if not kernels:
        return entry | {"unsupported": "no target has these choices"}, b""
    kinds = ("ptx", "cubin", "llvm") if ir else ("ptx", "cubin")
    payload = _Payload()
    for kernel in kernels.values():
        _require_fitting(kernel.interface, program)
    header = {
        "kernels": {target: _kernel(kernel, kinds, payload) for target, kernel in kernels.items()},
        "constants": [payload.place(content) for content in program.constants],
        "calls": [
            {
                "inputs": [_argument(value, payload) for value in call.arguments],
                "expected": [_expected(value, payload) for value in call.expected],
            }
            for call in program.calls
        ],
    }
    text = json.dumps(header).encode()
    forms = sorted({form for kernel in kernels.values() for form in _forms(kernel)})
    entry |= {"targets": [*kernels], "forms": forms, "work": _work(program, kernels), **_assembled(kernels)}
    return entry, struct.pack("<I", len(text)) + text + payload.bytes()


def _work(program: Program, kernels: Mapping[str, CompiledKernel]) -> int:
    """Elements of arguments and results of all calls, times lines of LLVM IR: a bound for emulated runs."""
    values = [value for call in program.calls for value in (*call.arguments, *call.expected)]
    elements = sum(math.prod(value.shape) for value in values)
    return elements * max(kernel.artifacts["llvm"].count(b"\n") for kernel in kernels.values())


def _assembled(kernels: Mapping[str, CompiledKernel]) -> dict[str, Any]:
    """The number of entries that ``ptxas`` assembled, and the bytes that each of ``spills`` spills."""
    entries = {
        f"{target}: {launch.entry}": launch.resources.spill_bytes
        for target, kernel in kernels.items()
        for launch in kernel.interface.gpu_launches
        if launch.resources is not None
    }
    spills = {name: size for name, size in entries.items() if size}
    return {"assembled": len(entries), **({"spills": spills} if spills else {})}


def _require_fitting(interface: KernelInterface, program: Program) -> None:
    """Arguments and results of all calls have the shapes of the interface. Raises ``ValueError``."""
    for call in program.calls:
        shapes = [argument.shape for argument in call.arguments]
        symbols = {symbol.name: shapes[symbol.arg][symbol.axis] for symbol in interface.symbols}
        failed = [check for check in interface.checks if not holds(check, symbols)]
        actual = [
            (kind.dtype, tuple(evaluate(str(dim), symbols) for dim in kind.dims))
            for kind in interface.outputs
        ]
        wanted = [(value.dtype, value.shape) for value in call.expected]
        if failed or actual != wanted:
            raise ValueError(f"a call does not fit its kernel: {failed}, {actual}, {wanted}")


def _kernel(kernel: CompiledKernel, kinds: Iterable[str], payload: _Payload) -> dict[str, Any]:
    interface = kernel.interface
    return {
        "artifacts": {
            kind: [payload.place(part) for part in _parts(kind, kernel.artifacts[kind])]
            for kind in kinds
            if kind in kernel.artifacts
        },
        "symbols": [(symbol.name, symbol.arg, symbol.axis) for symbol in interface.symbols],
        "checks": interface.checks,
        "workspace": interface.workspace,
        "launches": [asdict(launch) for launch in interface.gpu_launches],
    }


def _parts(kind: str, content: bytes) -> tuple[bytes, ...]:
    """An artifact in parts, of which equal ones are stored once: PTX differs in its directives alone."""
    if kind != "ptx":
        return (content,)
    head, directive, rest = content.partition(b".address_size")
    return (head, directive + rest)


def _argument(value: Argument, payload: _Payload) -> dict[str, Any]:
    said: dict[str, Any] = {"dtype": value.dtype, "shape": value.shape}
    return said | ({"seed": value.seed} if value.content is None else {"data": payload.place(value.content)})


def _expected(value: Expected, payload: _Payload) -> dict[str, Any]:
    places = {"wanted": payload.place(value.wanted), "positions": payload.place(value.positions or b"")}
    return value.header() | places


def _forms(kernel: CompiledKernel) -> set[str]:
    names = {
        _FORMS.get(launch.ops[0], launch.ops[0]) for launch in kernel.interface.gpu_launches if launch.ops
    }
    matrix = b"mma.sync" in kernel.artifacts["ptx"]
    return {f"{name} (MMA)" if matrix and name in _MATRIX else name for name in names}


def write_pack(
    folder: Path,
    entries: Sequence[dict[str, Any]],
    contents: Mapping[str, Path],
    facts: Mapping[str, Any],
    jobs: int = 1,
) -> int:
    """Writes bundle, index and modules; bytes of all. ``contents`` are the files of records by case."""
    cases = ordered([entry for entry in entries if "unsupported" not in entry])
    groups, blobs = _placed(cases, contents), list[dict[str, Any]]()
    with (folder / f"{BUNDLE}.part").open("wb") as stream, ThreadPoolExecutor(jobs) as pool:
        writer = BundleWriter(stream, level=_LEVEL)
        for content in pool.map(_compressed, groups):
            index = writer.add(BlobEntry(_NAMESPACE, hashlib.sha256(content).digest(), content))
            blobs.append({"offset": index.offset, "size": index.stored_size, "sha256": digest(content)})
        now = datetime.now(timezone.utc)
        metadata = BundleMetadata(
            namespace=_NAMESPACE,
            created=now,
            targets=tuple(sorted(facts["targets"])),
            selection="GPU replay kit",
        )
        writer.finish(metadata, Signer.generate())
    (folder / f"{BUNDLE}.part").replace(folder / BUNDLE)
    rejected = [entry for entry in entries if "unsupported" in entry]
    index = {"format": FORMAT, "created": now.isoformat(timespec="seconds"), **facts, "blobs": blobs}
    (folder / INDEX).write_text(_lines(index | {"cases": cases, "unsupported": rejected}))
    _write_modules(folder)
    pack = Pack(folder)
    for name in pack.cases:
        pack.record(name)
    return sum(
        path.stat().st_size for path in (folder, *(folder / "lib").rglob("*")) if path.is_file()
    ) + sum((folder / name).stat().st_size for name in (INDEX, BUNDLE, "run.py"))


def _placed(cases: Sequence[dict[str, Any]], contents: Mapping[str, Path]) -> list[list[Path]]:
    """The files of each blob, in the order of ``cases``, which get ``blob`` and their ``place`` in it."""
    groups, filled = list[list[Path]](), _BLOB
    for case in cases:
        path = contents[case["name"]]
        size = path.stat().st_size
        if filled + size > _BLOB:
            groups.append([])
            filled = 0
        case |= {"blob": len(groups) - 1, "place": [filled, size]}
        groups[-1].append(path)
        filled += size
    return groups


def _compressed(paths: Sequence[Path]) -> bytes:
    return lzma.compress(b"".join(path.read_bytes() for path in paths), preset=_PRESET)


def _lines(index: Mapping[str, Any]) -> str:
    """JSON with a line for each member, and for each element of a list."""
    members = list[str]()
    for name, value in index.items():
        text = json.dumps(value)
        if isinstance(value, list) and value:
            text = "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"
        members.append(f"{json.dumps(name)}: {text}")
    return "{" + ",\n".join(members) + "}\n"


def _write_modules(folder: Path) -> None:
    shutil.rmtree(folder / "lib", ignore_errors=True)
    for name in RUNTIME:
        path = folder / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, path)
    (folder / "run.py").write_text(_RUN)


#: What is executed first: a kernel of each of the forms that matter most.
FIRST = (
    "template/pointwise/f32/4x1000",
    "template/softmax/f32/9x512",
    "template/matmul/f32/128x128x64",
    "template/matmul/bf16/128x128x64",
    "attention/bf16/1x2x65x130x128/causal",
)


def ordered(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By value, with ``priority``: ``FIRST``, one case of each form and dtype, what is timed, the others."""
    seen = set[tuple[str, str]]()
    stages = dict[str, int]()
    for entry in entries:
        pairs = {(form, entry["dtype"]) for form in entry["forms"]}
        fresh = entry["kind"] == "test" and not pairs <= seen
        stage = 1 if fresh else 2 if entry["kind"] == "speed" else 3
        stages[entry["name"]] = 0 if entry["name"] in FIRST else stage
        if entry["kind"] == "test":
            seen |= pairs
    rank = {entry["name"]: number for number, entry in enumerate(entries)}
    ranked = sorted(entries, key=lambda entry: (stages[entry["name"]], rank[entry["name"]]))
    return [{**entry, "priority": number} for number, entry in enumerate(ranked)]
