"""The calling convention of an exported program: names and nesting of its arguments and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kcache_grpc.errors import ArgumentError, NotFound

torch: Any = import_module("torch")
_pytree: Any = import_module("torch.utils._pytree")


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
