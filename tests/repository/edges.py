"""Programs at the edges of what compiles, beyond the op suite: docs/reference/support.md lists them, a test runs them."""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import enum
from dataclasses import dataclass


class Outcome(enum.Enum):
    """What happens to a program."""

    COMPILES = "compiles"
    #: It has a key: normalize, store and lookup work.
    NOT_COMPILED = "`compile` raises `UnsupportedOp`"
    #: The same, but as an error of a stage that does not name the op.
    FAILS = "`compile` raises `CompileFailed`"
    NO_KEY = "no key: `UnsupportedOp` from every method"


@dataclass(frozen=True)
class Edge:
    """A program that shows what happens to ``name``."""

    name: str
    format: str
    outcome: Outcome
    program: str


def edges() -> tuple[Edge, ...]:
    """All of them, in the page's order."""
    return (*_stablehlo(), *_types(), *_linalg())


def _main(arguments: str, results: str, body: str) -> str:
    return f"func.func @main({arguments}) -> ({results}) {{\n{body}\nreturn %r : {results}\n}}\n"


_V = "tensor<4xf32>"
_ADDED = (
    "({\n^bb0(%p: tensor<f32>, %q: tensor<f32>):\n%s = stablehlo.add %p, %q : tensor<f32>\n"
    "stablehlo.return %s : tensor<f32>\n})"
)
_GREATER = (
    "({\n^bb0(%p: tensor<f32>, %q: tensor<f32>):\n%s = stablehlo.compare GE, %p, %q : "
    "(tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %s : tensor<i1>\n})"
)


