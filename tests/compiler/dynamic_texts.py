"""StableHLO of small programs as functions of their sizes."""

# ruff: noqa: E501 (programs as text)

from __future__ import annotations

from collections.abc import Callable


def _t(*dims: int, of: str = "f32") -> str:
    return "tensor<" + "".join(f"{dim}x" for dim in dims) + of + ">"


def _main(arguments: list[str], result: str, body: str, returned: str = "%r") -> str:
    named = ", ".join(f"%{name}: {kind}" for name, kind in zip("abcdefgh", arguments, strict=False))
    return f"func.func @main({named}) -> ({result}) {{\n{body}\nreturn {returned} : {result}\n}}\n"


def _splat(name: str, literal: str, kind: str) -> str:
    return f"%{name} = stablehlo.constant dense<{literal}> : {kind}\n"


def _reduced(
    name: str, source: str, dims: str, kind: str, result: str, op: str = "add", zero: str = "0.0"
) -> str:
    scalar = "tensor<" + kind.rpartition("x")[2] if "x" in kind else kind
    return (
        _splat(f"{name}z", zero, scalar)
        + f"%{name} = stablehlo.reduce(%{source} init: %{name}z) applies stablehlo.{op} across dimensions = [{dims}] : ({kind}, {scalar}) -> {result}\n"
    )


def _spread(name: str, source: str, dims: str, kind: str, result: str) -> str:
    return f"%{name} = stablehlo.broadcast_in_dim %{source}, dims = [{dims}] : ({kind}) -> {result}\n"


def activation_text(b: int, c: int) -> str:
    m, v = _t(b, c), _t(c)
    return _main(
        [m, v],
        m,
        _spread("s", "b", "1", v, m)
        + f"%x = stablehlo.add %a, %s : {m}\n"
        + _splat("z", "0.0", m)
        + f"%r = stablehlo.maximum %x, %z : {m}",
    )


def outer_text(b: int, c: int) -> str:
    m = _t(b, c)
    return _main(
        [_t(b), _t(c)],
        m,
        _spread("x", "a", "0", _t(b), m)
        + _spread("y", "b", "1", _t(c), m)
        + f"%r = stablehlo.subtract %x, %y : {m}",
    )


def softmax_text(b: int, t: int) -> str:
    m, v = _t(b, t), _t(b)
    return _main(
        [m],
        m,
        _reduced("top", "a", "1", m, v, "maximum", "0xFF800000")
        + _spread("tops", "top", "0", v, m)
        + f"%x = stablehlo.subtract %a, %tops : {m}\n%e = stablehlo.exponential %x : {m}\n"
        + _reduced("sum", "e", "1", m, v)
        + _spread("sums", "sum", "0", v, m)
        + f"%r = stablehlo.divide %e, %sums : {m}",
    )


def mean_text(of: str) -> Callable[..., str]:
    def text(b: int, c: int) -> str:
        m, s = _t(b, c, of=of), f"tensor<{of}>"
        return _main(
            [m],
            s,
            _reduced("sum", "a", "0, 1", m, s)
            + _splat("n", f"{float(b * c)}", s)
            + f"%r = stablehlo.divide %sum, %n : {s}",
        )

    return text


def variance_text(b: int, c: int) -> str:
    m, v = _t(b, c, of="f64"), _t(b, of="f64")
    return _main(
        [m],
        v,
        _reduced("sum", "a", "1", m, v)
        + _splat("n", f"{float(c)}", v)
        + f"%mean = stablehlo.divide %sum, %n : {v}\n"
        + _spread("means", "mean", "0", v, m)
        + f"%x = stablehlo.subtract %a, %means : {m}\n%y = stablehlo.multiply %x, %x : {m}\n"
        + _reduced("total", "y", "1", m, v)
        + f"%r = stablehlo.divide %total, %n : {v}",
    )


