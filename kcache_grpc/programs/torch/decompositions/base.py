"""The decomposition table that torch-mlir uses, without torch-mlir."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

#: Written by ``scripts/generate_torch_decompositions.py``: a name a line; "+" before operators and overloads
#: that PyTorch's table of core operators lacks, "-" before operators that are not decomposed.
_FILE = Path(__file__).with_name("base_operators.txt")


@functools.cache
def core_decompositions() -> Mapping[Any, Any]:
    """The rows of ``torch.export.default_decompositions()`` for the operators that there are now.

    That table collects composite operators anew for each namespace, which takes a third of a second.
    """
    export: Any = import_module("torch.export")
    utils: Any = import_module("torch._export.utils")
    table: dict[Any, Any] = dict(export.default_decompositions().decomp_table)
    table.update({operator: utils._get_decomp_for_cia(operator) for operator in _composites_of_others()})
    return table


def autograd_decompositions() -> Mapping[Any, Any]:
    """The rows of ``core_decompositions`` without composite operators that a backward graph never has.

    Autograd, or in inference mode the tracer, takes an operator with a composite kernel and none for a device
    apart before a table is read, in the same way: a trace that begins with autograd needs no rows for them.
    Collecting these takes longer than all others.
    """
    decomp: Any = import_module("torch._decomp")
    utils: Any = import_module("torch._export.utils")
    preserved: Any = import_module("torch.export.decomp_utils").PRESERVED_ATEN_CIA_OPS
    table: dict[Any, Any] = dict(decomp._core_aten_decompositions_post_autograd())
    for name in sorted(composite_names() & _names_of_kernels("CPU", "CUDA")):
        operator = _operator_of(name)
        if operator not in (*table, *preserved) and utils._is_preservable_cia_op(operator):
            table[operator] = utils._get_decomp_for_cia(operator)
    return table


def composite_names() -> set[str]:
    """Names of operators with a composite kernel, such as ``aten::chunk`` and ``aten::matmul.out``."""
    return _names_of_kernels("CompositeImplicitAutograd")


def _names_of_kernels(*keys: str) -> set[str]:
    torch: Any = import_module("torch")
    names = (torch._C._dispatch_get_registrations_for_dispatch_key(key) for key in keys)
    return {name for some in names for name in some}


def _operator_of(name: str) -> Any:
    torch: Any = import_module("torch")
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")


def _composites_of_others() -> Iterator[Any]:
    """The composite operators outside ``aten`` that may stay whole in an exported program."""
    utils: Any = import_module("torch._export.utils")
    for name in sorted(composite_names()):
        operator = _operator_of(name)
        if operator.namespace != "aten" and utils._is_preservable_cia_op(operator):
            yield operator


def base_decompositions(core: Mapping[Any, Any] | None = None) -> dict[Any, Any]:
    """Operator -> decomposition: PyTorch's table of core operators as torch-mlir changes it.

    ``core``: the table that is changed, ``core_decompositions()`` by default.
    """
    decomp: Any = import_module("torch._decomp")
    lines = _FILE.read_text().splitlines()
    left_out = _operators(line[1:] for line in lines if line.startswith("-"))
    table = {
        operator: decomposition
        for operator, decomposition in (core_decompositions() if core is None else core).items()
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