def _stablehlo() -> list[Edge]:
    compiles, not_compiled, no_key = Outcome.COMPILES, Outcome.NOT_COMPILED, Outcome.NO_KEY
    same = "func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> {\nreturn %x : tensor<4xf32>\n}\n"
    cases: list[tuple[str, Outcome, str]] = [
        (
            "`stablehlo.map`",
            compiles,
            _main(
                f"%x: {_V}",
                _V,
                '%r = "stablehlo.map"(%x) <{dimensions = array<i64: 0>}> ({\n^bb0(%p: tensor<f32>):\n'
                "%s = stablehlo.add %p, %p : tensor<f32>\nstablehlo.return %s : tensor<f32>\n})"
                f" : ({_V}) -> {_V}",
            ),
        ),
        (
            "`stablehlo.select_and_scatter`",
            compiles,
            _main(
                f"%x: {_V}, %y: tensor<2xf32>, %i: tensor<f32>",
                _V,
                '%r = "stablehlo.select_and_scatter"(%x, %y, %i) <{window_dimensions = array<i64: 2>, '
                f"window_strides = array<i64: 2>}}> {_GREATER[:-1]}, {_ADDED[1:]} : ({_V}, tensor<2xf32>, tensor<f32>)"
                f" -> {_V}",
            ),
        ),
        (
            "`stablehlo.rng`",
            compiles,
            _main(
                "%a: tensor<f32>, %s: tensor<1xi64>",
                _V,
                "%r = stablehlo.rng %a, %a, %s, distribution = UNIFORM : "
                f"(tensor<f32>, tensor<f32>, tensor<1xi64>) -> {_V}",
            ),
        ),
        (
            "`stablehlo.rng_bit_generator`",
            compiles,
            _main(
                "%s: tensor<2xui64>",
                "tensor<4xui32>",
                "%n, %r = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : (tensor<2xui64>) -> "
                "(tensor<2xui64>, tensor<4xui32>)",
            ),
        ),
        (
            "`stablehlo.optimization_barrier`",
            compiles,
            _main(f"%x: {_V}", _V, f"%r = stablehlo.optimization_barrier %x : {_V}"),
        ),
        (
            "`stablehlo.get_dimension_size`",
            compiles,
            _main(
                "%x: tensor<?xf32>",
                "tensor<i32>",
                "%r = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>",
            ),
        ),
        (
            "`stablehlo.composite`, by its decomposition",
            compiles,
            _main(
                f"%x: {_V}",
                _V,
                f'%r = stablehlo.composite "a.b" %x {{decomposition = @f}} : ({_V}) -> {_V}',
            )
            + same,
        ),
        (
            "`stablehlo.batch_norm_grad`",
            compiles,
            _main(
                "%x: tensor<4x3xf32>, %s: tensor<3xf32>",
                "tensor<4x3xf32>",
                '%r, %t, %u = "stablehlo.batch_norm_grad"(%x, %s, %s, %s, %x) <{epsilon = 0.125 : f32, '
                "feature_index = 1 : i64}> : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, "
                "tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>)",
            ),
        ),
        (
            "`stablehlo.triangular_solve`",
            compiles,
            _main(
                "%a: tensor<3x3xf32>, %b: tensor<3x2xf32>",
                "tensor<3x2xf32>",
                '%r = "stablehlo.triangular_solve"(%a, %b) <{left_side = true, lower = true, '
                "unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}> : "
                "(tensor<3x3xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>",
            ),
        ),
        (
            "`stablehlo.custom_call`",
            not_compiled,
            _main(f"%x: {_V}", _V, f"%r = stablehlo.custom_call @anything(%x) : ({_V}) -> {_V}"),
        ),
        (
            "`stablehlo.dynamic_gather` of slices whose sizes depend on data",
            not_compiled,
            _main(
                "%x: tensor<5x7xf32>, %i: tensor<6x1xi32>, %t: tensor<1x2xi32>",
                "tensor<6x?xf32>",
                "%s = stablehlo.reshape %t : (tensor<1x2xi32>) -> tensor<2xi32>\n"
                '%r = "stablehlo.dynamic_gather"(%x, %i, %s) <{dimension_numbers = #stablehlo.gather<'
                "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> "
                ": (tensor<5x7xf32>, tensor<6x1xi32>, tensor<2xi32>) -> tensor<6x?xf32>",
            ),
        ),
        (
            "`stablehlo.set_dimension_size` to a size that depends on data",
            not_compiled,
            _main(
                f"%x: {_V}, %n: tensor<i32>",
                "tensor<?xf32>",
                f"%r = stablehlo.set_dimension_size %x, %n, dim = 0 : ({_V}, tensor<i32>) -> tensor<?xf32>",
            ),
        ),
        (
            "sizes that depend on data, such as `stablehlo.dynamic_iota` of elements of a matrix",
            not_compiled,
            _main(
                "%m: tensor<1x1xi32>",
                "tensor<?xf32>",
                "%n = stablehlo.reshape %m : (tensor<1x1xi32>) -> tensor<1xi32>\n"
                "%r = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>",
            ),
        ),
        (
            "`stablehlo.dot_general` of i1",
            compiles,
            _main(
                "%a: tensor<3x4xi1>, %b: tensor<4x2xi1>",
                "tensor<3x2xi1>",
                "%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : "
                "(tensor<3x4xi1>, tensor<4x2xi1>) -> tensor<3x2xi1>",
            ),
        ),
        (
            "`stablehlo.convolution` of i1",
            compiles,
            _main(
                "%x: tensor<1x4x1xi1>, %k: tensor<2x1x1xi1>",
                "tensor<1x3x1xi1>",
                "%r = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} "
                "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
                "(tensor<1x4x1xi1>, tensor<2x1x1xi1>) -> tensor<1x3x1xi1>",
            ),
        ),
        (
            "`stablehlo.tuple`",
            compiles,
            _main(
                f"%x: {_V}",
                _V,
                f"%t = stablehlo.tuple %x : tuple<{_V}>\n"
                f"%r = stablehlo.get_tuple_element %t[0] : (tuple<{_V}>) -> {_V}",
            ),
        ),
        (
            "`stablehlo.uniform_quantize`",
            compiles,
            _main(
                f"%x: {_V}",
                _V,
                f"%q = stablehlo.uniform_quantize %x : ({_V}) -> tensor<4x!quant.uniform<i8:f32, 0.5:1>>\n"
                f"%r = stablehlo.uniform_dequantize %q : (tensor<4x!quant.uniform<i8:f32, 0.5:1>>) -> {_V}",
            ),
        ),
        (
            "`chlo.top_k`, which becomes a sort",
            compiles,
            _main(
                f"%x: {_V}",
                "tensor<2xf32>",
                f"%r, %i = chlo.top_k(%x, k = 2) : {_V} -> (tensor<2xf32>, tensor<2xi32>)",
            ),
        ),
        (
            "`stablehlo.custom_call` that calls functions of the program",
            no_key,
            _main(
                f"%x: {_V}",
                _V,
                f"%r = stablehlo.custom_call @anything(%x) {{called_computations = [@f]}} : ({_V}) -> {_V}",
            )
            + same,
        ),
        (
            "`stablehlo.custom_call @shape_assertion` of what depends on data",
            not_compiled,
            _main(
                f"%c: tensor<i1>, %r: {_V}",
                _V,
                'stablehlo.custom_call @shape_assertion(%c) {has_side_effect = true, error_message = "no"} : '
                "(tensor<i1>) -> ()",
            ),
        ),
        (
            "communication between devices, such as `stablehlo.all_reduce`",
            no_key,
            _main(
                f"%x: {_V}",
                _V,
                '%r = "stablehlo.all_reduce"(%x) <{replica_groups = dense<0> : tensor<1x1xi64>}> '
                f"{_ADDED} : ({_V}) -> {_V}",
            ),
        ),
    ]
    return [Edge(name, "stablehlo", outcome, program) for name, outcome, program in cases]


