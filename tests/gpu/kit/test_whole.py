"""A whole pack, made and replayed on the emulator: about 15 minutes on two cores."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("jax")

from benchmarks.gpu.kit.packing.pack import TARGETS
from benchmarks.gpu.kit.runtime.reading import Pack
from tests.gpu.kit import emulated


@pytest.mark.long
def test_no_case_of_a_pack_is_wrong_on_the_emulator(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pack"
    assert emulated.main([str(folder)]) == 0, capfd.readouterr().out[-4000:]
    said = capfd.readouterr().out
    for target in TARGETS:
        cases = emulated.cases_of(Pack(folder), target)
        tests = [case for case in cases if case["kind"] == "test"]
        assert f"{target}: {len(tests)} of {len(cases)} cases were executed: {len(tests)} right" in said
