"""``python -m benchmarks.gpu.kit pack|run|report``: kernels compiled here, judged on any GPU machine."""

from __future__ import annotations

import sys
from importlib import import_module

_COMMANDS = {"pack": "packing.pack", "run": "runtime.replay", "report": "report"}


def main() -> int:
    """Run the command line; each command has ``--help``."""
    if len(sys.argv) < 2 or sys.argv[1] not in _COMMANDS:
        print(f"usage: python -m benchmarks.gpu.kit {'|'.join(_COMMANDS)} ...", file=sys.stderr)
        return 2
    name, arguments = sys.argv[1], sys.argv[2:]
    module = import_module(f"benchmarks.gpu.kit.{_COMMANDS[name]}")
    if name == "run":
        return module.main(arguments, "python -m benchmarks.gpu.kit run")
    return module.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
