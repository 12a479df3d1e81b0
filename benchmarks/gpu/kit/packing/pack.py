"""``pack OUT [--targets LIST] [--sample N]``: compiles the test set and the benchmark set into a folder.

The folder is what ``run`` takes: at most 40 MB, without a compiler. A pack that was interrupted continues
where it ended.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.gpu.kit.packing.programs import Source
from benchmarks.gpu.kit.packing.writing import FIRST, ROOT, packed, write_pack
from benchmarks.gpu.kit.runtime.values import digest
from kcache_compiler.llvm.ptxas import find_ptxas
from kcache_compiler.versions import CODE_VERSION, GPU_CODE_VERSION

TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120")
MAX_BYTES = 40 << 20
#: Cases between two lines of progress, and of one task at most, unless they share work.
_PRINTED, _MOST_RELATED = 50, 4


@cache
def sources() -> tuple[Source, ...]:
    """All cases, in one order in every process."""
    from benchmarks.gpu.kit.packing.samples import benchmark_set
    from benchmarks.gpu.kit.packing.sources import test_set

    return (*test_set(), *benchmark_set())


def chosen(sample: int, only: str) -> list[int]:
    """Numbers of sources: those whose name contains ``only``, and of these about ``sample`` if it is not 0,
    spread evenly in each group, with the first ones.
    """
    numbers = [number for number, source in enumerate(sources()) if only in source.name]
    if not 0 < sample < len(numbers):
        return numbers
    step = len(numbers) / sample
    groups = dict[str, int]()
    kept = set[int]()
    for number in numbers:
        source = sources()[number]
        count = groups[source.group] = groups.get(source.group, -1) + 1
        if source.name in FIRST or int(count / step) != int((count - 1) / step) or count == 0:
            kept.add(number)
    return sorted(kept)


def main(arguments: Sequence[str]) -> int:
    """Run the command line; 1 if the pack is too large, or a kernel spills registers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.kit pack", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--sample", type=int, default=0, help="about so many cases")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--ir", action="store_true", help="include LLVM IR, which the emulator executes")
    options = parser.parse_args(arguments)
    targets = options.targets.split(",")
    if find_ptxas() is None:
        print("without ptxas a pack has no cubins: pip install 'kcache-grpc[cubin]'", file=sys.stderr)
    began = time.monotonic()
    facts = {"targets": targets, "commit": _commit(), "code_versions": [CODE_VERSION, GPU_CODE_VERSION]}
    work = _work_folder(options.out, {**facts, "ir": options.ir})
    numbers = chosen(options.sample, options.only)
    entries = _entries(numbers, targets, options.ir, work, options.jobs)
    contents = {entry["name"]: _record_path(work, entry["name"]) for entry in entries}
    size = write_pack(options.out, entries, contents, facts, options.jobs)
    rejected = sum("unsupported" in entry for entry in entries)
    counts = f"{len(entries) - rejected} cases, {rejected} unsupported, for {', '.join(targets)}"
    print(f"{counts}: {size / 1e6:.1f} MB, {time.monotonic() - began:.0f} s")
    problems = _spilling(entries)
    if size > MAX_BYTES:
        problems.append(f"the pack is larger than {MAX_BYTES >> 20} MiB: choose fewer targets, or --sample")
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 1
    shutil.rmtree(work)
    return 0


def _spilling(entries: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each kernel that spills; says how many were assembled."""
    lines = [
        f"{entry['name']}: {kernel} spills {size} bytes"
        for entry in entries
        for kernel, size in entry.get("spills", {}).items()
    ]
    assembled = sum(entry.get("assembled", 0) for entry in entries)
    print(f"ptxas assembled {assembled} kernels; {len(lines)} of them spill registers")
    return lines


def _entries(
    numbers: Sequence[int], targets: Sequence[str], ir: bool, work: Path, jobs: int
) -> list[dict[str, Any]]:
    """Index entries in the order of ``numbers``; those of an earlier run are read."""
    done = {
        number: json.loads(path.read_text())
        for number in numbers
        if (path := _entry_path(work, number)).exists()
    }
    left = [number for number in numbers if number not in done]
    if done:
        print(f"{len(done)} of {len(numbers)} cases are packed already", flush=True)
    began = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max(1, min(jobs, len(left))), context) as pool:
        running = [pool.submit(_pack_some, part, targets, ir, str(work)) for part in _related(left)]
        count = printed = 0
        for future in as_completed(running):
            try:
                done |= (entries := future.result())
            except Exception:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            count += len(entries)
            if count >= printed + _PRINTED or count == len(left):
                passed, printed = time.monotonic() - began, count
                rest = passed / count * (len(left) - count)
                print(f"[{count}/{len(left)}] {passed:.0f} s, about {rest:.0f} s more", flush=True)
    return [done[number] for number in numbers]


def _related(numbers: Sequence[int]) -> list[list[int]]:
    """The numbers in parts, each for one process."""
    parts, last = list[list[int]](), ("", "")
    for number in numbers:
        source = sources()[number]
        stem = source.shares, source.name.rpartition("/")[0] if not source.shares else ""
        if stem != last or (len(parts[-1]) == _MOST_RELATED and not source.shares):
            parts.append([])
        parts[-1].append(number)
        last = stem
    return parts


def _pack_some(
    numbers: Sequence[int], targets: Sequence[str], ir: bool, work: str
) -> dict[int, dict[str, Any]]:
    """Writes the records and the index entries of some cases; returns the entries."""
    folder, entries = Path(work), dict[int, dict[str, Any]]()
    for number in numbers:
        source = sources()[number]
        try:
            entries[number], content = packed(source, targets, ir)
        except Exception as error:
            raise RuntimeError(f"{source.name} cannot be packed") from error
        _replace(_record_path(folder, source.name), content)
        _replace(_entry_path(folder, number), json.dumps(entries[number]).encode())
    return entries


def _replace(path: Path, content: bytes) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.replace(path)


def _entry_path(work: Path, number: int) -> Path:
    return work / f"{number}.json"


def _record_path(work: Path, name: str) -> Path:
    return work / f"{digest(name.encode())}.record"


def _work_folder(out: Path, state: dict[str, Any]) -> Path:
    """The folder of unfinished packs, empty unless it is of the same commit, targets and versions."""
    work, text = out / "work", json.dumps(state)
    if not (work / "state").exists() or (work / "state").read_text() != text:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        (work / "state").write_text(text)
    return work


def _commit() -> str:
    """The commit that is packed; with ``-dirty`` if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    except OSError:
        return ""
    return done.stdout.strip()
