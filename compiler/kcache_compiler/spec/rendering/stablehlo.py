"""Rendering of a canonical graph as a module: ``func.func public @main(inputs..., lifted constants...)``."""

from __future__ import annotations

from collections.abc import Sequence

from kcache_compiler.errors import UnsupportedOp
from kcache_compiler.shapes.monomial import is_symbolic
from kcache_compiler.spec.dynamic_graph import fixed_sizes
from kcache_compiler.spec.graph.native import mlir_type
from kcache_compiler.spec.graph.nodes import DYNAMIC, Graph, Node, Ref, Region, ValueType, view_dims, whole
from kcache_compiler.spec.graph.operations import is_elementwise, is_structured, terminator_of
from kcache_compiler.spec.instantiate import instantiate
from kcache_compiler.spec.rendering.contraction import Contraction, as_contraction, contraction_of, read_ints
from kcache_compiler.spec.rendering.layout import arrange
from kcache_compiler.spec.text import parse_spec
from kcache_compiler.types import SMALL_FLOATS, ArgSpec


class Body:
    """A region that is being rendered: names of leaves, nodes, and views of them."""

    def __init__(self, region: Region, leaves: Sequence[str], indent: str) -> None:
        self.region = region
        self.needed = _needed(region)
        self.indent = indent
        self.names: list[list[str]] = [[name] for name in leaves]
        self.views: dict[Ref, str] = {}


