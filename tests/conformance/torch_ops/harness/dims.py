"""Programs of the Torch dialect that name dimensions, of every operation that torch-mlir has.

``python -m tests.conformance.torch_ops.harness.dims RANK DIM`` compiles them for tensors of a rank, and
writes a line of JSON
each: operation, whether it keeps the dimension, whether eager mode takes it, outcome and reason. Native code
that crashes ends it. Of rank 0 the results are compared with eager mode.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import torch

from kcache_compiler import canonicalize
from kcache_compiler.errors import CompilerError
from tests.conformance.torch_ops.harness.judge import array_of, difference, results_of

_DIMS = ("dim", "dims", "dim0", "dim1", "dim2", "dimension", "start_dim", "end_dim")
_DTYPES = {torch.float32: "f32", torch.int64: "si64", torch.bool: "i1", torch.complex64: "complex<f32>"}
_ZERO = ("start", "storage_offset", "index")


class Program(NamedTuple):
    """One operation, called once."""

    name: str
    keepdim: bool
    text: str
    tensors: Sequence[Any]
    #: What eager mode gives; ``None`` where it rejects the call.
    results: Sequence[Any] | None


class _Writer:
    """Constants and arguments of a program, as text."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tensors: list[Any] = []
        self.operands: list[tuple[str, str]] = []

    def constant(self, kind: str, type: str, value: str = "") -> tuple[str, str]:
        name = f"%c{len(self.lines)}"
        attribute = f" <{{value = {value}}}>" if value else ""
        self.lines.append(f'{name} = "torch.constant.{kind}"(){attribute} : () -> !torch.{type}')
        return name, f"!torch.{type}"

    def integer(self, number: int) -> tuple[str, str]:
        return self.constant("int", "int", f"{number} : i64")

    def listed(self, elements: Sequence[tuple[str, str]], type: str) -> tuple[str, str]:
        name = f"%c{len(self.lines)}"
        names, types = (", ".join(parts) for parts in zip(*elements, strict=True))
        self.lines.append(f'{name} = "torch.prim.ListConstruct"({names}) : ({types}) -> {type}')
        return name, type

    def tensor(self, tensor: Any) -> tuple[str, str]:
        self.tensors.append(tensor)
        return f"%arg{len(self.tensors) - 1}", _type(tensor)


def _type(tensor: Any) -> str:
    return f"!torch.vtensor<[{','.join(map(str, tensor.shape))}],{_DTYPES[tensor.dtype]}>"


def _schemas() -> Iterator[tuple[str, Any]]:
    """Functional operations with a dimension that torch-mlir has an operation for."""
    ops = vars(import_module("torch_mlir.dialects._torch_ops_gen")).values()
    known = {name for op in ops if (name := getattr(op, "OPERATION_NAME", None)) is not None}
    schemas: Any = torch._C._jit_get_all_schemas()
    for schema in schemas:
        name = re.sub(r"\.$", "", f"torch.{schema.name.replace('::', '.')}.{schema.overload_name}")
        outputs = any(argument.is_out for argument in schema.arguments) or schema.name.endswith("_")
        named = [argument for argument in schema.arguments if argument.name in _DIMS]
        if name in known and named and not outputs and not name.startswith("torch.aten.tile"):
            yield name, schema