def _types() -> list[Edge]:
    passed = [
        ("arguments that are tuples", f"tuple<{_V}>"),
        ("arguments that are tokens", "!stablehlo.token"),
        ("arguments of f80", "tensor<4xf80>"),
    ]
    constant = f"%r = stablehlo.constant dense<1.0> : {_V}"
    inside = (
        f"%a = stablehlo.convert %x : ({_V}) -> tensor<4xf8E4M3FN>\n"
        f"%r = stablehlo.convert %a : (tensor<4xf8E4M3FN>) -> {_V}"
    )
    return [
        Edge("f8 inside a program", "stablehlo", Outcome.COMPILES, _main(f"%x: {_V}", _V, inside)),
        *(
            Edge(name, "stablehlo", Outcome.NO_KEY, _main(f"%x: {type}", _V, constant))
            for name, type in passed
        ),
    ]


_T = "tensor<4x8xf32>"
_MAPS = (
    "{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], "
    'iterator_types = ["parallel", "parallel"]}'
)


def _linalg() -> list[Edge]:
    return [
        Edge(f"`{name}`", "linalg", outcome, _main(arguments, result, body))
        for name, outcome, arguments, result, body in (*_structured(), *_tensor_ops(), *_more_linalg())
    ]


_Case = tuple[str, Outcome, str, str, str]


def _structured() -> list[_Case]:
    yes = Outcome.COMPILES
    named: list[tuple[str, tuple[str, ...], str, str]] = [
        ("linalg.exp", (_T,), _T, ""),
        ("linalg.add", (_T, _T), _T, ""),
        ("linalg.matmul", (_T, "tensor<8x5xf32>"), "tensor<4x5xf32>", ""),
        ("linalg.batch_matmul", ("tensor<2x4x8xf32>", "tensor<2x8x5xf32>"), "tensor<2x4x5xf32>", ""),
        ("linalg.conv_1d_nwc_wcf", ("tensor<1x8x3xf32>", "tensor<3x3x2xf32>"), "tensor<1x6x2xf32>", ""),
        (
            "linalg.conv_2d_nhwc_hwcf",
            ("tensor<1x8x8x3xf32>", "tensor<3x3x3x2xf32>"),
            "tensor<1x6x6x2xf32>",
            "",
        ),
        ("linalg.pooling_nhwc_max", ("tensor<1x8x8x3xf32>", "tensor<2x2xf32>"), "tensor<1x7x7x3xf32>", ""),
        ("linalg.transpose", (_T,), "tensor<8x4xf32>", "permutation = [1, 0]"),
        ("linalg.broadcast", ("tensor<4xf32>",), _T, "dimensions = [1]"),
    ]
    cases: list[_Case] = []
    for name, operands, result, tail in named:
        arguments = ", ".join(f"%a{i}: {type}" for i, type in enumerate(operands))
        names = ", ".join(f"%a{i}" for i in range(len(operands)))
        end = tail or f"-> {result}"
        body = f"%r = {name} ins({names} : {', '.join(operands)}) outs(%o : {result}) {end}"
        cases.append((name, yes, f"{arguments}, %o: {result}", result, body))
    generic = (
        f"%r = linalg.generic {_MAPS} ins(%x : {_T}) outs(%o : {_T}) {{\n^bb0(%a: f32, %b: f32):\n"
        "%i = linalg.index 0 : index\n%c = arith.index_cast %i : index to i32\n"
        "%f = arith.sitofp %c : i32 to f32\n%t = math.tanh %a : f32\n%s = arith.addf %t, %f : f32\n"
        f"linalg.yield %s : f32\n}} -> {_T}"
    )
    reduce = f"%r = linalg.reduce {{ arith.addf }} ins(%x : {_T}) outs(%o : tensor<4xf32>) dimensions = [1]"
    fill = f"%z = arith.constant 1.0 : f32\n%r = linalg.fill ins(%z : f32) outs(%x : {_T}) -> {_T}"
    open_ = "tensor<?x8xf32>"
    return [
        (
            f"linalg.add` of `{open_}",
            yes,
            f"%x: {open_}, %o: {open_}",
            open_,
            f"%r = linalg.add ins(%x, %x : {open_}, {open_}) outs(%o : {open_}) -> {open_}",
        ),
        ("linalg.generic", yes, f"%x: {_T}, %o: {_T}", _T, generic),
        (
            "linalg.map",
            yes,
            f"%x: {_T}, %o: {_T}",
            _T,
            f"%r = linalg.map {{ arith.negf }} ins(%x : {_T}) outs(%o : {_T})",
        ),
        ("linalg.reduce", yes, f"%x: {_T}, %o: tensor<4xf32>", "tensor<4xf32>", reduce),
        ("linalg.fill", yes, f"%x: {_T}", _T, fill),
        *cases,
    ]


