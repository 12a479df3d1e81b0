"""Writes which operators torch-mlir's decomposition table adds to PyTorch's, and which it leaves out.

python -m scripts.generate_torch_decompositions write
python -m scripts.generate_torch_decompositions check
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from scripts.generate_torch_operations import not_comparable

FILE = Path(__file__).parents[1] / "kcache_grpc/programs/torch/decompositions/base_operators.txt"


def generated() -> str:
    """A name a line, sorted: "+" before operators and overloads that are added, "-" before those left out."""
    util: Any = import_module("torch_mlir.extras.fx_decomp_util")
    added = sorted(f"+{operator}\n" for operator in util.DEFAULT_DECOMPOSITIONS)
    left_out = sorted(f"-{operator}\n" for operator in util._EXPANDED_DECOMP_EXCLUDE)
    return "".join([*added, *left_out])


def main() -> int:
    """Write the file, or say whether it is up to date."""
    if sys.argv[1:] == ["write"]:
        FILE.write_text(generated())
        return 0
    if sys.argv[1:] != ["check"]:
        print(__doc__)
        return 2
    reason = not_comparable()
    if reason is not None:
        print(f"{FILE.name} was not checked: {reason}")
        return 0
    if FILE.read_text() != generated():
        print(f"{FILE.name} is out of date: python -m scripts.generate_torch_decompositions write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