class StablehloRenderer:
    """Renders one module; an instance is used once."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._count = 0

    def module(self, body: Region) -> str:
        """Return the module's text."""
        body = arrange(body)
        types = (*body.params, *body.captures)
        names = [f"%a{i}" for i in range(len(body.params))] + [f"%k{i}" for i in range(len(body.captures))]
        arguments = ", ".join(
            [f"{n}: {mlir_type(t)}" for n, t in zip(names, types, strict=True)] + self._more_arguments(body)
        )
        results = ", ".join(mlir_type(body.viewed_type(r)) for r in body.results)
        self._lines = ["module {", f"  func.func public @main({arguments}) -> ({results}) {{"]
        self._lines += self._preamble()
        self._body(Body(body, names, "    "), "func.return")
        self._lines += ["  }", "}"]
        return "\n".join(self._lines) + "\n"

    def _more_arguments(self, body: Region) -> list[str]:
        """Return further arguments of ``main``."""
        return []

    def _preamble(self) -> list[str]:
        """Return operations before those of the program."""
        return []

    # -- emission

    def _body(self, body: Body, terminator: str) -> None:
        for node, needed in zip(body.region.nodes, body.needed, strict=True):
            body.names.append(self._node(body, node) if needed else [""] * len(node.results))
        values = [self._value(body, ref) for ref in body.region.results]
        types = ", ".join(mlir_type(body.region.viewed_type(r)) for r in body.region.results)
        self._lines.append(f'{body.indent}"{terminator}"({", ".join(values)}) : ({types}) -> ()')

    def _emit(
        self,
        body: Body,
        op: str,
        operands: Sequence[tuple[str, ValueType]],
        results: Sequence[ValueType],
        attributes: str = "",
        regions: Sequence[tuple[Region, Sequence[str]]] = (),
    ) -> list[str]:
        """Append an operation in the generic form of MLIR; return the names of its results."""
        name = self._fresh()
        head = f"{name}:{len(results)} = " if len(results) > 1 else f"{name} = " if results else ""
        text = f'{body.indent}{head}"{op}"({", ".join(v for v, _ in operands)})'
        dictionary = f" {{{attributes}}}" if attributes else ""
        sources, targets = (", ".join(map(mlir_type, types)) for types in ([t for _, t in operands], results))
        signature = f"{dictionary} : ({sources}) -> ({targets})"
        if not regions:
            self._lines.append(text + signature)
        else:
            self._lines.append(text + " ({")
            for position, (region, captured) in enumerate(regions):
                if position:
                    self._lines.append(f"{body.indent}}}, {{")
                self._region(body, region, captured, terminator_of(op.removeprefix("stablehlo."), position))
            self._lines.append(f"{body.indent}}}){signature}")
        return [f"{name}#{i}" for i in range(len(results))] if len(results) > 1 else [name]

    def _region(self, body: Body, region: Region, captured: Sequence[str], terminator: str) -> None:
        params = [self._fresh() for _ in region.params]
        header = ", ".join(f"{n}: {mlir_type(t)}" for n, t in zip(params, region.params, strict=True))
        self._lines.append(f"{body.indent}^bb0({header}):" if params else f"{body.indent}^bb0:")
        self._body(Body(arrange(region), [*params, *captured], body.indent + "  "), terminator)

    def _fresh(self) -> str:
        self._count += 1
        return f"%{self._count - 1}"

    # -- views

    def _value(self, body: Body, ref: Ref) -> str:
        """The name of the value of a ``ref``, after transposes, reshapes and broadcasts."""
        known = body.views.get(ref)
        if known is None:
            known = body.views[ref] = self._view(body, ref)
        return known

    def _typed(self, body: Body, ref: Ref) -> tuple[str, ValueType]:
        return self._value(body, ref), body.region.viewed_type(ref)

    def _view(self, body: Body, ref: Ref) -> str:
        """Return the name of a value seen through its view: emits reshapes, transposes and broadcasts."""
        type = body.region.type_of(ref)
        axes = type.dims
        if axes is None or ref.view == whole(axes):
            return self._name(body, ref)
        shape = view_dims(ref.view, axes)
        constant = self._leaf_constant(body, ref)
        if constant is not None and not axes and 0 not in shape and DYNAMIC not in shape:
            return self._constant(body, constant, ValueType(type.element, shape))
        used = [e for e in ref.view if e >= 0]
        if used == sorted(used) and all(e >= 0 or e == ~1 for e in ref.view):
            return self._reshape(body, (self._name(body, ref), type), shape)
        kept = sorted(used)
        name = self._name(body, ref)
        dims = tuple(axes[k] for k in kept)
        if len(kept) != len(axes):
            name = self._reshape(body, (name, type), dims)
        if used != kept:
            permutation = [kept.index(e) for e in used]
            new = tuple(axes[e] for e in used)
            attributes = f"permutation = {_ints(permutation)}"
            source = (name, ValueType(type.element, dims))
            (name,) = self._emit(
                body, "stablehlo.transpose", [source], [ValueType(type.element, new)], attributes
            )
            dims = new
        if dims == shape:
            return name
        if all(e >= 0 or e == ~1 for e in ref.view):
            return self._reshape(body, (name, ValueType(type.element, dims)), shape)
        if DYNAMIC in shape:
            raise UnsupportedOp(
                "broadcast_in_dim", f"a broadcast next to dynamic sizes {shape} has no static form"
            )
        axes_kept = [dim for dim, e in enumerate(ref.view) if e >= 0]
        source = (name, ValueType(type.element, dims))
        attributes = f"broadcast_dimensions = {_ints(axes_kept)}"
        return self._emit(
            body, "stablehlo.broadcast_in_dim", [source], [ValueType(type.element, shape)], attributes
        )[0]

    def _reshape(self, body: Body, source: tuple[str, ValueType], shape: tuple[int, ...]) -> str:
        type = ValueType(source[1].element, shape)
        if source[1].dims == shape:
            return source[0]
        if DYNAMIC in shape:
            raise UnsupportedOp(
                "reshape", f"dims of size 1 next to dynamic sizes {shape} have no static form"
            )
        return self._emit(body, "stablehlo.reshape", [source], [type])[0]

    def _name(self, body: Body, ref: Ref) -> str:
        """The name of the viewed result; a constant is emitted before its first use."""
        names = body.names[ref.node]
        if not names[ref.result]:
            node = self._node_of(body, ref.node)
            assert node is not None
            names[0] = self._constant(body, node.attributes, node.results[0])
        return names[ref.result]

    @staticmethod
    def _node_of(body: Body, index: int) -> Node | None:
        position = index - len(body.region.params) - len(body.region.captures)
        return body.region.nodes[position] if position >= 0 else None

    def _leaf_constant(self, body: Body, ref: Ref) -> str | None:
        node = self._node_of(body, ref.node)
        return node.attributes if node is not None and node.op == "constant" else None

    def _constant(self, body: Body, content: str, type: ValueType) -> str:
        return self._emit(
            body, "stablehlo.constant", [], [type], f"value = {_dense(content, type)} : {mlir_type(type)}"
        )[0]

    # -- nodes

    def _node(self, body: Body, node: Node) -> list[str]:
        if node.op == "constant":
            return [""]
        if is_elementwise(node):
            return self._elementwise(body, node)
        match node.op:
            case "iota" if not node.operands:
                return self._emit(body, "stablehlo.iota", [], node.results, "iota_dimension = 0 : i64")
            case "reshape":
                return [self._reshape(body, self._typed(body, node.operands[0]), node.results[0].dims or ())]
            case "reduce" if is_structured(node):
                return self._reduce(body, node)
            case "dot_general" if is_structured(node):
                return [self._contract(body, contraction_of(node), node.results[0])]
            case _:
                return self._opaque(body, node)

    def _elementwise(self, body: Body, node: Node) -> list[str]:
        op = node.op if node.op.startswith("chlo.") else f"stablehlo.{node.op}"
        attributes = _comparison(node.attributes) if node.op == "compare" else node.attributes
        operands = [self._as_scalar(body, node, position) for position in range(len(node.operands))]
        return self._emit(body, op, [self._typed(body, ref) for ref in operands], node.results, attributes)

    @staticmethod
    def _as_scalar(body: Body, node: Node, position: int) -> Ref:
        """Operand ``position``; a scalar that the op accepts is not broadcast to a dynamic shape."""
        ref = node.operands[position]
        allowed = {"clamp": (0, 2), "select": (0,)}.get(node.op, ())
        dims = body.region.viewed_type(ref).dims or ()
        is_dynamic = any(size == DYNAMIC or is_symbolic(size) for size in dims)
        is_scalar = not body.region.type_of(ref).dims
        return ref._replace(view=()) if position in allowed and is_dynamic and is_scalar else ref

    def _opaque(self, body: Body, node: Node) -> list[str]:
        explicit, captured = split_captures(node)
        regions = [
            (region, [self._value(body, ref) for ref in refs])
            for region, refs in zip(node.regions, captured, strict=True)
        ]
        op = node.op if "." in node.op else f"stablehlo.{node.op}"
        operands = [self._typed(body, ref) for ref in explicit]
        return self._emit(body, op, operands, node.results, node.attributes, regions)

    def _reduce(self, body: Body, node: Node) -> list[str]:
        contraction = as_contraction(node, body.region)
        if contraction is not None:
            return [self._contract(body, contraction, node.results[0])]
        explicit, captured = split_captures(node)
        combiner, _, dims = node.attributes.rpartition("dimensions = ")
        attributes = f"dimensions = {_ints(read_ints(dims))}"
        operands = [self._typed(body, ref) for ref in explicit]
        regions: list[tuple[Region, list[str]]]
        if node.regions:
            regions = [(node.regions[0], [self._value(body, ref) for ref in captured[0]])]
        else:
            op = combiner.removeprefix("combiner = ").removesuffix(", ")
            scalar = ValueType(node.results[0].element, ())
            inner = Node(op, "", (Ref(0, 0, ()), Ref(1, 0, ())), (), (scalar,))
            regions = [(Region((scalar, scalar), (), (inner,), (Ref(2, 0, ()),)), [])]
        return self._emit(body, "stablehlo.reduce", operands, node.results, attributes, regions)

    def _contract(self, body: Body, contraction: Contraction, result: ValueType) -> str:
        """Emit a ``dot_general`` whose operands keep their axis order, and transpose its result."""
        lhs, rhs = (self._typed(body, ref) for ref in contraction.factors)
        kind = ValueType(result.element, contraction.result_dims)
        numbers = ", ".join(
            f"{key} = [{', '.join(map(str, dims))}]" for key, dims in contraction.numbers if dims
        )
        attributes = f"dot_dimension_numbers = #stablehlo.dot<{numbers}>"
        attributes += f", {contraction.attributes}" if contraction.attributes else ""
        (name,) = self._emit(body, "stablehlo.dot_general", [lhs, rhs], [kind], attributes)
        if list(contraction.permutation) == sorted(contraction.permutation):
            return name
        attributes = f"permutation = {_ints(contraction.permutation)}"
        return self._emit(body, "stablehlo.transpose", [(name, kind)], [result], attributes)[0]