def matmul_text(b: int, k: int, c: int) -> str:
    m, w, v, r = _t(b, k), _t(k, c), _t(c), _t(b, c)
    return _main(
        [m, w, v],
        r,
        f"%x = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({m}, {w}) -> {r}\n"
        + _spread("s", "c", "1", v, r)
        + f"%r = stablehlo.add %x, %s : {r}",
    )


def scores_text(b: int, t: int, h: int) -> str:
    m, r = _t(b, t, 2, h), _t(b, 2, t, t)
    return _main(
        [m, m],
        r,
        f"%r = stablehlo.dot_general %a, %b, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : ({m}, {m}) -> {r}",
    )


def transpose_text(b: int, t: int, c: int) -> str:
    m, r = _t(b, t, c), _t(c, b, t)
    return _main(
        [m],
        r,
        f"%x = stablehlo.transpose %a, dims = [2, 0, 1] : ({m}) -> {r}\n%r = stablehlo.add %x, %x : {r}",
    )


def merge_text(b: int, t: int, c: int) -> str:
    m, r, w = _t(b, t, c), _t(b * t, c), _t(c, 3)
    return _main(
        [m, w],
        _t(b, t, 3),
        f"%x = stablehlo.reshape %a : ({m}) -> {r}\n"
        f"%y = stablehlo.dot_general %x, %b, contracting_dims = [1] x [0] : ({r}, {w}) -> {_t(b * t, 3)}\n"
        f"%r = stablehlo.reshape %y : ({_t(b * t, 3)}) -> {_t(b, t, 3)}",
    )


def flat_text(b: int, t: int) -> str:
    """A product of sizes as the axis of an argument."""
    m, v = _t(b, t), _t(b * t)
    return _main(
        [m, v],
        v,
        f"%x = stablehlo.reshape %a : ({m}) -> {v}\n%y = stablehlo.transpose %a, dims = [1, 0] : ({m}) -> {_t(t, b)}\n"
        f"%z = stablehlo.reshape %y : ({_t(t, b)}) -> {v}\n%w = stablehlo.multiply %x, %z : {v}\n%r = stablehlo.add %w, %b : {v}",
    )


def heads_text(b: int, t: int) -> str:
    m, s, r = _t(b, t, 12), _t(b, t, 3, 4), _t(b, 3, t, 4)
    return _main(
        [m],
        r,
        f"%x = stablehlo.reshape %a : ({m}) -> {s}\n%y = stablehlo.transpose %x, dims = [0, 2, 1, 3] : ({s}) -> {r}\n%r = stablehlo.negate %y : {r}",
    )


def causal_text(t: int) -> str:
    m, i, p = _t(t, t), _t(t, t, of="i32"), _t(t, t, of="i1")
    return _main(
        [m],
        m,
        f"%rows = stablehlo.iota dim = 0 : {i}\n%columns = stablehlo.iota dim = 1 : {i}\n"
        f"%p = stablehlo.compare GE, %rows, %columns : ({i}, {i}) -> {p}\n"
        + _splat("z", "0.0", m)
        + f"%r = stablehlo.select %p, %a, %z : ({p}, {m}, {m}) -> {m}",
    )


def concatenate_text(b: int, c: int) -> str:
    m, r = _t(b, c), _t(b, c + 3)
    return _main([m, _t(b, 3)], r, f"%r = stablehlo.concatenate %a, %b, dim = 1 : ({m}, {_t(b, 3)}) -> {r}")


def pad_text(b: int, c: int) -> str:
    m, r = _t(b, c, 4), _t(b, c, 9)
    return _main(
        [m],
        r,
        _splat("z", "2.0", "tensor<f32>")
        + f"%r = stablehlo.pad %a, %z, low = [0, 0, 1], high = [0, 0, 1], interior = [0, 0, 1] : ({m}, tensor<f32>) -> {r}",
    )


