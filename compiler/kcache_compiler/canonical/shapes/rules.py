"""One shape rule an operation: which dims of its operands and results are one size.

A rule may say less than holds, which pins sizes or keeps symbols apart, never more. What no rule mentions
keeps its sizes (``pinned``). ``loose`` dims of a result are those along which it is the same value by
construction (broadcasts, splat constants): they are of the use, not of the value, so that a broadcast that
two users share ties their sizes no more than two broadcasts would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kcache_compiler.canonical.graph import DYNAMIC, ValueType
from kcache_compiler.canonical.ops import ASSERTED, ELEMENTWISE, IDENTITY_CALLS, native_chlo
from kcache_compiler.canonical.shapes.groups import only_ones_differ, reshape_groups
from kcache_compiler.canonical.shapes.solver import Solver
from kcache_compiler.canonical.tape import Block, Entry
from kcache_compiler.frontends.context import Native, native_stablehlo

Dims = tuple[int, ...]

_NOTHING: frozenset[int] = frozenset()


class Step:
    """One operation as a rule sees it: dims of operands as used here, of results, of its regions."""

    __slots__ = (
        "blocks",
        "entry",
        "loose_in",
        "loose_out",
        "operands",
        "results",
        "solver",
        "types",
    )

    def __init__(
        self,
        solver: Solver,
        entry: Entry,
        results: Sequence[Dims],
        loose_in: Sequence[frozenset[int]],
        types: Sequence[ValueType],
        blocks: Sequence[tuple[Block, Sequence[Dims], Sequence[Dims]]],
    ) -> None:
        self.solver = solver
        self.entry = entry
        self.operands: Sequence[Dims] = entry.dims
        self.results = results
        #: Loose dims of the operands; the rule fills in those of the results.
        self.loose_in = loose_in
        self.loose_out: list[frozenset[int]] = [frozenset()] * len(results)
        #: Regions with the dims of their parameters and of what they return.
        self.blocks = blocks
        self.types = types

    @property
    def attributes(self) -> Native:
        """The attributes of the operation."""
        return self.entry.operation.attributes

    @property
    def plain(self) -> bool:
        """Whether all elements are plain, so that views may show the values."""
        return not any("!" in t.element or "#" in t.element for t in self.types)

    def ints(self, name: str) -> list[int]:
        """Return an attribute that is a list of integers; empty when it is absent."""
        try:
            return list(self.attributes[name])
        except KeyError:
            return []

    def pin(self, *shapes: Dims) -> None:
        """Let dims keep their sizes."""
        for dims in shapes:
            self.solver.pin(*dims)

    def same(self, a: int, b: int) -> None:
        """Say that two dims agree."""
        self.solver.union(a, b)

    def match(self, a: Dims, b: Dims) -> None:
        """Say that two shapes agree."""
        union = self.solver.union
        for x, y in zip(a, b, strict=True):
            union(x, y)

    def same_or_pinned(self, a: int, b: int) -> None:
        """Say that two dims agree where their sizes do: the whole axis is taken; else both keep theirs."""
        if self.solver.size(a) == self.solver.size(b) != DYNAMIC:
            self.solver.union(a, b)
        else:
            self.solver.pin(a, b)


Rule = Callable[[Step], None]


def pinned(step: Step) -> None:
    """Everything keeps its sizes: the rule of operations that have no rule."""
    step.pin(*step.operands, *step.results)
    for _, parameters, results in step.blocks:
        step.pin(*parameters, *results)


def elementwise(step: Step) -> None:
    """All operands that are no scalars have the result's shape."""
    (result,) = step.results
    loose = frozenset(range(len(result))) if step.plain else _NOTHING
    for dims, own in zip(step.operands, step.loose_in, strict=True):
        if len(dims) == len(result):
            step.match(dims, result)
            loose &= own
    step.loose_out = [loose]


def constant(step: Step) -> None:
    """A splat has the sizes of its use; the sizes of anything else are part of it."""
    (result,) = step.results
    empty = any(step.solver.size(dim) == 0 for dim in result)
    if step.plain and (empty or step.entry.splat):
        step.loose_out = [frozenset(range(len(result)))]
    else:
        step.pin(result)


