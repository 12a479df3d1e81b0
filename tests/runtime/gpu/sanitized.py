"""``python -m tests.runtime.gpu.sanitized [TOOL ...]``: the tests on a GPU under ``compute-sanitizer``.

Tools: memcheck, racecheck, initcheck, synccheck; all of them where none is named. Exits with 1 where one
finds something, with 2 where there is no sanitizer or no GPU.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.kit.runtime.sanitize import TOOLS, find_sanitizer, sanitizer_command
from kcache_grpc.errors import ArgumentError
from kcache_grpc.runtime.gpu.device import device_numbered

_ROOT = Path(__file__).parents[3]
_TESTS = ["pytest", "-m", "gpu", "-q", "-p", "no:xdist", "tests/runtime/gpu/test_on_a_gpu.py"]


def main() -> int:
    tools = sys.argv[1:] or list(TOOLS)
    if not set(tools) <= set(TOOLS):
        print(f"tools are {', '.join(TOOLS)}", file=sys.stderr)
        return 2
    sanitizer = find_sanitizer()
    if sanitizer is None:
        print("there is no compute-sanitizer: it comes with CUDA's toolkit", file=sys.stderr)
        return 2
    try:
        device_numbered(0)
    except ArgumentError as error:
        print(f"no GPU: {error.message}", file=sys.stderr)
        return 2
    worst = 0
    for tool in tools:
        command = sanitizer_command(sanitizer, tool, [sys.executable, "-m", *_TESTS])
        code = subprocess.run(command, cwd=_ROOT).returncode
        print(f"{tool}: {'clean' if code == 0 else f'exit status {code}'}")
        worst = max(worst, int(code != 0))
    return worst


if __name__ == "__main__":
    sys.exit(main())