def _operand(writer: _Writer, argument: Any, x: Any, dim: int, keepdim: bool) -> tuple[tuple[str, str], Any]:
    """An operand as text, and as Python has it."""
    type, name = str(argument.type), argument.name
    if name in _DIMS:
        if "List" in type:
            return writer.listed([writer.integer(dim)], "!torch.list<int>"), [dim]
        return writer.integer(dim), dim
    if type == "Tensor":
        value = torch.zeros_like(x, dtype=torch.int64) if name in ("index", "indices") else x.clone()
        return writer.tensor(value), value
    if type == "List[Tensor]":
        values = [x.clone(), x.clone()]
        return writer.listed([writer.tensor(value) for value in values], "!torch.list<vtensor>"), values
    if type.startswith("Optional"):
        return writer.constant("none", "none"), None
    if type == "bool":
        flag = keepdim and name == "keepdim"
        return writer.constant("bool", "bool", str(flag).lower()), flag
    if type in ("number", "float"):
        return writer.constant("float", "float", "2.0 : f64"), 2.0
    if type == "int" and name in ("dtype", "input_dtype"):
        return writer.integer(6), torch.float32
    if type == "int":
        number = 0 if name in _ZERO else 1
        return writer.integer(number), number
    if type == "List[int]":
        return writer.listed([writer.integer(1)], "!torch.list<int>"), [1]
    return writer.constant("str", "str", '"sum"'), "sum"


def programs(rank: int, dim: int) -> Iterator[Program]:
    """Of tensors of ``rank`` with 3 elements on each axis; every dimension is ``dim``."""
    x = (torch.arange(1, 1 + 3**rank).reshape((3,) * rank) * 1.5).to(torch.float32)
    for name, schema in _schemas():
        if any(str(result.type) != "Tensor" for result in schema.returns):
            continue
        keeps = any(argument.name == "keepdim" for argument in schema.arguments)
        for keepdim in (False, True)[: 1 + keeps]:
            yield _program(name, schema, x, dim, keepdim)


def _program(name: str, schema: Any, x: Any, dim: int, keepdim: bool) -> Program:
    writer = _Writer()
    operands = [_operand(writer, argument, x, dim, keepdim) for argument in schema.arguments]
    pairs = [(argument, value) for argument, (_, value) in zip(schema.arguments, operands, strict=True)]
    results: Sequence[Any] | None
    try:
        positional = [value for argument, value in pairs if not argument.kwarg_only]
        named = {argument.name: value for argument, value in pairs if argument.kwarg_only}
        result = _function(name)(*positional, **named)
        results = result if isinstance(result, (tuple, list)) else [result]
    except Exception:  # code of another project: it has no such dimension
        results = None
    types = [_type(x if output is None else output) for output in results or [None] * len(schema.returns)]
    arguments = ", ".join(f"%arg{i}: {_type(tensor)}" for i, tensor in enumerate(writer.tensors))
    names = ", ".join(f"%r{i}" for i in range(len(types)))
    texts, kinds = (", ".join(parts) for parts in zip(*(operand for operand, _ in operands), strict=True))
    result_types = ", ".join(types)
    lines = [*writer.lines, f'{names} = "{name}"({texts}) : ({kinds}) -> ({result_types})']
    body = "\n".join([*lines, f'"func.return"({names}) : ({result_types}) -> ()'])
    text = f"module {{ func.func @main({arguments}) -> ({result_types}) {{\n{body}\n}} }}"
    return Program(name, keepdim, text, writer.tensors, results)


def _function(name: str) -> Any:
    _, namespace, packet, *overload = name.split(".")
    operation: Any = getattr(getattr(torch.ops, namespace), packet)
    return getattr(operation, overload[0] if overload else "default")


def _outcome(program: Program, rank: int) -> tuple[str, str]:
    try:
        if rank or program.results is None:
            canonicalize(program.text.encode(), "torch", "strict")
            return "compiled", ""
        arrays = [array_of(tensor) for tensor in program.tensors]
        why = difference(results_of(program.text.encode(), arrays), program.results)
        return ("wrong" if why else "right"), why
    except CompilerError as error:
        return type(error).__name__, str(error)


def main(rank: int, dim: int) -> None:
    """Write what becomes of each program; the operation first, so that a crash has a name."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    for program in programs(rank, dim):
        out.write(f"{json.dumps([program.name, program.keepdim])[:-1]}, ")
        out.flush()
        outcome = [program.results is not None, *_outcome(program, rank)]
        out.write(f"{json.dumps(outcome)[1:]}\n")
        out.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
