"""The table of decompositions without torch-mlir equals torch-mlir's."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")

from kcache_grpc.programs.torch.decompositions.base import (
    base_decompositions,
    composite_names,
    core_decompositions,
)
from kcache_grpc.programs.torch.decompositions.table import decompositions, decompositions_of_autograd
from scripts.generate_torch_decompositions import FILE, generated
from scripts.generate_torch_operations import not_comparable


def comparable(decomposition: Any) -> Any:
    """PyTorch makes the functions that decompose composite operators anew for each table."""
    if isinstance(decomposition, partial):
        return decomposition.func.__qualname__, decomposition.args, decomposition.keywords
    return decomposition


def test_the_file_of_operators_is_fresh() -> None:
    if reason := not_comparable():
        pytest.skip(reason)
    assert FILE.read_text() == generated(), "run: python -m scripts.generate_torch_decompositions write"


def test_the_rows_of_core_operators_are_those_of_exported_programs() -> None:
    """Other tests may have imported operators since the first call."""
    export = pytest.importorskip("torch.export")
    ours, theirs = (
        {operator: comparable(row) for operator, row in table.items()}
        for table in (core_decompositions.__wrapped__(), export.default_decompositions())
    )
    assert ours == theirs


def test_the_table_is_that_of_torch_mlir() -> None:
    util = pytest.importorskip("torch_mlir.extras.fx_decomp_util")
    ours, theirs = (
        {
            operator: comparable(row)
            for operator, row in table.items()
            if operator.namespace in ("aten", "prims")
        }
        for table in (base_decompositions(), util.get_decomposition_table())
    )
    assert ours == theirs


def test_a_trace_of_autograd_lacks_rows_of_composites_only() -> None:
    """Those whose row is PyTorch's own, and that no device has a kernel of."""
    torch = pytest.importorskip("torch")
    utils = pytest.importorskip("torch._export.utils")
    every, some = decompositions(), decompositions_of_autograd()
    assert some.keys() < every.keys()
    for operator in every.keys() - some.keys():
        assert operator.name() in composite_names()
        assert comparable(every[operator]) == comparable(utils._get_decomp_for_cia(operator))
        keys = ("CPU", "CUDA")
        assert not any(torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key) for key in keys)
    # Rows that combine several functions are made anew for each table, or one of them is of a composite.
    whole = {op: row for op, row in every.items() if "<locals>" not in getattr(row, "__qualname__", "")}
    alike = [op for op in whole if op in some and comparable(whole[op]) == comparable(some[op])]
    assert len(alike) == len(whole.keys() & some.keys()) > 400


_WITHOUT = """
import sys
sys.modules["torch_mlir"] = None
from kcache_grpc.programs.torch.decompositions.table import decompositions
print(len(decompositions()))
"""


def test_it_needs_no_torch_mlir() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _WITHOUT], capture_output=True, text=True, timeout=240, check=True
    )
    assert int(ran.stdout) >= len(base_decompositions())
