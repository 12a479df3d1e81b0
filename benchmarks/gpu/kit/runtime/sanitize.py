"""Cases under NVIDIA's ``compute-sanitizer``: one kernel of each form under each tool."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.kit.runtime.child import command, environment
from benchmarks.gpu.kit.runtime.reading import Pack
from benchmarks.gpu.kit.runtime.results import Results

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
#: Neither a status of a test run nor of the sanitizer otherwise.
FOUND = 86
_SECONDS = 120.0
_SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (.*)$", re.MULTILINE)
_LINE = re.compile(r"^=+ (?!COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY)(\S.*)$", re.MULTILINE)
#: Lines of findings that are kept.
_KEPT = 20


def find_sanitizer() -> str | None:
    """The path of the executable; None where CUDA's toolkit is not installed."""
    return shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")


def sanitizer_command(sanitizer: str, tool: str, program: Sequence[str]) -> list[str]:
    """``program`` under a tool; it ends with ``FOUND`` if the tool finds something."""
    options = ["--tool", tool, "--error-exitcode", str(FOUND), "--target-processes", "application-only"]
    return [sanitizer, *options, *program]


def findings(output: str, code: int) -> dict[str, Any]:
    """Status, summary and the first findings of a tool's run that ended with ``code``."""
    summaries = _SUMMARY.findall(output)
    status = {0: "clean", FOUND: "found"}.get(code, "failed")
    lines = _LINE.findall(output)[:_KEPT] if status != "clean" else []
    if status == "failed":
        lines = lines or output.splitlines()[-_KEPT:]
    return {"status": status, "summary": summaries[-1] if summaries else "", "lines": lines}


def representatives(pack: Pack, only: str = "") -> dict[str, str]:
    """Form -> its first case that no time is taken of, among those whose name contains ``only``."""
    by_form = dict[str, str]()
    for case in sorted(pack.cases.values(), key=lambda case: case["priority"]):
        if case["kind"] == "test" and only in case["name"]:
            for form in case["forms"]:
                by_form.setdefault(form, case["name"])
    return by_form


def sanitized(pack: Pack, target: str, driver: str, only: str, results: Results, end: float) -> int:
    """Runs the tools until ``end`` on ``time.monotonic``'s clock; 1 if one finds something, 2 without one."""
    sanitizer = find_sanitizer()
    if sanitizer is None:
        print("there is no compute-sanitizer: it comes with CUDA's toolkit", file=sys.stderr)
        return 2
    worst = 0
    for form, case in representatives(pack, only).items():
        for tool in TOOLS:
            left = end - time.monotonic()
            if left <= 0:
                results.add({"end": "time"})
                return worst
            worker = command(pack.folder, driver, "--case", case, "--target", target)
            said = _run(sanitizer_command(sanitizer, tool, worker), min(left, _SECONDS))
            results.add({"sanitizer": {"tool": tool, "form": form, "case": case, **said}})
            print(f"{tool} {form} ({case}): {said['status']} {said['summary']}", flush=True)
            worst |= int(said["status"] != "clean")
    return worst


def _run(line: list[str], seconds: float) -> dict[str, Any]:
    try:
        done = subprocess.run(
            line,
            env=environment(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return {"status": "timed out", "summary": f"not ended within {seconds:.0f} s", "lines": []}
    return findings(done.stdout + done.stderr, done.returncode)
