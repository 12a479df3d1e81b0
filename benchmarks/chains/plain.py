"""Operations of one f32 tensor: what a chain of each kind repeats."""

from __future__ import annotations

_V, _C, _R, _G = "tensor<8x8xf32>", "tensor<8x8xcomplex<f32>>", "tensor<8xf32>", "tensor<8x8xui32>"
_SUM = (
    "({{\n^bb0(%p: tensor<f32>, %q: tensor<f32>):\n%s = stablehlo.add %p, %q : tensor<f32>\n"
    "stablehlo.return %s : tensor<f32>\n}})"
)
_LESS = (
    "({{\n^bb0(%p: tensor<f32>, %q: tensor<f32>):\n%s = stablehlo.compare LT, %p, %q : "
    "(tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %s : tensor<i1>\n}})"
)
_SAME = f"({_V}) -> {_V}"
_PAIR = f"({_V}, {_V}) -> {_V}"
_SMALL = "tensor<8x8xf8E4M3FN>"
_CHLO = ("acosh", "bessel_i1e", "digamma", "erf", "erf_inv", "lgamma", "sinh")
#: Kind -> one operation that makes ``{y}`` of ``{x}``; ``{n}`` is its number.
PLAIN: dict[str, str] = {
    **{
        op: f'{{y}} = "stablehlo.{op}"({{x}}) : {_SAME}'
        for op in (
            *("abs", "cbrt", "ceil", "cosine", "exponential", "exponential_minus_one", "floor", "log"),
            *("log_plus_one", "logistic", "negate", "round_nearest_afz", "round_nearest_even", "rsqrt"),
            *("sign", "sine", "sqrt", "tan", "tanh"),
        )
    },
    **{
        op: f'{{y}} = "stablehlo.{op}"({{x}}, %w) : {_PAIR}'
        for op in (
            *("add", "atan2", "divide", "maximum", "minimum", "multiply", "power", "remainder"),
            "subtract",
        )
    },
    **{f"chlo.{op}": f'{{y}} = "chlo.{op}"({{x}}) : {_SAME}' for op in _CHLO},
    "clamp": f'{{y}} = "stablehlo.clamp"(%x, {{x}}, %w) : ({_V}, {_V}, {_V}) -> {_V}',
    "reduce_precision": f"{{y}} = stablehlo.reduce_precision {{x}}, format = e5m10 : {_V}",
    "select": f"{{y}}p = stablehlo.compare LT, {{x}}, %w : ({_V}, {_V}) -> tensor<8x8xi1>\n"
    f"{{y}} = stablehlo.select {{y}}p, %w, {{x}} : tensor<8x8xi1>, {_V}",
    "convert": f"{{y}}h = stablehlo.convert {{x}} : ({_V}) -> tensor<8x8xbf16>\n"
    f"{{y}} = stablehlo.convert {{y}}h : (tensor<8x8xbf16>) -> {_V}",
    "broadcast_in_dim": f'{{y}}r = "stablehlo.reshape"({{x}}) : ({_V}) -> tensor<64xf32>\n'
    '{y}s = "stablehlo.slice"({y}r) <{{start_indices = array<i64: 1>, limit_indices = array<i64: 9>, '
    "strides = array<i64: 1>}}> : (tensor<64xf32>) -> tensor<8xf32>\n"
    '{y} = "stablehlo.broadcast_in_dim"({y}s) <{{broadcast_dimensions = array<i64: 0>}}> : '
    f"(tensor<8xf32>) -> {_V}",
    "convert f8": f"{{y}}h = stablehlo.convert {{x}} : ({_V}) -> {_SMALL}\n"
    f"{{y}} = stablehlo.convert {{y}}h : ({_SMALL}) -> {_V}",
    "chlo.polygamma": f'{{y}} = "chlo.polygamma"(%w, {{x}}) : {_PAIR}',
    "chlo.zeta": f'{{y}} = "chlo.zeta"({{x}}, %w) : {_PAIR}',
    "batch_norm_training": '{y}r = "stablehlo.reshape"(%w) : '
    f"({_V}) -> tensor<64xf32>\n"
    '{y}s = "stablehlo.slice"({y}r) <{{start_indices = array<i64: 1>, limit_indices = array<i64: 9>, '
    f"strides = array<i64: 1>}}}}> : (tensor<64xf32>) -> {_R}\n"
    '{y}, {y}m, {y}v = "stablehlo.batch_norm_training"({x}, {y}s, {y}s) <{{epsilon = 1.0e-3 : f32, '
    f"feature_index = 1 : i64}}}}> : ({_V}, {_R}, {_R}) -> ({_V}, {_R}, {_R})",
    "case": f'{{y}} = "stablehlo.case"(%i) ({{{{\n%a = stablehlo.add {{x}}, %w : {_V}\n'
    f"stablehlo.return %a : {_V}\n}}}}, {{{{\n%b = stablehlo.multiply {{x}}, %w : {_V}\n"
    f"stablehlo.return %b : {_V}\n}}}}) : (tensor<i32>) -> {_V}",
    "cholesky": f'{{y}} = "stablehlo.cholesky"({{x}}) <{{{{lower = true}}}}> : {_SAME}',
    "concatenate": '{y}c = "stablehlo.concatenate"({x}, %w) <{{dimension = 0 : i64}}> : '
    f"({_V}, {_V}) -> tensor<16x8xf32>\n"
    '{y} = "stablehlo.slice"({y}c) <{{start_indices = array<i64: 4, 0>, limit_indices = array<i64: 12, 8>, '
    f"strides = array<i64: 1, 1>}}}}> : (tensor<16x8xf32>) -> {_V}",
    "convolution": f"{{y}}b = stablehlo.reshape {{x}} : ({_V}) -> tensor<1x8x8xf32>\n"
    "{y}k = stablehlo.convolution({y}b, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], "
    "window = {{pad = [[1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : "
    "(tensor<1x8x8xf32>, tensor<3x8x8xf32>) -> tensor<1x8x8xf32>\n"
    f"{{y}} = stablehlo.reshape {{y}}k : (tensor<1x8x8xf32>) -> {_V}",
    "dot_general": f"{{y}} = stablehlo.dot_general {{x}}, %w, contracting_dims = [1] x [0] : {_PAIR}",
    "dynamic_slice": f"{{y}} = stablehlo.dynamic_update_slice {{x}}, {{x}}, %i, %i : "
    f"({_V}, {_V}, tensor<i32>, tensor<i32>) -> {_V}",
    "fft": f"{{y}}c = stablehlo.complex {{x}}, %w : {_C}\n"
    f"{{y}}f = stablehlo.fft {{y}}c, type = FFT, length = [8] : ({_C}) -> {_C}\n"
    f"{{y}} = stablehlo.real {{y}}f : ({_C}) -> {_V}",
    "gather": '{y} = "stablehlo.gather"({x}, %j) <{{dimension_numbers = #stablehlo.gather<offset_dims = [1], '
    "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
    f"slice_sizes = array<i64: 1, 8>, indices_are_sorted = false}}}}> : ({_V}, tensor<8xi32>) -> {_V}",
    "pad": '{y}p = "stablehlo.pad"({x}, %z) <{{edge_padding_low = array<i64: 1, 0>, edge_padding_high = '
    "array<i64: -1, 0>, interior_padding = array<i64: 0, 0>}}> : "
    f"({_V}, tensor<f32>) -> {_V}\n{{y}} = stablehlo.add {{y}}p, %w : {_V}",
    "reduce": '{y}r = "stablehlo.reduce"({x}, %z) <{{dimensions = array<i64: 1>}}> '
    f"{_SUM} : ({_V}, tensor<f32>) -> tensor<8xf32>\n"
    '{y} = "stablehlo.broadcast_in_dim"({y}r) <{{broadcast_dimensions = array<i64: 0>}}> : '
    f"(tensor<8xf32>) -> {_V}",
    "reduce_window": '{y} = "stablehlo.reduce_window"({x}, %z) <{{window_dimensions = array<i64: 1, 3>, '
    "window_strides = array<i64: 1, 1>, padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>}}> "
    f"{_SUM} : ({_V}, tensor<f32>) -> {_V}",
    "reverse": f'{{y}} = "stablehlo.reverse"({{x}}) <{{{{dimensions = array<i64: {{odd}}>}}}}> : {_SAME}',
    "rng_bit_generator": '{y}r = "stablehlo.reshape"({x}) : '
    f"({_V}) -> tensor<64xf32>\n"
    '{y}s = "stablehlo.slice"({y}r) <{{start_indices = array<i64: 0>, limit_indices = array<i64: 2>, '
    "strides = array<i64: 1>}}> : (tensor<64xf32>) -> tensor<2xf32>\n"
    "{y}u = stablehlo.convert {y}s : (tensor<2xf32>) -> tensor<2xui64>\n"
    "{y}o, {y}g = stablehlo.rng_bit_generator {y}u, algorithm = THREE_FRY : "
    f"(tensor<2xui64>) -> (tensor<2xui64>, {_G})\n"
    f"{{y}} = stablehlo.convert {{y}}g : ({_G}) -> {_V}",
    "scatter": '{y} = "stablehlo.scatter"({x}, %j, %w) <{{scatter_dimension_numbers = #stablehlo.scatter<'
    "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
    "index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}}> "
    f"{_SUM} : ({_V}, tensor<8xi32>, {_V}) -> {_V}",
    "sort": f'{{y}} = "stablehlo.sort"({{x}}) <{{{{dimension = {{odd}} : i64, is_stable = true}}}}> '
    f"{_LESS} : {_SAME}",
    "transpose": f'{{y}}t = "stablehlo.transpose"({{x}}) <{{{{permutation = array<i64: 1, 0>}}}}> : {_SAME}\n'
    f"{{y}} = stablehlo.add {{y}}t, %w : {_V}",
    "triangular_solve": '{y} = "stablehlo.triangular_solve"(%w, {x}) <{{left_side = true, lower = true, '
    f"unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}}}}> : {_PAIR}",
    "while": "{y}n, {y} = stablehlo.while(%n{n} = %i, %m{n} = {x}) : tensor<i32>, "
    f"{_V}\ncond {{{{\n%c = stablehlo.compare LT, %n{{n}}, %t : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
    "stablehlo.return %c : tensor<i1>\n}} do {{\n%a = stablehlo.add %n{n}, %t : tensor<i32>\n"
    f"%b = stablehlo.add %m{{n}}, %w : {_V}\nstablehlo.return %a, %b : tensor<i32>, {_V}\n}}}}",
}
