"""The command as a process and in this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

ADD = """
func.func @main(%left: tensor<4x8xf32>, %right: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %sum = stablehlo.add %left, %right : tensor<4x8xf32>
  return %sum : tensor<4x8xf32>
}
"""
#: The same graph under other names.
ADD_RENAMED = ADD.replace("%left", "%a").replace("%right", "%b").replace("%sum", "%c")
UNSUPPORTED = """
func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %r = stablehlo.custom_call @nobody_knows(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
"""


def kcache(*arguments: str | Path, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """``kcache`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "kcache_grpc", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
    )


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    """What a command that succeeded printed as JSON."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
