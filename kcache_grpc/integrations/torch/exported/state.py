"""Tensors of an exported program by name, the names and nesting of its arguments and results, and files of
tensors in the format of safetensors: 8 bytes with the size of a JSON header, the header, the elements.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast

from kcache_grpc.errors import ArgumentError, IntegrityError, NotFound

torch: Any = import_module("torch")

PARAMETER, BUFFER, CONSTANT = "parameter", "buffer", "constant"
#: A dictionary of a module and a key in it: modules keep tensors in three of them.
Slot = tuple[dict[str, Any], str]
_pytree: Any = import_module("torch.utils._pytree")
_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "complex64": "C64",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
_NAME_OF = {getattr(torch, name): text for name, text in _NAMES.items() if hasattr(torch, name)}
_DTYPE_OF = {text: dtype for dtype, text in _NAME_OF.items()}
#: Elements of every dtype are aligned in the file.
_ALIGNMENT = 16
_FILL = "__padding__"


@dataclass(frozen=True)
class StateTensor:
    """``persistent``: whether ``state_dict`` has the buffer."""

    name: str
    kind: str
    persistent: bool
    value: Any = field(repr=False)


def state_of(exported: Any) -> list[StateTensor]:
    """All tensors that an exported program holds, those included that its graph does not read."""
    signature = exported.graph_signature
    buffers = set(signature.buffers)
    state = [
        StateTensor(name, PARAMETER if isinstance(value, torch.nn.Parameter) else BUFFER, True, value)
        for name, value in exported.state_dict.items()
    ]
    for name, value in exported.constants.items():
        if isinstance(value, torch.Tensor):
            state.append(StateTensor(name, BUFFER if name in buffers else CONSTANT, False, value))
    return state


def register(module: Any, state: Sequence[StateTensor]) -> None:
    """Give a module tensors under their names, with a module for each part of a name."""
    for tensor in state:
        *path, name = tensor.name.split(".")
        owner = module
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, torch.nn.Module())
            owner = owner._modules[part]
        if tensor.kind == PARAMETER:
            owner.register_parameter(name, tensor.value)
        elif tensor.kind == BUFFER:
            owner.register_buffer(name, tensor.value, persistent=tensor.persistent)
        else:
            setattr(owner, name, tensor.value)


def slot_of(module: Any, name: str) -> Slot:
    """Where a module keeps the tensor of a name: read in each call, so that a new one counts."""
    *path, last = name.split(".")
    for part in path:
        module = module._modules[part]
    tables: tuple[Mapping[str, Any], ...] = (module._parameters, module._buffers, module.__dict__)
    for table in tables:
        if last in table:
            return table, last  # pyright: ignore[reportReturnType]
    raise ArgumentError(f"the exported program does not hold the value of {name}")


@dataclass(frozen=True)
class Convention:
    """``arguments``: the tree of ``(args, kwargs)``; ``results``: that of what a call returns.

    ``positional``: names of the arguments that the program was exported with by position, where known.
    """

    arguments: Any
    results: Any
    positional: tuple[str, ...]

    def flatten(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The leaves of a call's arguments. Raises ``ArgumentError`` where they are nested otherwise."""
        if kwargs:
            args, kwargs = self._sorted(args, dict(kwargs))
        leaves, tree = _pytree.tree_flatten((args, kwargs))
        if tree != self.arguments:
            raise ArgumentError(
                f"the arguments are nested as {tree}, and the program was exported for {self.arguments}"
            )
        return leaves

    def unflatten(self, results: Sequence[Any]) -> Any:
        """What a call returns, from its leaves."""
        return _pytree.tree_unflatten(results, self.results)

    def _sorted(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments exported by position in their positions, the others in the order of the export."""
        positional, named = children(self.arguments)
        missing = self.positional[len(args) : len(children(positional))]
        if missing and all(name in kwargs for name in missing):
            args = (*args, *(kwargs.pop(name) for name in missing))
        names = list(named.context or ())
        if set(names) != set(kwargs):
            expected = ", ".join(names) or "none"
            raise ArgumentError(
                f"the arguments by name are {', '.join(kwargs) or 'none'}, and the program was exported "
                f"with {expected}"
            )
        return args, {name: kwargs[name] for name in names}


def children(tree: Any) -> list[Any]:
    """The parts of a tree's description; its name changed between versions of PyTorch."""
    method: Any = getattr(tree, "children", None)
    return list(tree.children_specs if method is None else method())


def convention_of(exported: Any) -> Convention:
    """The calling convention of a ``torch.export.ExportedProgram``."""
    spec = exported.call_spec
    if spec.in_spec is None or spec.out_spec is None:
        raise ArgumentError("the exported program does not state how its arguments are nested")
    graph = exported.module_call_graph
    signature = graph[0].signature if graph else None
    names: Sequence[str] = (signature.forward_arg_names if signature else None) or ()
    count = len(children(children(spec.in_spec)[0]))
    return Convention(spec.in_spec, spec.out_spec, tuple(names[:count]))


def encode_convention(convention: Convention) -> dict[str, Any]:
    """The convention as JSON values. Raises ``ArgumentError`` for containers that have no name elsewhere."""
    try:
        trees = [_pytree.treespec_dumps(tree) for tree in (convention.arguments, convention.results)]
    except (NotImplementedError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"the arguments or results of the program are nested in classes: {error}"
        ) from error
    if any("__enum__" in tree for tree in trees):
        raise ArgumentError("the arguments or results of the program have members of an enumeration as keys")
    return {"arguments": trees[0], "results": trees[1], "positional": list(convention.positional)}


def decode_convention(data: Any) -> Convention:
    """Raises ``NotFound`` for a class that this process has not registered as a container.

    ``ValueError``, ``KeyError`` or ``TypeError`` for other JSON values.
    """
    texts = [str(data[name]) for name in ("arguments", "results")]
    if any("__enum__" in text for text in texts):
        raise ValueError("PyTorch would import the module of an enumeration")
    try:
        trees = [_pytree.treespec_loads(text) for text in texts]
    except NotImplementedError as error:
        raise NotFound(
            f"the arguments or results are nested in a class that this process does not know ({error}): "
            "import the module that registers it first"
        ) from error
    except (AttributeError, AssertionError) as error:
        raise ValueError(f"containers of arguments: {error}") from error
    return Convention(trees[0], trees[1], tuple(map(str, data["positional"])))


def encode_tensors(tensors: Mapping[str, Any]) -> list[Any]:
    """The file in pieces of bytes. Raises ``ArgumentError`` for tensors that the format does not have."""
    header: dict[str, Any] = {}
    pieces: list[Any] = []
    offset = 0
    for name, tensor in tensors.items():
        piece = _elements(name, tensor)
        entry = {"dtype": _NAME_OF[tensor.dtype], "shape": list(tensor.shape)}
        header[name] = {**entry, "data_offsets": [offset, offset + piece.nbytes]}
        padding = -piece.nbytes % _ALIGNMENT
        if padding and len(header) < len(tensors):
            # The format has no gaps: what fills them is a tensor too.
            begin = offset + piece.nbytes
            fill = {"dtype": "U8", "shape": [padding], "data_offsets": [begin, begin + padding]}
            header[f"{_FILL}{len(pieces)}"] = fill
            pieces += [piece, bytes(padding)]
            offset = begin + padding
        else:
            pieces.append(piece)
            offset += piece.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    return [len(text).to_bytes(8, "little") + text, *pieces]


def _elements(name: str, tensor: Any) -> memoryview:
    if tensor.dtype not in _NAME_OF or tensor.layout is not torch.strided or tensor.is_meta:
        raise ArgumentError(
            f"{name} is of {tensor.dtype}, {tensor.layout} on {tensor.device}, which a package cannot hold",
            argument=name,
        )
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return memoryview(plain.view(torch.uint8).numpy()) if plain.numel() else memoryview(b"")


def decode_tensors(content: bytearray) -> dict[str, Any]:
    """The tensors, over the memory of ``content``. Raises ``IntegrityError`` for other bytes."""
    try:
        length = int.from_bytes(content[:8], "little")
        header = cast("dict[str, Any]", json.loads(bytes(content[8 : 8 + length])))
        start = 8 + length
        return {
            str(name): _tensor(content, start, entry)
            for name, entry in header.items()
            if name != "__metadata__" and not name.startswith(_FILL)
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IntegrityError(f"the weights of the package cannot be read: {error}") from error


def _tensor(content: bytearray, start: int, entry: Mapping[str, Any]) -> Any:
    dtype, shape = _DTYPE_OF[entry["dtype"]], cast("Sequence[Any]", entry["shape"])
    begin, end = entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError("a size or an offset is no integer")
    count = math.prod(shape)
    if start + end > len(content) or end - begin != count * dtype.itemsize:
        raise ValueError("a tensor lies outside of the file")
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(content, dtype=dtype, count=count, offset=start + begin).reshape(shape)
