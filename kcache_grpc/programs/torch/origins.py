"""Source lines and module paths of the nodes of PyTorch's graphs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator
from importlib import import_module
from pathlib import Path
from typing import Any

from kcache_grpc.errors import UnsupportedOp
from kcache_grpc.programs.origins import MODULE

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')


def _source(node: Any) -> tuple[str, str, str]:
    """The file, line and module path of a node, each empty where it is not known.

    The line is the innermost one outside of PyTorch, or else the innermost one.
    """
    frames: list[tuple[str, str]] = _FRAME.findall(node.meta.get("stack_trace") or "")
    package = str(Path(import_module("torch").__file__ or "").parent)
    own = [frame for frame in frames if not frame[0].startswith(package)]
    file, line = (own or frames or [("", "")])[-1]
    stack: Any = node.meta.get("nn_module_stack") or {}
    path = next((str(entry[0]) for entry in reversed(list(stack.values())) if entry and entry[0]), "")
    return file, line, path.removeprefix("L['self'].")


def source_trace(node: Any) -> str:
    """A trace of one frame that names file, module path and line; empty where they are not known."""
    file, line, module = _source(node)
    if not file:
        return ""
    return f'File "{file}{MODULE + module if module else ""}", line {line},'


@contextlib.contextmanager
def located_rejection(graph: Any) -> Generator[None]:
    """Raise ``UnsupportedOp`` of a node's operation with the node's location."""
    try:
        yield
    except UnsupportedOp as error:
        name = error.op.removeprefix("torch.").removeprefix("ops.")
        nodes = [node for node in graph.nodes if node.op == "call_function" and name == str(node.target)]
        file, line, module = _source(nodes[0]) if name and nodes else ("", "", "")
        if not file:
            raise
        location = f"{file}:{line} in module {module}" if module else f"{file}:{line}"
        metadata = {"location": location, **error.metadata}
        raise UnsupportedOp(f"{error.message} (at {location})", **metadata) from error