def constant_like(step: Step) -> None:
    """A splat; of unknown sizes, those of the operand."""
    if any(step.solver.size(dim) == DYNAMIC for dim in step.operands[0]):
        step.match(step.operands[0], step.results[0])
        return
    step.loose_out = [frozenset(range(len(step.results[0])))]


def iota(step: Step) -> None:
    """Each index is the same along all dims but one, whose size is the result's."""
    if step.plain:
        (result,) = step.results
        along: int = step.attributes["iota_dimension"].value
        step.loose_out = [frozenset(d for d in range(len(result)) if d != along)]
    else:
        pinned(step)


def identity(step: Step) -> None:
    """Results are operands."""
    if len(step.operands) != len(step.results):
        pinned(step)
        return
    for dims, result in zip(step.operands, step.results, strict=True):
        step.match(dims, result)
    step.loose_out = list(step.loose_in)


def broadcast_in_dim(step: Step) -> None:
    """Each operand dim is a result dim, or of size 1 and repeated."""
    (operand,), (result,) = step.operands, step.results
    if not step.plain or any(step.solver.size(d) == DYNAMIC for d in operand):
        _broadcast_open(step, operand, result)
        return
    loose = set(range(len(result)))
    for d, target in enumerate(step.ints("broadcast_dimensions")):
        if step.solver.size(operand[d]) == step.solver.size(result[target]):
            step.same(operand[d], result[target])
            if d not in step.loose_in[0] and step.solver.size(operand[d]) != 1:
                loose.discard(target)
    step.loose_out = [frozenset(loose)]


def _broadcast_open(step: Step, operand: Dims, result: Dims) -> None:
    """A dim of unknown size may be 1 and repeated: it is not tied to the result's."""
    for d, target in enumerate(step.ints("broadcast_dimensions")):
        if DYNAMIC not in (size := (step.solver.size(operand[d]), step.solver.size(result[target]))) and (
            size[0] == size[1]
        ):
            step.same(operand[d], result[target])


def broadcast(step: Step) -> None:
    """New dims in front."""
    (operand,), (result,) = step.operands, step.results
    new = len(result) - len(operand)
    step.match(operand, result[new:])
    if step.plain:
        step.loose_out = [frozenset([*range(new), *(d + new for d in step.loose_in[0])])]


def implicit_broadcast(step: Step) -> None:
    """CHLO: trailing dims agree, or are 1 and repeated; ``broadcast_dimensions`` place the smaller one."""
    (result,) = step.results
    largest = max((len(dims) for dims in step.operands), default=0)
    where = step.ints("broadcast_dimensions")
    loose = set(range(len(result))) if step.plain else set[int]()
    for dims, own in zip(step.operands, step.loose_in, strict=True):
        targets = where if where and len(dims) < largest else range(len(result) - len(dims), len(result))
        for d, target in enumerate(targets):
            if step.solver.size(dims[d]) == step.solver.size(result[target]) != DYNAMIC:
                step.same(dims[d], result[target])
                if d not in own and step.solver.size(dims[d]) != 1:
                    loose.discard(target)
            elif step.solver.size(dims[d]) != 1:
                step.pin(dims, result)
    step.loose_out = [frozenset(loose)]


def transpose(step: Step) -> None:
    """Dims change places."""
    (operand,), (result,) = step.operands, step.results
    permutation = step.ints("permutation")
    step.match(tuple(operand[p] for p in permutation), result)
    if step.plain:
        step.loose_out = [frozenset(i for i, p in enumerate(permutation) if p in step.loose_in[0])]


def reshape(step: Step) -> None:
    """Runs of dims with equal products: one dim for one, or a product."""
    (operand,), (result,) = step.operands, step.results
    solver = step.solver
    sizes = [[solver.size(d) for d in dims] for dims in (operand, result)]
    open_ = DYNAMIC in sizes[0] or DYNAMIC in sizes[1]
    # A product with an empty axis in it tells nothing of the others.
    empty = 0 in sizes[0] and not only_ones_differ(sizes[0], sizes[1])
    if not step.plain or open_ or empty:
        step.pin(operand, result)
        return
    loose = {d for d in range(len(result)) if sizes[1][d] == 1}
    for ins, outs in reshape_groups(sizes[0], sizes[1]):
        if len(ins) == 1 and len(outs) == 1:
            step.same(operand[ins[0]], result[outs[0]])
        else:
            solver.product([operand[d] for d in ins], [result[d] for d in outs])
        if all(d in step.loose_in[0] for d in ins):
            loose |= set(outs)
    step.loose_out = [frozenset(loose)]