def slice_text(b: int, c: int) -> str:
    m, r = _t(b, 6, c), _t(b, 2, c)
    return _main(
        [m],
        r,
        f"%x = stablehlo.slice %a [0:{b}, 1:5:2, 0:{c}] : ({m}) -> {r}\n%r = stablehlo.add %x, %x : {r}",
    )


def embedding_text(v: int, c: int, b: int, t: int) -> str:
    m, i, r = _t(v, c), _t(b, t, 1, of="i32"), _t(b, t, c)
    numbers = "#stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>"
    return _main(
        [m, i],
        r,
        f'%r = "stablehlo.gather"(%a, %b) <{{dimension_numbers = {numbers}, slice_sizes = array<i64: 1, {c}>}}> : ({m}, {i}) -> {r}',
    )


def first_rows_text(v: int, c: int) -> str:
    """Indices that are constants, clamped to an open size."""
    m, i, r = _t(v, c), "tensor<3x1xi32>", _t(3, c)
    numbers = "#stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>"
    return _main(
        [m],
        r,
        _splat("i", "[[0], [2], [4]]", i)
        + f'%r = "stablehlo.gather"(%a, %i) <{{dimension_numbers = {numbers}, slice_sizes = array<i64: 1, {c}>}}> : ({m}, {i}) -> {r}',
    )


def dynamic_slice_text(b: int, c: int) -> str:
    m, r = _t(b, c, 5), _t(b, c, 2)
    return _main(
        [m, "tensor<i32>"],
        r,
        _splat("z", "0", "tensor<i32>")
        + f"%r = stablehlo.dynamic_slice %a, %z, %z, %b, sizes = [{b}, {c}, 2] : ({m}, tensor<i32>, tensor<i32>, tensor<i32>) -> {r}",
    )


def row_of_text(b: int, c: int) -> str:
    m, r = _t(b, c), _t(1, c)
    return _main(
        [m, "tensor<i32>"],
        r,
        _splat("z", "0", "tensor<i32>")
        + f"%r = stablehlo.dynamic_slice %a, %b, %z, sizes = [1, {c}] : ({m}, tensor<i32>, tensor<i32>) -> {r}",
    )


def update_text(b: int, c: int) -> str:
    m, u = _t(b, c), _t(1, c)
    return _main(
        [m, u, "tensor<i32>"],
        m,
        _splat("z", "0", "tensor<i32>")
        + f"%r = stablehlo.dynamic_update_slice %a, %b, %c, %z : ({m}, {u}, tensor<i32>, tensor<i32>) -> {m}",
    )


def pool_text(window: str, padding: str, rows: Callable[[int], int]) -> Callable[..., str]:
    def text(b: int, h: int) -> str:
        m, r = _t(b, h, 6), _t(b, rows(h), 3)
        return _main(
            [m],
            r,
            _splat("z", "0xFF800000", "tensor<f32>")
            + f"""%r = "stablehlo.reduce_window"(%a, %z) <{{window_dimensions = array<i64: 1, {window}, 2>, window_strides = array<i64: 1, 1, 2>, padding = dense<[[0, 0], {padding}, [0, 0]]> : tensor<3x2xi64>}}> ({{
              ^bb0(%x: tensor<f32>, %y: tensor<f32>):
                %s = stablehlo.maximum %x, %y : tensor<f32>
                stablehlo.return %s : tensor<f32>
            }}) : ({m}, tensor<f32>) -> {r}""",
        )

    return text


def convolution_text(b: int, h: int, w: int) -> str:
    m, k, r = _t(b, h, w, 2), _t(3, 3, 2, 4), _t(b, h, w, 4)
    return _main(
        [m, k],
        r,
        f"%r = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({m}, {k}) -> {r}",
    )


