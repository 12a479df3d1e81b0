"""Writes docs/reference/graph-format.md and kcache_grpc/graph/ops.py from the table of the graph format's op
set.

``python -m scripts.generate_graph_format write|check``. The table is
``kcache_compiler.frontends.graph.operations``; a test holds both files fresh.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

from kcache_compiler.frontends.graph.operations import FORMAT, GROUPS
from kcache_compiler.frontends.graph.table import DTYPE_CLASSES, REQUIRED, Attribute, Group, Op

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "graph-format.md"
METHODS = ROOT / "kcache_grpc" / "graph" / "ops.py"
INTRODUCTION = Path(__file__).with_name("graph_format_introduction.md")

#: Names that Python keeps for itself.
_KEYWORDS = frozenset(("and", "or", "not"))
_ANNOTATIONS = {
    "int": "int",
    "float": "float",
    "number": "Number",
    "bool": "bool",
    "string": "str",
    "dtype": "DtypeLike",
    "ints": "Sequence[int]",
    "shape": "Dims",
    "tensor": "ArrayLike",
}
_METHODS_HEAD = '''"""The operations as methods.

Made by `python -m scripts.generate_graph_format write`; not edited by hand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kcache_grpc.graph import attributes as at

if TYPE_CHECKING:
    from kcache_grpc._proto.kcache.v1.graph_pb2 import GraphAttribute
    from kcache_grpc.graph.convert import Dims, DtypeLike, Number, ValueLike
    from kcache_grpc.graph.value import Value


class Operations(ABC):
    """Every operation of the op set as a method, as docs/reference/graph-format.md documents it."""

    @abstractmethod
    def node(
        self,
        op: str,
        operands: Iterable[ValueLike | None],
        attributes: Sequence[GraphAttribute] = (),
        results: int = 1,
        name: str | None = None,
    ) -> tuple[Value, ...]:
        """Add any operation by name."""
'''


def page() -> str:
    """The documentation."""
    count = sum(len(group.ops) for group in GROUPS)
    text = INTRODUCTION.read_text().replace("{format}", FORMAT).replace("{count}", str(count))
    contents = "\n".join(
        f"- [{group.title}](#{_anchor(group.title)}): {', '.join(f'`{op.name}`' for op in group.ops)}"
        for group in GROUPS
    )
    return text.replace("{contents}", contents) + "".join(map(_group_text, GROUPS))


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-").replace(",", "")


def _group_text(group: Group) -> str:
    note = f"\n{group.note}\n" if group.note else ""
    return f"\n## {group.title}\n{note}" + "".join(map(_op_text, group.ops))


def _op_text(op: Op) -> str:
    operands = ", ".join(_operand_text(operand) for operand in op.operands) or "none"
    results = ", ".join(f"`{name}`" for name in op.results)
    lines = [
        f"\n### {op.name}\n",
        f"{op.doc}\n",
        f"- operands: {operands}",
        f"- {'results' if len(op.results) > 1 else 'result'}: {results}, {op.rule}",
        f"- {'means' if op.composite else 'emitted as'}: {op.stablehlo}",
    ]
    if op.attributes:
        lines += ["", "| attribute | kind | default | |", "| --- | --- | --- | --- |"]
        lines += [_attribute_text(attribute) for attribute in op.attributes]
    return "\n".join(lines) + "\n"


def _operand_text(operand: Any) -> str:
    marks = "..." if operand.variadic else ""
    rest = ", optional" if operand.optional else ""
    return f"`{operand.name}{marks}` ({DTYPE_CLASSES[operand.dtypes]}{rest})"


def _attribute_text(attribute: Attribute) -> str:
    default = "required" if attribute.default is REQUIRED else _default_text(attribute.default)
    choices = (
        f" One of {', '.join(f'`{choice}`' for choice in attribute.choices)}." if attribute.choices else ""
    )
    return f"| `{attribute.name}` | {attribute.kind} | {default} | {attribute.doc}{choices} |"


def _default_text(value: Any) -> str:
    match value:
        case None:
            return "derived"
        case bool():
            return f"`{str(value).lower()}`"
        case tuple():
            return f"`{list(cast('tuple[int, ...]', value))}`"
        case _:
            return f"`{value}`"


def methods() -> str:
    """The methods of the client's builder, formatted."""
    ops = [op for group in GROUPS for op in group.ops if op.name != "constant"]
    source = _METHODS_HEAD + "".join(map(_method, ops))
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(METHODS), "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def _method(op: Op) -> str:
    name = f"{op.name}_" if op.name in _KEYWORDS else op.name
    variadic = [operand for operand in op.operands if operand.variadic]
    optional = [operand for operand in op.operands if operand.optional]
    parameters = ["self"]
    for operand in op.operands:
        if operand.variadic:
            parameters.append(f"*{operand.name}: ValueLike")
        elif operand.optional:
            parameters.append(f"{operand.name}: ValueLike | None = None")
        else:
            parameters.append(f"{operand.name}: ValueLike")
    if optional and not variadic:
        parameters.append("*")
    required = [_parameter(a) for a in op.attributes if a.default is REQUIRED]
    defaulted = [_parameter(a) for a in op.attributes if a.default is not REQUIRED]
    parameters += [*required, *defaulted]
    if "*" not in parameters and not variadic:
        parameters.append("*")
    parameters.append("name: str | None = None")
    operands = ", ".join(f"*{o.name}" if o.variadic else o.name for o in op.operands)
    arguments = f"({operands}{',' if len(op.operands) == 1 else ''})"
    attributes = ", ".join(f'at.{_encoder(a)}("{a.name}", {a.name})' for a in op.attributes)
    call = f'self.node("{op.name}", {arguments}, at.given({attributes}), {len(op.results)}, name)'
    single = len(op.results) == 1
    returned = "Value" if single else f"tuple[{', '.join(['Value'] * len(op.results))}]"
    if single:
        body = f"        return {call}[0]"
    else:
        names = ", ".join(op.results)
        body = f"        {names} = {call}\n        return {names}"
    return f'''
    def {name}({", ".join(parameters)}) -> {returned}:
        """{op.doc}"""
{body}
'''


def _parameter(attribute: Attribute) -> str:
    annotation = _ANNOTATIONS[attribute.kind]
    if attribute.default is REQUIRED:
        return f"{attribute.name}: {annotation}"
    if attribute.default is None:
        return f"{attribute.name}: {annotation} | None = None"
    return f"{attribute.name}: {annotation} = {attribute.default!r}"


def _encoder(attribute: Attribute) -> str:
    return {"int": "integer", "float": "real", "bool": "flag", "string": "text"}.get(
        attribute.kind, attribute.kind
    )


def main(arguments: list[str]) -> int:
    """Run the subcommand of the command line; 1: a file is stale."""
    wanted = {PAGE: page, METHODS: methods}
    if arguments == ["write"]:
        for path, make in wanted.items():
            path.write_text(make())
        return 0
    if arguments == ["check"]:
        stale = [path for path, make in wanted.items() if not path.exists() or path.read_text() != make()]
        for path in stale:
            print(f"stale: {path.relative_to(ROOT)} (python -m scripts.generate_graph_format write)")
        return int(bool(stale))
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