def reduce(step: Step) -> None:
    """Kept dims are the result's, all inputs have one shape; initial values are scalars."""
    inputs = step.operands[: len(step.operands) // 2]
    reduced = set(step.ints("dimensions"))
    kept = [d for d in range(len(inputs[0])) if d not in reduced]
    loose = set(range(len(kept))) if step.plain else set[int]()
    for dims, own in zip(inputs, step.loose_in, strict=False):
        step.match(inputs[0], dims)
        loose &= {i for i, d in enumerate(kept) if d in own}
    for result in step.results:
        step.match(tuple(inputs[0][d] for d in kept), result)
    step.loose_out = [frozenset(loose)] * len(step.results)


def dot_general(step: Step) -> None:
    """Batching and contracting dims agree; the others are the result's."""
    n = native_stablehlo().DotDimensionNumbers(step.attributes["dot_dimension_numbers"])
    _contract(
        step,
        (list(n.lhs_batching_dimensions), list(n.rhs_batching_dimensions)),
        (list(n.lhs_contracting_dimensions), list(n.rhs_contracting_dimensions)),
    )


def dot(step: Step) -> None:
    """The last dim of the left with the first of the right."""
    _contract(step, ([], []), ([len(step.operands[0]) - 1], [0]))


def _contract(
    step: Step, batching: tuple[list[int], list[int]], contracting: tuple[list[int], list[int]]
) -> None:
    lhs, rhs = step.operands
    for a, b in (*zip(*batching, strict=True), *zip(*contracting, strict=True)):
        step.same(lhs[a], rhs[b])
    free = [
        [d for d in range(len(dims)) if d not in batching[i] and d not in contracting[i]]
        for i, dims in enumerate((lhs, rhs))
    ]
    places = [
        *((0, d) for d in batching[0]),
        *((0, d) for d in free[0]),
        *((1, d) for d in free[1]),
    ]
    (result,) = step.results
    step.match(tuple(step.operands[i][d] for i, d in places), result)
    if step.plain:
        loose = {at for at, (i, d) in enumerate(places) if d in step.loose_in[i]}
        loose -= {at for at, d in enumerate(batching[1]) if d not in step.loose_in[1]}
        step.loose_out = [frozenset(loose)]


def concatenate(step: Step) -> None:
    """All dims agree but the one along which the operands are joined, which keeps its sizes."""
    along: int = step.attributes["dimension"].value
    (result,) = step.results
    for dims in step.operands:
        for d, (a, b) in enumerate(zip(dims, result, strict=True)):
            if d != along or len(step.operands) == 1:
                step.same(a, b)
            else:
                step.pin((a, b))
    if len(step.operands) == 1:
        step.loose_out = list(step.loose_in)


def slice(step: Step) -> None:
    """Dims that are taken whole agree; the others keep their sizes."""
    (operand,), (result,) = step.operands, step.results
    starts, strides = step.ints("start_indices"), step.ints("strides")
    for a, b, start, stride in zip(operand, result, starts, strides, strict=True):
        whole = start == 0 and stride == 1 and step.solver.size(a) == step.solver.size(b) != DYNAMIC
        if whole:
            step.same(a, b)
        else:
            step.pin((a, b))


def dynamic_slice(step: Step) -> None:
    """Dims that are taken whole agree; of the others the slice keeps its size, the operand is free."""
    operand, (result,) = step.operands[0], step.results
    for a, b in zip(operand, result, strict=True):
        _whole_or_part(step, a, b)


def _whole_or_part(step: Step, whole: int, part: int) -> None:
    if step.solver.size(whole) == step.solver.size(part) != DYNAMIC:
        step.same(whole, part)
    else:
        step.pin((part,))


def dynamic_update_slice(step: Step) -> None:
    """The result has the operand's shape; dims that the update covers agree, the others keep its size."""
    operand, update, (result,) = step.operands[0], step.operands[1], step.results
    step.match(operand, result)
    for a, b in zip(operand, update, strict=True):
        _whole_or_part(step, a, b)


def pad(step: Step) -> None:
    """Dims without padding agree; the others keep their sizes."""
    operand, (result,) = step.operands[0], step.results
    edges = zip(
        step.ints("edge_padding_low"),
        step.ints("edge_padding_high"),
        step.ints("interior_padding"),
        strict=True,
    )
    for a, b, padding in zip(operand, result, edges, strict=True):
        if any(padding):
            step.pin((a, b))
        else:
            step.same(a, b)


def reverse(step: Step) -> None:
    """The result has the operand's shape; along loose dims nothing changes."""
    step.match(step.operands[0], step.results[0])


def gather(step: Step) -> None:
    """Dims of the indices are the result's batch dims; offset dims agree with dims that are taken whole."""
    numbers = native_stablehlo().GatherDimensionNumbers(step.attributes["dimension_numbers"])
    operand, indices, (result,) = step.operands[0], step.operands[1], step.results
    sizes = step.ints("slice_sizes")
    offsets: list[int] = list(numbers.offset_dims)
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = [d for d in range(len(operand)) if d not in dropped]
    for d, at in zip(window, offsets, strict=True):
        if sizes[d] == step.solver.size(operand[d]):
            step.same(operand[d], result[at])
        else:
            step.pin((result[at],))
    batch = [i for i in range(len(indices)) if i != numbers.index_vector_dim]
    places = [d for d in range(len(result)) if d not in offsets]
    for i, at in zip(batch, places, strict=True):
        step.same(indices[i], result[at])
    for a, b in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        step.same(operand[int(a)], indices[int(b)])
    _pin_vector(step, indices, numbers.index_vector_dim)


def _pin_vector(step: Step, indices: Dims, at: int) -> None:
    """The number of indices that one look-up takes is part of the operation."""
    if at < len(indices):
        step.pin((indices[at],))


def scatter(step: Step) -> None:
    """Results have the inputs' shapes; dims of the indices are the updates' scatter dims."""
    numbers = native_stablehlo().ScatterDimensionNumbers(step.attributes["scatter_dimension_numbers"])
    count = len(step.results)
    inputs, indices, updates = step.operands[:count], step.operands[count], step.operands[count + 1 :]
    windows: list[int] = list(numbers.update_window_dims)
    dropped = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    for dims, update, result in zip(inputs, updates, step.results, strict=True):
        step.match(inputs[0], dims)
        step.match(dims, result)
        window = [d for d in range(len(dims)) if d not in dropped]
        for d, at in zip(window, windows, strict=True):
            _whole_or_part(step, dims[d], update[at])
        batch = [i for i in range(len(indices)) if i != numbers.index_vector_dim]
        places = [d for d in range(len(update)) if d not in windows]
        for i, at in zip(batch, places, strict=True):
            step.same(indices[i], update[at])
    for a, b in zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
        step.same(inputs[0][int(a)], indices[int(b)])
    _pin_vector(step, indices, numbers.index_vector_dim)


def convolution(step: Step) -> None:
    """Batch and features agree where nothing is grouped; spatial dims agree where the padding keeps them."""
    n = native_stablehlo().ConvDimensionNumbers(step.attributes["dimension_numbers"])
    (image, kernel), (result,) = step.operands, step.results
    grouped = step.attributes["feature_group_count"].value != 1
    batched = step.attributes["batch_group_count"].value != 1
    pairs = [
        (image[int(n.input_batch_dimension)], result[int(n.output_batch_dimension)], batched),
        (image[int(n.input_feature_dimension)], kernel[int(n.kernel_input_feature_dimension)], grouped),
        (
            kernel[int(n.kernel_output_feature_dimension)],
            result[int(n.output_feature_dimension)],
            grouped or batched,
        ),
    ]
    for a, b, fixed in pairs:
        if fixed:
            step.pin((a, b))
        else:
            step.same(a, b)
    spatial: zip[tuple[int, int, int]] = zip(
        n.input_spatial_dimensions, n.kernel_spatial_dimensions, n.output_spatial_dimensions, strict=True
    )
    strides, dilation = step.ints("window_strides"), step.ints("lhs_dilation")
    for i, (at, of, to) in enumerate(spatial):
        step.pin((kernel[of],))
        sliding = (not strides or strides[i] == 1) and (not dilation or dilation[i] == 1)
        if sliding and step.solver.size(image[at]) != DYNAMIC:
            step.same_or_pinned(image[at], result[to])
        else:
            step.pin((image[at], result[to]))


def reduce_window(step: Step) -> None:
    """Dims over which no window slides agree, and those that windows of fixed sizes leave as long."""
    half = len(step.operands) // 2
    window = step.ints("window_dimensions")
    strides, dilations = step.ints("window_strides"), step.ints("base_dilations")
    for dims in step.operands[:half]:
        step.match(step.operands[0], dims)
    padding = [tuple(int(p) for p in row) for row in _rows(step, "padding", len(window))]
    for result in step.results:
        for d, (a, b) in enumerate(zip(step.operands[0], result, strict=True)):
            sliding = (not strides or strides[d] == 1) and (not dilations or dilations[d] == 1)
            edge = window[d] - 1
            running = window[d] == step.solver.size(a) and padding[d] in ((edge, 0), (0, edge))
            if sliding and not running:
                step.same_or_pinned(a, b)
            else:
                step.pin((a, b))


def _rows(step: Step, name: str, count: int) -> list[tuple[int, int]]:
    """Return an attribute that is pairs of integers; zeros when it is absent."""
    if name not in step.attributes:
        return [(0, 0)] * count
    flat = [int(value) for value in step.attributes[name]]
    return list(zip(flat[::2], flat[1::2], strict=True))


def select_and_scatter(step: Step) -> None:
    """The result has the operand's shape; the source is what its windows leave."""
    operand, source, (result,) = step.operands[0], step.operands[1], step.results
    step.match(operand, result)
    window, strides = step.ints("window_dimensions"), step.ints("window_strides")
    for d, (a, b) in enumerate(zip(operand, source, strict=True)):
        if (not window or window[d] == 1) and (not strides or strides[d] == 1):
            step.same_or_pinned(a, b)
        else:
            step.pin((a, b))


def sort(step: Step) -> None:
    """All operands and results have one shape."""
    for dims in (*step.operands, *step.results):
        step.match(step.operands[0], dims)


def map_(step: Step) -> None:
    """All operands and results have one shape."""
    sort(step)


def while_(step: Step) -> None:
    """What is carried keeps its shape."""
    condition, body = step.blocks
    for i, result in enumerate(step.results):
        for dims in (step.operands[i], condition[1][i], body[1][i], body[2][i]):
            step.match(result, dims)


def branches(step: Step) -> None:
    """Each branch returns what the results are."""
    for _, _, returned in step.blocks:
        for dims, result in zip(returned, step.results, strict=True):
            step.match(dims, result)


def cholesky(step: Step) -> None:
    """A stack of square matrices."""
    (operand,), (result,) = step.operands, step.results
    step.match(operand, result)
    step.same(operand[-1], operand[-2])


def triangular_solve(step: Step) -> None:
    """A stack of square matrices beside a stack of right sides, on the side that the attribute says."""
    (a, b), (result,) = step.operands, step.results
    step.match(b, result)
    step.match(a[:-2], b[:-2])
    step.same(a[-1], a[-2])
    left = step.attributes["left_side"].value if "left_side" in step.attributes else True
    step.same(a[-1], b[-2] if left else b[-1])


def fft(step: Step) -> None:
    """Dims that are not transformed agree; the others keep their sizes."""
    (operand,), (result,) = step.operands, step.results
    batch = len(operand) - len(step.ints("fft_length"))
    step.match(operand[:batch], result[:batch])
    step.pin(operand[batch:], result[batch:])


def batch_norm(step: Step) -> None:
    """Vectors have the size of the feature dim; tensors have one shape."""
    feature: int = step.attributes["feature_index"].value
    first = step.operands[0]
    for dims in (*step.operands, *step.results):
        if len(dims) == 1:
            step.same(dims[0], first[feature])
        else:
            step.match(dims, first)


def rng_bit_generator(step: Step) -> None:
    """The state keeps its shape; the size of the output says how many numbers are drawn."""
    step.pin(step.operands[0], *step.results)


def bitcast_convert(step: Step) -> None:
    """Dims agree; a dim that holds the parts of one element keeps its size."""
    (operand,), (result,) = step.operands, step.results
    common = min(len(operand), len(result))
    step.match(operand[:common], result[:common])
    step.pin(operand[common:], result[common:])
    if step.plain and len(operand) == len(result):
        step.loose_out = list(step.loose_in)


def get_dimension_size(step: Step) -> None:
    """The size that it gives is part of the program."""
    dimension: int = step.attributes["dimension"].value
    step.pin((step.operands[0][dimension],))


def set_dimension_size(step: Step) -> None:
    """Dims agree but the one whose size is set."""
    dimension: int = step.attributes["dimension"].value
    for d, (a, b) in enumerate(zip(step.operands[0], step.results[0], strict=True)):
        if d == dimension:
            step.pin((a, b))
        else:
            step.same(a, b)


def custom_call(step: Step) -> None:
    """Calls that are operations follow their rules; of others nothing is known."""
    target: str = step.attributes["call_target_name"].value
    if native_chlo(target) and len(step.results) == 1:
        elementwise(step)
    elif target in IDENTITY_CALLS:
        identity(step)
    elif target == ASSERTED and len(step.results) == 1:
        step.match(step.operands[0], step.results[0])
    else:
        pinned(step)


def linalg_generic(step: Step) -> None:
    """Dims that a map reads by one loop are that loop's size; the others keep theirs."""
    loops: dict[int, int] = {}
    maps = step.attributes["indexing_maps"]
    shapes = [*step.operands]
    for position in range(len(maps)):
        dims = shapes[position]
        for dim, expression in zip(dims, _loops(str(maps[position])), strict=True):
            if expression is None:
                step.pin((dim,))
            else:
                step.same(loops.setdefault(expression, dim), dim)
    count = len(step.results)
    for init, result in zip(shapes[len(shapes) - count :], step.results, strict=True):
        step.match(init, result)


def _loops(text: str) -> list[int | None]:
    """Return the loop that each result of an affine map is, None where it is something else."""
    inside = (
        text[text.index("->") + 2 :].strip().removesuffix(">").strip().removeprefix("(").removesuffix(")")
    )
    parts = [part.strip() for part in inside.split(",") if part.strip()]
    return [int(p[1:]) if p[:1] == "d" and p[1:].isdigit() else None for p in parts]


def linalg_empty(step: Step) -> None:
    """Its sizes are those of its use."""


RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    "stablehlo.compare": elementwise,
    "stablehlo.constant": constant,
    "arith.constant": constant,
    "chlo.constant": constant,
    "chlo.constant_like": constant_like,
    "stablehlo.composite": elementwise,
    "stablehlo.bitcast_convert": bitcast_convert,
    "stablehlo.iota": iota,
    "stablehlo.broadcast_in_dim": broadcast_in_dim,
    "stablehlo.broadcast": broadcast,
    "stablehlo.transpose": transpose,
    "stablehlo.reshape": reshape,
    "stablehlo.reduce": reduce,
    "stablehlo.dot_general": dot_general,
    "stablehlo.dot": dot,
    "stablehlo.concatenate": concatenate,
    "stablehlo.slice": slice,
    "stablehlo.dynamic_slice": dynamic_slice,
    "stablehlo.dynamic_update_slice": dynamic_update_slice,
    "stablehlo.pad": pad,
    "stablehlo.reverse": reverse,
    "stablehlo.gather": gather,
    "stablehlo.scatter": scatter,
    "stablehlo.convolution": convolution,
    "stablehlo.reduce_window": reduce_window,
    "stablehlo.select_and_scatter": select_and_scatter,
    "stablehlo.sort": sort,
    "stablehlo.map": map_,
    "stablehlo.while": while_,
    "stablehlo.case": branches,
    "stablehlo.if": branches,
    "stablehlo.cholesky": cholesky,
    "stablehlo.triangular_solve": triangular_solve,
    "stablehlo.fft": fft,
    "stablehlo.batch_norm_inference": batch_norm,
    "stablehlo.batch_norm_training": batch_norm,
    "stablehlo.batch_norm_grad": batch_norm,
    "stablehlo.rng": pinned,
    "stablehlo.rng_bit_generator": rng_bit_generator,
    "stablehlo.get_dimension_size": get_dimension_size,
    "stablehlo.set_dimension_size": set_dimension_size,
    "stablehlo.optimization_barrier": identity,
    "stablehlo.custom_call": custom_call,
    "linalg.generic": linalg_generic,
    "tensor.empty": linalg_empty,
}


def rule_of(name: str) -> Rule:
    """Return the rule of an operation, by native name."""
    if name.startswith("chlo.broadcast_"):
        return implicit_broadcast
    return RULES.get(name, pinned)