def clamp_text(b: int, c: int) -> str:
    m, p = _t(b, c), _t(b, c, of="i1")
    return _main(
        [m, m],
        m,
        _splat("low", "-0.5", "tensor<f32>")
        + _splat("high", "0.5", "tensor<f32>")
        + f"%x = stablehlo.clamp %low, %a, %high : (tensor<f32>, {m}, tensor<f32>) -> {m}\n"
        f"%p = stablehlo.compare LT, %x, %b : ({m}, {m}) -> {p}\n%r = stablehlo.select %p, %x, %b : ({p}, {m}, {m}) -> {m}",
    )


def loop_text(b: int, c: int) -> str:
    m = _t(b, c)
    return _main(
        [m, "tensor<i32>"],
        m,
        _splat("one", "1", "tensor<i32>")
        + f"""%z = stablehlo.constant dense<0> : tensor<i32>
        %h = stablehlo.constant dense<0.5> : {m}
        %r:2 = stablehlo.while(%x = %a, %i = %z) : {m}, tensor<i32>
          cond {{
            %p = stablehlo.compare LT, %i, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %p : tensor<i1>
          }} do {{
            %y = stablehlo.multiply %x, %h : {m}
            %w = stablehlo.add %y, %a : {m}
            %j = stablehlo.add %i, %one : tensor<i32>
            stablehlo.return %w, %j : {m}, tensor<i32>
          }}""",
        "%r#0",
    )


def branch_text(b: int, c: int) -> str:
    m = _t(b, c)
    return _main(
        [m, "tensor<i1>"],
        m,
        f"""%r = "stablehlo.if"(%b) ({{
            %x = stablehlo.add %a, %a : {m}
            stablehlo.return %x : {m}
        }}, {{
            %x = stablehlo.negate %a : {m}
            stablehlo.return %x : {m}
        }}) : (tensor<i1>) -> {m}""",
    )


def reverse_text(b: int, c: int) -> str:
    m = _t(b, c)
    return _main([m], m, f"%x = stablehlo.reverse %a, dims = [0, 1] : {m}\n%r = stablehlo.add %x, %a : {m}")


def argmax_text(b: int, c: int) -> str:
    m, i = _t(b, c), _t(b, c, of="i32")
    return _main(
        [m],
        _t(b, of="i32"),
        f"""%i = stablehlo.iota dim = 1 : {i}
        %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
        %z = stablehlo.constant dense<0> : tensor<i32>
        %r:2 = stablehlo.reduce(%a init: %low), (%i init: %z) across dimensions = [1] : ({m}, {i}, tensor<f32>, tensor<i32>) -> ({_t(b)}, {_t(b, of="i32")})
          reducer(%x: tensor<f32>, %y: tensor<f32>) (%k: tensor<i32>, %l: tensor<i32>) {{
            %p = stablehlo.compare GE, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
            %v = stablehlo.select %p, %x, %y : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
            %w = stablehlo.select %p, %k, %l : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
            stablehlo.return %v, %w : tensor<f32>, tensor<i32>
          }}""",
        "%r#1",
    )


def halves_text(b: int, c: int) -> str:
    m, v = _t(b, c, of="f16"), _t(b, of="f16")
    return _main(
        [m], v, f"%x = stablehlo.multiply %a, %a : {m}\n" + _reduced("r", "x", "1", m, v, "maximum", "0.0")
    )


def integers_text(b: int, c: int) -> str:
    m, v = _t(b, c, of="i32"), _t(c, of="i32")
    return _main(
        [m, m], v, f"%x = stablehlo.multiply %a, %b : {m}\n" + _reduced("r", "x", "0", m, v, "add", "0")
    )


def booleans_text(b: int, c: int) -> str:
    m, v = _t(b, c, of="i1"), _t(b, of="i1")
    return _main([m], v, _reduced("x", "a", "1", m, v, "and", "true") + f"%r = stablehlo.not %x : {v}")


def columns_text(b: int, t: int, c: int) -> str:
    m, r = _t(b, t, c), _t(t)
    return _main([m], r, _reduced("r", "a", "0, 2", m, r))
