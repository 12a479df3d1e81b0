"""The README's Python example runs as printed, and hits the disk the second time."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.house.sources import ROOT


def test_the_python_example_does_what_it_says(tmp_path):
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert example is not None
    assert [run(example[1], tmp_path) for _ in range(2)] == ["1 compiled", "1 disk"]


def run(program: str, folder) -> str:
    settings = {**os.environ, "XDG_CACHE_HOME": str(folder)}
    command = [sys.executable, "-W", "error", "-c", program]
    ran = subprocess.run(
        command, env=settings, cwd=folder, capture_output=True, text=True, check=True, timeout=240
    )
    return ran.stdout.strip()
