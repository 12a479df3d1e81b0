"""The CI entry point ends with pytest's summary line and fails when either half fails."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.repository.sources import ROOT

MAKEFILE = """
check:
	@echo checking
	@exit {check}
test:
	@echo '{summary}'
	@exit {test}
"""
PASSED = "=== 3 passed in 1.00s ==="
FAILED = "=== 1 failed, 2 passed in 1.00s ==="


@pytest.mark.parametrize(
    ("check", "test", "summary", "passes"),
    [(0, 0, PASSED, True), (1, 0, PASSED, False), (0, 1, FAILED, False), (1, 1, FAILED, False)],
)
def test_last_line_and_status(tmp_path, check, test, summary, passes):
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / "Makefile").write_text(MAKEFILE.format(check=check, test=test, summary=summary))
    # Under `make test` these would make the inner make say where it is.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    ran = subprocess.run(
        [str(tmp_path / ".ci" / "run")],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env=environment,
    )
    assert (ran.returncode == 0) == passes
    assert ran.stdout.splitlines()[-1] == summary
    assert "checking" in ran.stdout


@pytest.mark.parametrize(("tools", "missing"), [(["make"], "gcc"), (["make", "gcc"], "python3")])
def test_what_the_machine_lacks_is_named(tmp_path, tools, missing):
    for tool in (*tools, "dirname"):
        executable = shutil.which(tool)
        assert executable is not None
        (tmp_path / tool).symlink_to(executable)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    ran = subprocess.run(
        ["/bin/sh", ROOT / ".ci" / "run"],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**environment, "PATH": str(tmp_path)},
    )
    assert ran.returncode == 2
    assert ran.stdout.startswith(f"{missing} is missing")
