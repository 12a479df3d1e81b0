"""The replay kit with the emulator in the place of a GPU: right, broken, hanging and crashing kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax")

from benchmarks.gpu.kit.runtime.reading import Pack
from benchmarks.gpu.kit.runtime.results import read
from kcache_compiler.llvm.ptxas import find_ptxas
from kcache_grpc.bundle import open_bundle
from tests.gpu.kit.packing import packs
from tests.repository.sources import ROOT

EMULATOR = ROOT / "tests/gpu/harness/emulated_device.py"
#: The process that executes it ends.
CRASHING = """
import os
from tests.gpu.harness.emulated_device import EmulatedDevice

class Crashing(EmulatedDevice):
    def execute(self, execution):
        if 37 * 8 in execution.output_sizes:
            os._exit(9)
        return super().execute(execution)

def open_device():
    return Crashing()
"""


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kit") / "pack"
    chosen = [packs.sources()[name] for name in packs.RIGHT]
    broken = [packs.broken(mutant) for mutant in (*packs.MUTANTS, packs.HANGING, packs.OUTSIDE)]
    packs.write(folder, [*chosen, packs.all_nan(), *broken])
    return folder


@pytest.fixture(scope="module", autouse=True)
def _emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Children share the executables that they build."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KCACHE_EMULATOR_FOLDER", str(tmp_path_factory.mktemp("emulator")))
        yield


def run(
    pack: Path, results: Path, *options: str, driver: Path = EMULATOR
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gpu.kit", "run", str(pack), "--json", str(results)]
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "compiler", ROOT / "migrations")))
    return subprocess.run(
        [*command, "--driver", str(driver), *options],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )


def lines(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()]


def statuses(results: Path) -> dict[str, str]:
    results_by_line = [line["result"] for line in lines(results) if "result" in line]
    return {result["case"]: result["status"] for result in results_by_line}


def test_a_pack_is_a_bundle_that_the_kit_reads_without_zstd(pack: Path) -> None:
    opened = Pack(pack)
    with open_bundle(pack / "kernels.kcb") as bundle:
        said = [blob["sha256"] for blob in opened.index["blobs"]]
        assert [entry.sha256.hex() for entry in bundle.entries] == said
    for name, case in opened.cases.items():
        assert opened.record(name).kernel("sm_90").artifact("ptx"), name
        assert case["assembled"] == 0 or find_ptxas() is not None


def test_mutants_are_wrong_a_hanging_kernel_is_timed_out_and_the_rest_is_right(
    pack: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results.jsonl"
    assert run(pack, results, "--only", "ops/compare").returncode == 0  # compiles the emulator
    # Of two cases alone, since the case that hangs computes until the limit.
    assert run(pack, results, "--only", "transpose", "--limit", "3").returncode == 1
    assert statuses(results)[packs.HANGING.name] == "timed out"
    done = run(pack, results, "--minutes", "4")
    assert done.returncode == 1, done.stderr
    wanted = dict.fromkeys((*packs.RIGHT, "nan"), "right")
    wanted |= {mutant.name: "wrong" for mutant in packs.MUTANTS}
    wanted |= {packs.HANGING.name: "timed out", packs.OUTSIDE.name: "failed"}
    assert statuses(results) == wanted
    assert "out of bounds" in done.stdout
    assert lines(results)[-1] == {"end": "done", "left": 0}
    again = run(pack, results)
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "nothing was left")


def test_a_run_ends_in_time_and_the_next_one_continues(pack: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    done = run(pack, results, "--minutes", "0.001")
    assert done.returncode == 0
    assert "the time is over" in done.stdout
    results.write_text(results.read_text() + '{"result": {"case": "ops/comp')  # cut by a crash
    assert run(pack, results, "--only", "ops/compare").returncode == 0
    names = [line["result"]["case"] for _, line in read(results) if "result" in line]
    assert names == ["ops/compare-f32"]


def test_a_kernel_that_ends_its_process_leaves_the_others_alone(pack: Path, tmp_path: Path) -> None:
    driver, results = tmp_path / "crashing.py", tmp_path / "results.jsonl"
    driver.write_text(CRASHING)
    assert run(pack, results, "--only", "ops/", "--limit", "60", driver=driver).returncode == 1
    outcomes = statuses(results)
    assert outcomes["ops/multiply-c64"] == "crashed"
    assert outcomes["ops/sort-f32"] == "right"


def test_without_a_gpu_a_run_says_so(pack: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(pack / "run.py"), "--json", str(tmp_path / "results.jsonl")],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode != 3:
        pytest.skip("this machine has a GPU")
    assert "no GPU: nothing was executed" in done.stderr
    assert not (tmp_path / "results.jsonl").exists()
