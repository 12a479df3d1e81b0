"""The decomposition table that torch-mlir uses, without torch-mlir."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

#: Written by ``scripts/generate_torch_decompositions.py``: a name a line; "+" before operators and overloads
#: that PyTorch's table of core operators lacks, "-" before operators that are not decomposed.
_FILE = Path(__file__).with_name("base_operators.txt")


def base_decompositions() -> dict[Any, Any]:
    """Operator -> decomposition: PyTorch's table of core operators as torch-mlir changes it."""
    decomp: Any = import_module("torch._decomp")
    lines = _FILE.read_text().splitlines()
    left_out = _operators(line[1:] for line in lines if line.startswith("-"))
    table = {
        operator: decomposition
        for operator, decomposition in decomp.core_aten_decompositions().items()
        if operator._overloadpacket not in left_out
    }
    table.update(decomp.get_decompositions(_operators(line[1:] for line in lines if line.startswith("+"))))
    return table


def _operators(names: Iterable[str]) -> list[Any]:
    """Operators such as ``aten.diag``, overloads such as ``aten.squeeze.dims``; unknown names are skipped."""
    torch: Any = import_module("torch")
    operators: list[Any] = []
    for name in names:
        operator = torch.ops
        for part in name.split("."):
            operator = getattr(operator, part, None)
        if operator is not None:
            operators.append(operator)
    return operators
