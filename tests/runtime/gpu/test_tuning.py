"""The tuner on a GPU: what it times, keeps and takes, with a driver that runs nothing and has a clock.

That each choice is right is ``tests/gpu/test_choices.py``; how fast it is, only a GPU can say.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.runtime.gpu.recorded import run

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None,
    reason="no cuda-bindings: pip install 'kcache-grpc[cuda]'",
)


@pytest.mark.long
def test_the_fastest_schedule_by_the_clock_of_the_gpu_is_kept_and_taken(tmp_path: Path) -> None:
    said, calls = run("tunes", tmp_path, "tuned")
    assert said["device"] == "Recorded GPU"
    assert said["schedule"] == said["recorded"] == "gpu_items:4,gpu_threads:512"
    # 8192 elements, 4 of them a thread's chunk: 8 blocks of 256, a microsecond each.
    assert said["timings"] == {
        "": 8000,
        "gpu_items:4": 2000,
        "gpu_items:4,gpu_threads:128": 4000,
        "gpu_items:4,gpu_threads:512": 1000,
    }
    assert (said["blocks"], said["new"], said["rejected"]) == ("1", [4, 0], {})
    assert said["opened"] == [
        ["s0=4096", "", 4000],
        ["s0=4096", "gpu_threads:512", 2000],
        ["s0=65536", "", 64000],
        ["s0=65536", "gpu_threads:512", 32000],
    ]
    assert calls.count("cuStreamBeginCapture mode=1") == calls.count("cuStreamEndCapture")
    assert calls.count("cuStreamDestroy") == sum(name.startswith("cuStreamCreate") for name in calls)
    assert calls.count("cuGraphExecDestroy") == sum(name.startswith("cuGraphInst") for name in calls)
    assert calls.count("cuEventDestroy") == 2 * calls.count("cuGraphLaunch")


def test_without_a_gpu_nothing_is_tuned_and_recorded_is_the_default(tmp_path: Path) -> None:
    said, _ = run("rejected", tmp_path, "tuned", devices=0)
    assert "kernels for a GPU have no choice grain" in said["sm_90"]
    assert "kernels for a CPU have no choice gpu_items" in said["host"]
    assert "there is no GPU 0: the driver finds 0" in said["device"]
    assert said["recorded"] == ""