def split_captures(node: Node) -> tuple[tuple[Ref, ...], list[tuple[Ref, ...]]]:
    """Return a node's own operands, and the captured values of each region."""
    counts = [len(region.captures) for region in node.regions]
    end = len(node.operands) - sum(counts)
    explicit = node.operands[:end]
    captured: list[tuple[Ref, ...]] = []
    for count in counts:
        captured.append(node.operands[end : end + count])
        end += count
    return explicit, captured


def _needed(region: Region) -> list[bool]:
    """Which nodes are emitted: live ones, without products that a ``dot_general`` computes."""
    base = len(region.params) + len(region.captures)
    needed = [False] * len(region.nodes)
    for ref in region.results:
        if ref.node >= base:
            needed[ref.node - base] = True
    for index in range(len(region.nodes) - 1, -1, -1):
        if not needed[index]:
            continue
        node = region.nodes[index]
        contraction = as_contraction(node, region) if node.op == "reduce" else None
        for ref in contraction.factors if contraction else node.operands:
            if ref.node >= base:
                needed[ref.node - base] = True
    return needed


def _comparison(attributes: str) -> str:
    direction, _, kind = attributes.partition(", ")
    text = f"comparison_direction = #stablehlo<comparison_direction {direction}>"
    return f"{text}, compare_type = #stablehlo<comparison_type {kind}>" if kind else text


def _dense(content: str, type: ValueType) -> str:
    if content.startswith("="):
        lacks_point = type.element in SMALL_FLOATS and content[1:].isdigit()
        return f"dense<{content[1:]}{'.0' if lacks_point else ''}>"
    return f'dense<"0x{content.upper()}">' if content else "dense<>"


def _ints(values: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


class LinalgRenderer(StablehloRenderer):
    """Renders a linalg program: every node is opaque."""

    def _node(self, body: Body, node: Node) -> list[str]:
        return self._opaque(body, node)


def render(spec_text: str, args: ArgSpec) -> str:
    """Return the module text of a spec for these arguments: StableHLO (with CHLO), or linalg on tensors."""
    graph = parse_spec(spec_text)
    return render_graph(instantiate(graph, fixed_sizes(graph, args)))


def render_graph(graph: Graph) -> str:
    """Return the module text of a graph."""
    match graph.family:
        case "stablehlo":
            return StablehloRenderer().module(graph.body)
        case "linalg":
            return LinalgRenderer().module(graph.body)
        case family:
            raise UnsupportedOp(family, "no renderer for this family")
