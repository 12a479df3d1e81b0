"""The replay kit's own calls of the CUDA driver, with a driver that runs nothing: no result is right.

The kit runs from its pack, without any package but NumPy and cuda-bindings.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax")

from benchmarks.gpu.kit import report
from benchmarks.gpu.kit.packing.programs import Program
from benchmarks.gpu.kit.runtime.reading import Pack
from benchmarks.gpu.kit.runtime.sanitize import TOOLS, findings, representatives
from tests.gpu.kit.packing import packs
from tests.gpu.test_choices import BY_NAME
from tests.repository.sources import ROOT
from tests.runtime.gpu.recorded import driver_folder

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None,
    reason="no cuda-bindings: pip install 'kcache-grpc[cuda]'",
)

#: Nothing else but the standard library may be imported.
BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        known = {"numpy", "cuda", "benchmarks", "kcache_grpc", "usercustomize"}
        ours = root in known or root in sys.stdlib_module_names or root.startswith("_")
        if not ours or root == "_cffi_backend":
            raise ImportError(f"{name} is not part of the kit")

sys.meta_path.insert(0, Blocker())
"""
#: As NVIDIA's, but for what it finds.
SANITIZER = """#!{python}
import subprocess, sys
arguments = sys.argv[1:]
assert arguments[0::2][:3] == ["--tool", "--error-exitcode", "--target-processes"]
tool, code, rest = arguments[1], int(arguments[3]), arguments[6:]
print("========= COMPUTE-SANITIZER")
done = subprocess.run(rest)
assert done.returncode in (0, 1), done.returncode
if tool == "racecheck":
    print("========= Error: Race reported between Write access at launch_0+0x1f0 in launch_0")
    print("=========     and Read access at launch_0+0x230 in launch_0 [64 hazards]")
    print("========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)")
    sys.exit(code)
print("========= ERROR SUMMARY: 0 errors")
"""
CASES = ("template/pointwise/f32/dynamic", "template/batched/bf16/2x33x40x24", "overwriting/2/dynamic")


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some cases, one whose results are NaN, and one that is timed, of which no value is compared."""
    folder = tmp_path_factory.mktemp("kit") / "pack"
    case = packs.sources()["ops/add-i32"]

    def build() -> Program:
        program = case.build()
        (call,) = program.calls
        nothing = tuple(replace(value, wanted=b"", positions=b"") for value in call.expected)
        return replace(program, calls=(replace(call, expected=nothing),))

    facts = {"moved": 1 << 16, "flops": 0}
    timed = replace(case, name="softmax/512", kind="speed", facts=facts, build=build)
    packs.write(folder, [*(packs.sources()[name] for name in CASES), packs.all_nan(), timed])
    return folder


def run(pack: Path, tmp_path: Path, *options: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """``run.py`` of the pack, from elsewhere."""
    (tmp_path / "blocked").mkdir(exist_ok=True)
    (tmp_path / "blocked/sitecustomize.py").write_text(BLOCKER)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUDA")}
    environment |= {"PYTHONPATH": str(tmp_path / "blocked"), "LD_LIBRARY_PATH": str(driver_folder())}
    environment |= {"RECORDER_LOG": str(tmp_path / "calls.log")}
    environment["PATH"] = f"{path}:{environment['PATH']}"
    command = [sys.executable, str(pack / "run.py"), "--json", str(tmp_path / "results.jsonl"), *options]
    return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240)


def lines(tmp_path: Path, kind: str) -> list[Any]:
    records = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    return [line[kind] for line in records if kind in line]


def test_kernels_are_launched_and_judged_by_the_modules_of_the_pack_alone(pack: Path, tmp_path: Path) -> None:
    done = run(pack, tmp_path)
    assert done.returncode == 1, done.stderr
    (session,) = lines(tmp_path, "session")
    assert (session["device"], session["target"], session["executor"]) == ("Recorded GPU", "sm_90", "")
    results = {result["case"]: result for result in lines(tmp_path, "result")}
    assert {name: result["status"] for name, result in results.items()} == {
        **dict.fromkeys((*CASES, "nan"), "wrong"),
        "softmax/512": "right",
    }
    (difference,) = results["nan"]["differences"]
    assert (difference["got"], difference["wanted"]) == ("nothing written", "nan")
    assert (difference["compared"], difference["wrong"], difference["unwritten"]) == (15, 15, 15)
    timed = results["softmax/512"]
    assert set(timed["us"]) == {"ours", "copy"}
    assert timed["image"] in ("cubin", "ptx")
    calls = (tmp_path / "calls.log").read_text().splitlines()
    assert sum("cuLaunchKernel launch_0 grid=" in call for call in calls) > 60
    taken = sum(call.startswith("cuMemAllocAsync ") for call in calls)
    assert sum(call.startswith("cuMemFreeAsync ") for call in calls) == taken > 60
    assert calls.count("cuModuleUnload") == sum("cuModuleLoadDataEx" in call for call in calls)
    text = report.page(report.Run.last(tmp_path / "results.jsonl"))
    assert "Recorded GPU, compute capability 9.0" in text
    assert f"| {CASES[0]} | wrong | " in text
    assert "| softmax/512 | " in text
    assert "Not run on hardware" not in text


def test_a_kernel_of_each_form_runs_under_each_tool(pack: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "compute-sanitizer").write_text(SANITIZER.format(python=sys.executable))
    (folder / "compute-sanitizer").chmod(0o755)
    done = run(pack, tmp_path, "--sanitize", "--only", "batched", path=str(folder))
    assert done.returncode == 1, done.stderr
    runs = lines(tmp_path, "sanitizer")
    assert [(said["form"], said["case"]) for said in runs] == [("matmul (MMA)", CASES[1])] * len(TOOLS)
    forms = {form for case in Pack(pack).cases.values() for form in case["forms"] if case["kind"] == "test"}
    assert set(representatives(Pack(pack))) == forms
    assert {said["tool"]: said["status"] for said in runs} == {
        **dict.fromkeys(TOOLS, "clean"),
        "racecheck": "found",
    }
    race = next(said for said in runs if said["tool"] == "racecheck")
    assert race["summary"] == "1 hazard displayed (1 error, 0 warnings)"
    assert race["lines"][0].startswith("Error: Race reported between Write access")


def test_without_a_sanitizer_a_run_says_so(pack: Path, tmp_path: Path) -> None:
    done = run(pack, tmp_path, "--sanitize")
    if done.returncode != 2:
        pytest.skip("this machine has CUDA's toolkit")
    assert "there is no compute-sanitizer" in done.stderr


def test_an_older_gpu_and_none(pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORDER_CAPABILITY", "80")
    done = run(pack, tmp_path)
    assert (done.returncode, "none for this GPU" in done.stderr) == (2, True)
    monkeypatch.delenv("RECORDER_CAPABILITY")
    monkeypatch.setenv("RECORDER_DEVICES", "0")
    assert run(pack, tmp_path).returncode == 3


def test_a_newer_gpu_gets_ptx_and_the_parameters_of_each_call(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORDER_CAPABILITY", "100")
    run(pack, tmp_path, "--only", CASES[0])
    calls = (tmp_path / "calls.log").read_text().splitlines()
    assert [call for call in calls if "ModuleLoad" in call] == ["cuModuleLoadDataEx ptx"] * 9
    launches = [call.partition(" params= ")[2].split() for call in calls if "cuLaunchKernel" in call]
    sizes = [sorted(map(int, params))[:2] for params in launches]
    assert sizes == [sorted(shape) for shape in BY_NAME["pointwise"].sizes]
    assert all(int(address) % 16 == 0 for params in launches for address in sorted(params, key=int)[2:])


def test_findings_of_memcheck_are_kept() -> None:
    said = findings(
        "========= COMPUTE-SANITIZER\n"
        "========= Invalid __global__ read of size 4 bytes\n"
        "=========     at launch_0+0x150\n"
        "=========     by thread (255,0,0) in block (3,0,0)\n"
        "=========     Address 0x7f1c8a000400 is out of bounds\n"
        "========= ERROR SUMMARY: 1 error\n",
        86,
    )
    assert (said["status"], said["summary"]) == ("found", "1 error")
    assert said["lines"][0] == "Invalid __global__ read of size 4 bytes"
    assert findings("Error: no such tool", 1)["status"] == "failed"


def test_the_page_says_that_nothing_ran_until_there_are_results() -> None:
    text = report.PAGE.read_text()
    assert text == report.page(None) or "## Results" in text


def test_what_an_emulator_gave_is_not_reported(tmp_path: Path) -> None:
    session = {
        "session": {"executor": "emulated_device.py", "pack": "", "device": "emulator", "target": "sm_90"}
    }
    (tmp_path / "results.jsonl").write_text(json.dumps(session) + "\n")
    assert report.main([str(tmp_path / "results.jsonl"), "--page", str(tmp_path / "page.md")]) == 2
    assert not (tmp_path / "page.md").exists()
    assert ROOT in report.PAGE.parents
