"""The text form of a spec: one line per node, in order. ``parse_spec`` reads what ``write_spec`` writes.

    kcache.spec v1 canonicalizer=N numerics=default family=stablehlo
    arg a0 f32[s0,8]
    const k0 f32[8]
    %0 = add a0[0,1] k0[*s0,0] : f32[s0,8]
    return %0[0,1]

``N`` is the canonicalizer version. ``x[0,*4]`` is a view: dim 0 is axis 0 of ``x``, dim 1 a broadcast of
size 4. The grammar, where ``nl`` ends a line, ``int`` is decimal, and ``i`` is as many spaces:

    spec       = "kcache.spec v1 canonicalizer=" int " numerics=" word " family=" word nl
                 { "arg a" int " " type nl } { "const k" int " " type nl } body(0)
    body(i)    = { node(i) { region(i) } } i " return" { " " use } nl
    node(i)    = i "%" int " = " op { " " use } " :" { " " type } [ " | " attributes ] nl
    region(i)  = i + 2 "region p" { " " type } " q" { " " type } nl body(i + 4)
    use        = value "[" [ entry { "," entry } ] "]"
    value      = ( "a" | "k" | "p" | "q" ) int | "%" int [ "." int ]
    entry      = int | "*" size
    type       = element [ "[" [ size { "," size } ] "]" ]
    element    = word | string
    size       = "?" | int | [ int "*" ] symbol { "*" symbol }
    symbol     = "s" int

``%0.1`` is result 1 of node 0, ``%0`` its result 0; nodes are numbered from 0 in each body. In a region,
``p0`` is a parameter, and ``q0`` a capture: the last operands of the node. A type without ``[...]`` is no
tensor; one with ``[]`` has rank 0. An element that is no word (``[A-Za-z][A-Za-z0-9_]*``) is a JSON string. A
size ``?`` is unknown. ``op`` has no spaces. ``attributes`` are the rest of the line: of a constant its bytes
in hex, or ``=`` and a literal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from kcache_compiler.errors import InvalidProgram
from kcache_compiler.shapes.monomial import read_size, size_text
from kcache_compiler.spec.graph.nodes import Graph, Node, Ref, Region, ValueType, spread, spread_size

CANONICALIZER_VERSION = 8

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_HEADER = re.compile(r"kcache\.spec v1 canonicalizer=(\d+) numerics=(\w+) family=(\w+)\Z")
_TYPE = re.compile(r'("(?:[^"\\]|\\.)*"|[A-Za-z][A-Za-z0-9_]*)(?:\[([^\]]*)\])?')
_REF = re.compile(r"([%apkq])(\d+)(?:\.(\d+))?(?:\[([^\]]*)\])")
_NODE = re.compile(
    r"\s*%\d+ = (\S+)((?: [%apkq]\d+(?:\.\d+)?\[[^\]]*\])*) :"
    r"((?: (?:\"(?:[^\"\\]|\\.)*\"|\w+)(?:\[[^\]]*\])?)*)(?: \| (.*))?\Z"
)


def write_spec(graph: Graph) -> str:
    """Return the text of a graph."""
    lines = [
        f"kcache.spec v1 canonicalizer={CANONICALIZER_VERSION} "
        f"numerics={graph.numerics} family={graph.family}"
    ]
    body = graph.body
    lines += [f"arg a{i} {_type_text(t)}" for i, t in enumerate(body.params)]
    lines += [f"const k{i} {_type_text(t)}" for i, t in enumerate(body.captures)]
    _write_body(body, "ak", "", lines)
    return "\n".join(lines) + "\n"


def _write_body(region: Region, leaves: str, indent: str, lines: list[str]) -> None:
    params, captures = len(region.params), len(region.captures)
    names = [f"{leaves[0]}{i}" for i in range(params)] + [f"{leaves[1]}{i}" for i in range(captures)]
    for number, node in enumerate(region.nodes):
        uses = "".join(" " + _ref_text(ref, names) for ref in node.operands)
        types = "".join(" " + _type_text(t) for t in node.results)
        tail = f" | {node.attributes}" if node.attributes else ""
        lines.append(f"{indent}%{number} = {node.op}{uses} :{types}{tail}")
        for inner in node.regions:
            inner_params = "".join(f" {_type_text(t)}" for t in inner.params)
            inner_captures = "".join(f" {_type_text(t)}" for t in inner.captures)
            lines.append(f"{indent}  region p{inner_params} q{inner_captures}")
            _write_body(inner, "pq", indent + "    ", lines)
        names.append(f"%{number}")
    lines.append(f"{indent}return" + "".join(" " + _ref_text(ref, names) for ref in region.results))


def _ref_text(ref: Ref, names: Sequence[str]) -> str:
    result = f".{ref.result}" if ref.result else ""
    entries = ",".join(str(e) if e >= 0 else f"*{size_text(spread_size(e))}" for e in ref.view)
    return f"{names[ref.node]}{result}[{entries}]"


def _type_text(type: ValueType) -> str:
    element = type.element if _PLAIN.match(type.element) else json.dumps(type.element)
    if type.dims is None:
        return element
    return f"{element}[{','.join(map(size_text, type.dims))}]"


def parse_spec(text: str) -> Graph:
    """Return the graph of a spec text; raises ``InvalidProgram`` on what ``write_spec`` does not write."""
    lines = text.split("\n")
    header = _HEADER.match(lines[0])
    if not header:
        raise InvalidProgram(f"not a spec of this format: {lines[0][:200]!r}")
    if int(header[1]) != CANONICALIZER_VERSION:
        raise InvalidProgram(
            f"the spec was made by canonicalizer {header[1]}; this is {CANONICALIZER_VERSION}"
        )
    reader = _Reader(lines)
    args = reader.leaves("arg ")
    constants = reader.leaves("const ")
    return Graph(header[3], header[2], reader.body(args, constants, ""))


class _Reader:
    """Reads the lines of a spec of the current version after its header. Raises ``InvalidProgram``."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.position = 1

    def leaves(self, prefix: str) -> tuple[ValueType, ...]:
        types: list[ValueType] = []
        while self._line().startswith(prefix):
            types += _read_types(self._line()[len(prefix) :].partition(" ")[2])
            self.position += 1
        return tuple(types)

    def _line(self) -> str:
        if self.position >= len(self.lines):
            raise InvalidProgram("the spec is truncated")
        return self.lines[self.position]

    def body(self, params: tuple[ValueType, ...], captures: tuple[ValueType, ...], indent: str) -> Region:
        nodes: list[Node] = []
        base = {"a": 0, "p": 0, "k": len(params), "q": len(params), "%": len(params) + len(captures)}
        while not self._line().startswith(f"{indent}return"):
            match = _NODE.match(self._line())
            if not match:
                raise InvalidProgram(
                    f"not a node, line {self.position + 1} of the spec: {self._line()[:200]!r}"
                )
            self.position += 1
            regions: list[Region] = []
            while self._line().startswith(f"{indent}  region "):
                regions.append(self._region(indent))
            uses = _read_refs(match[2], base)
            nodes.append(Node(match[1], match[4] or "", uses, tuple(regions), tuple(_read_types(match[3]))))
        results = _read_refs(self._line()[len(indent) + len("return") :], base)
        self.position += 1
        return Region(params, captures, tuple(nodes), results)

    def _region(self, indent: str) -> Region:
        params, _, captures = self._line().strip().removeprefix("region p").rpartition(" q")
        self.position += 1
        return self.body(tuple(_read_types(params)), tuple(_read_types(captures)), indent + "    ")


def _read_types(text: str) -> list[ValueType]:
    types: list[ValueType] = []
    for match in _TYPE.finditer(text):
        element = json.loads(match[1]) if match[1].startswith('"') else match[1]
        if match[2] is None:
            types.append(ValueType(element, None))
            continue
        types.append(ValueType(element, tuple(_read_size(d) for d in match[2].split(",") if d)))
    return types


def _read_refs(text: str, base: dict[str, int]) -> tuple[Ref, ...]:
    refs: list[Ref] = []
    for kind, number, result, view in _REF.findall(text):
        entries = tuple(_read_entry(e) for e in view.split(",") if e)
        refs.append(Ref(base[kind] + int(number), int(result or 0), entries))
    return tuple(refs)


def _read_entry(text: str) -> int:
    if not text.startswith("*"):
        return int(text)
    return spread(_read_size(text[1:]))


def _read_size(text: str) -> int:
    try:
        return read_size(text)
    except ValueError as error:
        raise InvalidProgram(str(error)) from None