def _tensor_ops() -> list[_Case]:
    yes, small, flat = Outcome.COMPILES, "tensor<2x3xf32>", "tensor<32xf32>"
    constant = "%z = arith.constant 1.0 : f32\n"
    return [
        (
            "tensor.extract_slice",
            yes,
            f"%x: {_T}",
            small,
            f"%r = tensor.extract_slice %x[1, 2] [2, 3] [1, 2] : {_T} to {small}",
        ),
        (
            "tensor.insert_slice",
            yes,
            f"%x: {_T}, %y: {small}",
            _T,
            f"%r = tensor.insert_slice %y into %x[1, 2] [2, 3] [1, 2] : {small} into {_T}",
        ),
        (
            "tensor.pad",
            yes,
            f"%x: {_T}",
            "tensor<6x9xf32>",
            f"{constant}%r = tensor.pad %x low[1, 0] high[1, 1] {{\n^bb0(%i: index, %j: index):\ntensor.yield %z : f32\n}} : {_T} to tensor<6x9xf32>",
        ),
        (
            "tensor.expand_shape",
            yes,
            f"%x: {flat}",
            _T,
            f"%r = tensor.expand_shape %x [[0, 1]] output_shape [4, 8] : {flat} into {_T}",
        ),
        (
            "tensor.collapse_shape",
            yes,
            f"%x: {_T}",
            flat,
            f"%r = tensor.collapse_shape %x [[0, 1]] : {_T} into {flat}",
        ),
        (
            "tensor.concat",
            yes,
            f"%x: {_T}",
            "tensor<8x8xf32>",
            f"%r = tensor.concat dim(0) %x, %x : ({_T}, {_T}) -> tensor<8x8xf32>",
        ),
        (
            "tensor.generate",
            yes,
            f"%x: {_T}",
            _T,
            f"{constant}%r = tensor.generate {{\n^bb0(%i: index, %j: index):\ntensor.yield %z : f32\n}} : {_T}",
        ),
        ("tensor.splat", yes, f"%x: {_T}", _T, f"{constant}%r = tensor.splat %z : {_T}"),
        (
            "tensor.from_elements",
            yes,
            f"%x: {_T}",
            "tensor<2xf32>",
            f"{constant}%r = tensor.from_elements %z, %z : tensor<2xf32>",
        ),
    ]


def _more_linalg() -> list[_Case]:
    row = "tensor<8xf32>"
    loop = (
        "%i0 = arith.constant 0 : index\n%i1 = arith.constant 1 : index\n%m = tensor.extract %n[] : tensor<i64>\n"
        f"%c = arith.index_cast %m : i64 to index\n%r = scf.for %i = %i0 to %c step %i1 iter_args(%v = %x) -> ({row})"
        f" {{\n%w = arith.addf %v, %x : {row}\nscf.yield %w : {row}\n}}"
    )
    branch = (
        f"%c = tensor.extract %n[] : tensor<i1>\n%r = scf.if %c -> ({row}) {{\n%w = arith.addf %x, %x : {row}\n"
        f"scf.yield %w : {row}\n}} else {{\nscf.yield %x : {row}\n}}"
    )
    return [
        (
            "linalg.softmax",
            Outcome.NOT_COMPILED,
            f"%x: {_T}, %o: {_T}",
            _T,
            f"%r = linalg.softmax dimension(1) ins(%x : {_T}) outs(%o : {_T}) -> {_T}",
        ),
        (
            "tensor.gather",
            Outcome.NO_KEY,
            f"%x: {_T}, %i: tensor<3x1xindex>",
            "tensor<3x8xf32>",
            f"%r = tensor.gather %x[%i] gather_dims([0]) : ({_T}, tensor<3x1xindex>) -> tensor<3x8xf32>",
        ),
        (
            "math.exp` of a whole tensor, and other ops of `math",
            Outcome.COMPILES,
            f"%x: {_T}",
            _T,
            f"%r = math.exp %x : {_T}",
        ),
        (
            "arith.addf` of a whole tensor, and other ops of `arith",
            Outcome.COMPILES,
            f"%x: {_T}",
            _T,
            f"%r = arith.addf %x, %x : {_T}",
        ),
        (
            "scf.for` that carries tensors and adds them with `arith.addf",
            Outcome.COMPILES,
            f"%x: {row}, %n: tensor<i64>",
            row,
            loop,
        ),
        (
            "scf.if` that gives tensors and adds them with `arith.addf",
            Outcome.COMPILES,
            f"%x: {row}, %n: tensor<i1>",
            row,
            branch,
        ),
    ]
