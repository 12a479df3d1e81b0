"""``report [FILE]``: writes the documentation page of the last run in a file of results.

Without a file the page states that nothing has run on hardware.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.kit.runtime.results import read

PAGE = Path(__file__).resolve().parents[3] / "docs/results/gpu-hardware.md"
STATUSES = ("right", "wrong", "failed", "timed out", "crashed")
_HEAD = """# GPU hardware

Kernels that the [replay kit](../internals/gpu.md#replay-kit) executed on GPUs.
`python -m benchmarks.gpu.kit report FILE` writes this page from the results of a run.
"""
_NOTHING = "\n**Not run on hardware.** No GPU has executed a kernel yet: there is no file of results.\n"
#: Differences that are shown.
_SHOWN = 40
_RIVALS = ("eager", "inductor", "sdpa", "triton")


def main(arguments: Sequence[str]) -> int:
    """Run the command line; 1 if a result is not right or the sanitizer found something, 2 if the file has no
    run on a GPU.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.kit report", description=__doc__)
    parser.add_argument("json", type=Path, nargs="?")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    if options.json is None:
        options.page.write_text(page(None))
        return 0
    try:
        run = Run.last(options.json)
        text = page(run)
    except (OSError, LookupError, TypeError, AttributeError) as error:
        print(f"{options.json} is no file of results: {error!r}", file=sys.stderr)
        return 2
    if run is None:
        print(f"{options.json} has no run on a GPU", file=sys.stderr)
        return 2
    options.page.write_text(text)
    return int(not run.right())


class Run:
    """The last results of all cases on one device, with one pack."""

    def __init__(self, session: Mapping[str, Any], name: str) -> None:
        self.session, self.name = session, name
        self.results = dict[str, dict[str, Any]]()
        self.sanitizer = dict[tuple[str, str], dict[str, Any]]()
        self.left = 0

    @classmethod
    def last(cls, path: Path) -> Run | None:
        """The run of the last session on a GPU, with what earlier sessions of it wrote; None if there is
        none.
        """
        lines = [(session, line) for session, line in read(path) if session.get("executor") == ""]
        if not lines:
            return None
        run = cls(lines[-1][0], path.name)
        for session, line in lines:
            if all(session[key] == run.session[key] for key in ("pack", "device", "target")):
                run._take(line)
        return run

    def _take(self, line: Mapping[str, Any]) -> None:
        if "result" in line:
            self.results[line["result"]["case"]] = line["result"]
        elif "sanitizer" in line:
            said = line["sanitizer"]
            self.sanitizer[said["form"], said["tool"]] = said
        self.left = line.get("left", self.left)

    def counts(self) -> Counter[str]:
        """Cases by status."""
        return Counter(result["status"] for result in self.results.values())

    def right(self) -> bool:
        """Whether all results are right, and the sanitizer found nothing."""
        statuses = {said["status"] for said in self.sanitizer.values()}
        return set(self.counts()) <= {"right"} and statuses <= {"clean"}

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Results in the order of the run."""
        return [result for result in self.results.values() if result["kind"] == kind]


def page(run: Run | None) -> str:
    """The page, for a run or for none."""
    if run is None:
        return _HEAD + _NOTHING
    parts = [_HEAD, _origin(run), _judgement(run), _differences(run), _speed(run), _sanitizer(run)]
    return "\n".join(part for part in parts if part)


def _origin(run: Run) -> str:
    session = run.session
    rows = [
        ("device", f"{session['device']}, compute capability {session['capability']}"),
        ("driver", f"CUDA {session['cuda']}"),
        ("kernels", f"for {session['target']}, commit `{session['commit']}`, pack `{session['pack'][:16]}`"),
        ("date", session["date"]),
        ("Python, NumPy", f"{session['python']}, {session['numpy']}"),
        ("results", f"`{run.name}`"),
    ]
    if run.left:
        rows.append(("not executed", f"{run.left} cases: the time was over"))
    return _table(("", ""), rows)


def _judgement(run: Run) -> str:
    groups = dict[str, Counter[str]]()
    for result in run.results.values():
        for form in result["forms"]:
            groups.setdefault(form, Counter())[result["status"]] += 1
    total = [("**all cases**", *(str(run.counts()[status]) for status in STATUSES))]
    rows = [(form, *(str(counts[status]) for status in STATUSES)) for form, counts in sorted(groups.items())]
    note = "A case counts in each form that its launches have.\n"
    return f"## Results\n\n{note}\n{_table(('form', *STATUSES), [*total, *rows])}"


def _differences(run: Run) -> str:
    wrong = [result for result in run.results.values() if result["status"] != "right"]
    if not wrong:
        return ""
    rows = [(result["case"], result["status"], _cell(_reason(result))) for result in wrong[:_SHOWN]]
    more = f"\n{len(wrong) - _SHOWN} more are in the file of results.\n" if len(wrong) > _SHOWN else ""
    return f"## Not right\n\n{_table(('case', 'status', 'what'), rows)}{more}"


def _reason(result: Mapping[str, Any]) -> str:
    if not result["differences"]:
        return result.get("error", "")
    first = result["differences"][0]
    at = f"{first['wrong']} of {first['compared']} values of output {first['output']}"
    return f"{at}; at {first['first']} {first['got']} in place of {first['wanted']}"


def _speed(run: Run) -> str:
    timed = [result for result in run.of_kind("speed") if "us" in result]
    if not timed:
        return ""
    bandwidth = statistics.median(result["copy_gb_per_s"] for result in timed)
    rows = [
        (
            result["case"],
            f"{result['us']['ours']:.1f}",
            "{:.1f} to {:.1f}".format(*result["spread_us"]["ours"]),
            f"{result['share_of_copy']:.2f}",
            f"{result['tflops']:.1f}" if result["tflops"] else "",
            *(_ratio(result["us"], rival) for rival in _RIVALS),
        )
        for result in timed
    ]
    head = ("case", "us", "least to most", "of copy", "TFLOP/s", *(f"x {rival}" for rival in _RIVALS))
    text = (
        "Medians by events of the GPU, in turns. `of copy`: the time of a copy inside the memory, of as many "
        "bytes as the case must move, divided by the case's time. `x`: the time of a rival divided by it. "
        f"The median bandwidth of copies is {bandwidth:.0f} GB/s, read and written.\n"
    )
    return f"## Speed\n\n{text}\n{_table(head, rows)}"


def _ratio(times: Mapping[str, float], rival: str) -> str:
    return f"{times[rival] / times['ours']:.2f}" if rival in times else ""


def _sanitizer(run: Run) -> str:
    if not run.sanitizer:
        return ""
    rows = [
        (form, said["case"], tool, said["status"], _cell(said["summary"]))
        for (form, tool), said in run.sanitizer.items()
    ]
    return f"## compute-sanitizer\n\n{_table(('form', 'case', 'tool', 'status', 'summary'), rows)}"


def _cell(text: str) -> str:
    return " ".join(text.split())[:300].replace("|", "\\|")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
