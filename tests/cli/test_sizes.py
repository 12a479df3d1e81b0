"""--dynamic and --symbols, and what ``show`` says of the kernels of a key."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import ADD
from tests.cli.conftest import Run

SUBTRACT = ADD.replace("stablehlo.add", "stablehlo.subtract")


def program(folder: Path, rows: int) -> Path:
    path = folder / f"subtract-{rows}.mlir"
    path.write_text(SUBTRACT.replace("4x8", f"{rows}x8"))
    return path


def test_kernels_for_many_sizes_are_listed_under_their_key(served: Run, tmp_path: Path) -> None:
    here = ("--namespace", "sizes")
    static = served("compile", program(tmp_path, 4), *here, "--json").json()
    assert (static["guard"], list(static["inputs"].values())) == ("", ["f32[4,8]"] * 2)
    evidence = ("--evidence", program(tmp_path, 4))
    requirements = ("--dynamic", "yes", "--symbols", "0.0:min=2:max=64:multiple_of=2", *evidence)
    guarded = served("compile", program(tmp_path, 6), *requirements, *here, "--json").json()
    guard = "2 <= s0 & s0 <= 64 & s0 % 2 == 0"
    assert (guarded["guard"], list(guarded["inputs"].values())) == (guard, ["f32[s0,8]"] * 2)
    assert guarded["key"] == static["key"]
    auto = served("compile", program(tmp_path, 8), "--dynamic", "auto", *here, "--json").json()
    assert (auto["origin"], auto["kernel_digest"]) == ("remote", guarded["kernel_digest"])
    shown = served("show", str(static["key"]), *here, "--json").json()
    assert [(kernel["arg_spec"], kernel["guard"]) for kernel in shown["kernels"]] == [
        ("f32[s0,8];f32[s0,8]", guard),
        ("f32[4,8];f32[4,8]", ""),
    ]
    page = served("show", str(static["key"]), *here).out
    assert guard in page
    assert guarded["kernel_digest"][:12] in page
    assert guard in served("compile", program(tmp_path, 6), *requirements, *here).out


def test_a_dynamic_kernel_runs_on_the_arrays_that_are_given(served: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
    files = [word for _ in range(2) for word in ("--input", str(tmp_path / "a.npy"))]
    other = tmp_path / "other.mlir"
    other.write_text(SUBTRACT.replace("4x8", "6x9"))
    requirements = ("--dynamic", "yes", "--evidence", other, "--output", tmp_path / "out", "--json")
    done = served("run", program(tmp_path, 4), *files, *requirements).json()
    assert [entry["shape"] for entry in done["arguments"] + done["results"]] == ["3x4"] * 3
    assert not np.load(tmp_path / "out" / "result_0.npy").any()


@pytest.mark.issue(number=19, point=2)
@pytest.mark.filterwarnings("default:dynamic=.assume.:kcache_grpc.KcacheWarning")
def test_other_sizes_need_evidence_or_a_warning(served: Run, tmp_path: Path) -> None:
    rejected = served("compile", program(tmp_path, 4), "--dynamic", "yes", "--json")
    assert rejected.code == 5
    assert "axis 0 of argument 0 (s0) needs evidence" in rejected.error()["message"]
    assert "--evidence FILE" in rejected.error()["message"]
    assumed = served("compile", program(tmp_path, 4), "--dynamic", "assume", "--json")
    assert "results at other sizes are wrong" in assumed.err
    assert list(assumed.json()["inputs"].values()) == ["f32[s0,s1]"] * 2


@pytest.mark.parametrize(
    ("requirements", "says"),
    [
        (["--dynamic", "perhaps"], "use one of no, yes, auto"),
        (["--symbols", "0.0"], "--dynamic yes, auto or assume"),
        (["--dynamic", "yes", "--symbols", "0"], "'0' is not like 0.1"),
        (["--dynamic", "yes", "--symbols", "0.0:low=2"], "is not like 0.1"),
        (["--dynamic", "yes", "--symbols", "0.0,0.0"], "names an axis twice"),
        (["--dynamic", "yes", "--symbols", "0.0:min=9:max=2"], "no size meets"),
        (["--dynamic", "yes", "--symbols", "0.0,0.7"], "axis 7 of argument 0, which has 2 axes"),
        (["--dynamic", "auto", "--symbols", "0.0:min=5"], "axis 0 of argument 0 (s0) is 4 in the program"),
    ],
)
def test_wishes_that_cannot_be_are_rejected(
    served: Run, tmp_path: Path, requirements: list[str], says: str
) -> None:
    done = served("compile", program(tmp_path, 4), *requirements, "--json")
    assert done.code == 5
    error = done.error()
    assert error["type"] == "ArgumentError"
    assert says in error["message"]
