"""Packs as they are written: a blob for each case, the index, and the modules that run them."""

from __future__ import annotations

import json
import lzma
import shutil
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.gpu.kit.programs import Argument, Expected, Program, Source
from benchmarks.gpu.kit.reading import BUNDLE, FORMAT, INDEX, Pack
from benchmarks.gpu.kit.values import digest
from kcache_compiler.errors import CompileFailed, UnsupportedOp
from kcache_compiler.types import CompiledKernel, KernelInterface
from kcache_grpc.bundle import BlobEntry, BundleMetadata, BundleWriter
from kcache_grpc.model.signing import Signer
from kcache_grpc.model.sizes.expression import evaluate, holds

ROOT = Path(__file__).resolve().parents[3]
#: What a pack contains of this repository, so that it runs on a machine without it.
RUNTIME = (
    "benchmarks/__init__.py",
    "benchmarks/gpu/__init__.py",
    "benchmarks/gpu/rivals.py",
    "benchmarks/gpu/kit/__init__.py",
    *(
        f"benchmarks/gpu/kit/{name}.py"
        for name in ("child", "cuda", "devices", "reading", "replay", "results", "sanitize", "speed")
    ),
    "benchmarks/gpu/kit/values.py",
    "benchmarks/gpu/kit/worker.py",
    "kcache_grpc/__init__.py",
    "kcache_grpc/errors.py",
    "kcache_grpc/model/__init__.py",
    "kcache_grpc/model/gpu/__init__.py",
    "kcache_grpc/model/gpu/launch.py",
    "kcache_grpc/model/gpu/target.py",
    "kcache_grpc/model/sizes/__init__.py",
    "kcache_grpc/model/sizes/expression.py",
)
_RUN = '''"""``python run.py --minutes N [--json FILE]``: executes the kernels of this folder on a GPU.

Needs Python 3.10, NumPy and cuda-bindings; ``--help`` lists the options.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "lib"))

from benchmarks.gpu.kit.replay import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "run.py", HERE))
'''
_NAMESPACE = "gpu-kit"
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
    """The index entry of a case and its compressed record; ``unsupported`` in the entry if there is none.

    With ``ir`` the record has LLVM IR too, which the emulator executes.
    """
    entry: dict[str, Any] = {"name": source.name, "group": source.group, "kind": source.kind}
    entry |= {"dtype": source.dtype, **source.facts}
    try:
        program = source.build()
        kernels = _kernels(program, targets)
    except (UnsupportedOp, CompileFailed) as error:
        return entry | {"unsupported": f"{type(error).__name__}: {error}"[:300]}, b""
    if not kernels:
        return entry | {"unsupported": "no target has these choices"}, b""
    kinds = ("ptx", "cubin", "llvm") if ir else ("ptx", "cubin")
    payload = _Payload()
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
    content = lzma.compress(struct.pack("<I", len(text)) + text + payload.bytes())
    forms = sorted({form for kernel in kernels.values() for form in _forms(kernel)})
    return entry | {"targets": [*kernels], "forms": forms, "sha256": digest(content)}, content


def _kernels(program: Program, targets: Sequence[str]) -> dict[str, CompiledKernel]:
    """By target; those whose registers or shared memory the schedule choices do not fit are left out."""
    kernels = dict[str, CompiledKernel]()
    for target in targets:
        try:
            kernel = program.compiled(target)
        except CompileFailed as error:
            if error.stage != "schedule":
                raise
            continue
        _require_fitting(kernel.interface, program)
        kernels[target] = kernel
    return kernels


def _require_fitting(interface: KernelInterface, program: Program) -> None:
    """Arguments and results of all calls have the shapes of the interface. Raises ``ValueError``."""
    for call in program.calls:
        shapes = [argument.shape for argument in call.arguments]
        symbols = {symbol.name: shapes[symbol.arg][symbol.axis] for symbol in interface.symbols}
        failed = [check for check in interface.checks if not holds(check, symbols)]
        made = [
            (kind.dtype, tuple(evaluate(str(dim), symbols) for dim in kind.dims))
            for kind in interface.outputs
        ]
        wanted = [(value.dtype, value.shape) for value in call.expected]
        if failed or made != wanted:
            raise ValueError(f"a call does not fit its kernel: {failed}, {made}, {wanted}")


def _kernel(kernel: CompiledKernel, kinds: Iterable[str], payload: _Payload) -> dict[str, Any]:
    interface = kernel.interface
    return {
        "artifacts": {
            kind: payload.place(kernel.artifacts[kind]) for kind in kinds if kind in kernel.artifacts
        },
        "symbols": [(symbol.name, symbol.arg, symbol.axis) for symbol in interface.symbols],
        "checks": interface.checks,
        "workspace": interface.workspace,
        "launches": [asdict(launch) for launch in interface.gpu_launches],
    }


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
    folder: Path, entries: Sequence[dict[str, Any]], contents: Mapping[str, Path], facts: Mapping[str, Any]
) -> int:
    """Writes bundle, index and modules; bytes of all. ``contents`` are the files of records by case."""
    cases = ordered([entry for entry in entries if "unsupported" not in entry])
    with (folder / f"{BUNDLE}.part").open("wb") as stream:
        writer = BundleWriter(stream, level=_LEVEL)
        for case in cases:
            key = bytes.fromhex(digest(case["name"].encode()))
            index = writer.add(BlobEntry(_NAMESPACE, key, contents[case["name"]].read_bytes()))
            case |= {"offset": index.offset, "size": index.stored_size}
        now = datetime.now(timezone.utc)
        metadata = BundleMetadata(
            namespace=_NAMESPACE,
            created=now,
            targets=tuple(sorted(facts["targets"])),
            selection="GPU replay kit",
        )
        writer.finish(metadata, Signer.generate())
    (folder / f"{BUNDLE}.part").replace(folder / BUNDLE)
    refused = [entry for entry in entries if "unsupported" in entry]
    index = {"format": FORMAT, "created": now.isoformat(timespec="seconds"), **facts, "cases": cases}
    (folder / INDEX).write_text(json.dumps(index | {"unsupported": refused}, indent=1) + "\n")
    _write_modules(folder)
    pack = Pack(folder)
    for name in pack.cases:
        pack.record(name)
    return sum(
        path.stat().st_size for path in (folder, *(folder / "lib").rglob("*")) if path.is_file()
    ) + sum((folder / name).stat().st_size for name in (INDEX, BUNDLE, "run.py"))


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
    made = sorted(entries, key=lambda entry: (stages[entry["name"]], rank[entry["name"]]))
    return [{**entry, "priority": number} for number, entry in enumerate(made)]
