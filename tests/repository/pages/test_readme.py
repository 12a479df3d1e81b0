"""The examples of README, index and C ABI run as printed: Python, from the disk the second time, and C."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.sources import ROOT


@pytest.mark.sampled(2)
@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_python_example_does_what_it_says(page, tmp_path):
    example = re.search(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert example is not None
    assert [run(example[1], tmp_path) for _ in range(2)] == ["1 compiled", "1 disk"]


@pytest.mark.issue(number=19, point=26)
def test_the_c_example_prints_what_it_says(tmp_path):
    """The program, the commands and the C file, as printed."""
    page = (ROOT / "docs" / "reference" / "c-abi.md").read_text()
    program = re.search(r"```mlir\n(.*?)```", page, re.DOTALL)
    source = re.search(r"```c\n([^`]*int main.*?)```\n\n```sh\n(.*?)```", page, re.DOTALL)
    assert program is not None
    assert source is not None
    said = re.search(r"/\* (0 .*) \*/", source[1])
    assert said is not None
    (tmp_path / "program.mlir").write_text(program[1])
    (tmp_path / "main.c").write_text(source[1])
    commands = source[2].replace("kcache compile", "python -m kcache_grpc compile")
    settings = {
        **os.environ,
        "KCACHE_CACHE_DIR": str(tmp_path / "cache"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    ran = subprocess.run(
        ["sh", "-ec", commands], env=settings, cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == said[1]


def run(program: str, folder) -> str:
    settings = {**os.environ, "XDG_CACHE_HOME": str(folder)}
    command = [sys.executable, "-W", "error", "-c", program]
    ran = subprocess.run(
        command, env=settings, cwd=folder, capture_output=True, text=True, check=True, timeout=240
    )
    return ran.stdout.strip()
