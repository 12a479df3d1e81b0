"""Which numbers of a program are sizes: those that sums say, and no others."""

from __future__ import annotations

import pytest

from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.rendering.stablehlo import render
from tests.recognition.measured import key


def scaled(op: str, number: float, *dims: int) -> str:
    type = f"tensor<{'x'.join(map(str, dims))}xf32>"
    return f"""func.func @main(%x: {type}) -> {type} {{
      %c = stablehlo.constant dense<{number:.9e}> : {type}
      %r = stablehlo.{op} %x, %c : {type}
      return %r : {type} }}"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("op", ["multiply", "divide", "add", "power"])
@pytest.mark.parametrize("number", [2, 3, 4, 6, 1 / 2, 1 / 3, 1 / 4, 1 / 6])
def test_a_number_that_scales_is_no_size(op: str, number: float) -> None:
    assert len({key(scaled(op, number, size)) for size in (2, 3, 4, 6, 7)}) == 1
    assert len({key(scaled(op, number, *dims)) for dims in ((2, 2), (2, 3), (3, 2), (5, 7))}) == 1


def test_a_factor_before_a_broadcast_is_no_size() -> None:
    def program(rows: int, columns: int) -> str:
        wide = f"tensor<{rows}x{columns}xf32>"
        return f"""func.func @main(%x: tensor<{columns}xf32>, %y: {wide}) -> {wide} {{
          %c = stablehlo.constant dense<0.5> : tensor<{columns}xf32>
          %h = stablehlo.multiply %x, %c : tensor<{columns}xf32>
          %b = stablehlo.broadcast_in_dim %h, dims = [1] : (tensor<{columns}xf32>) -> {wide}
          %r = stablehlo.add %b, %y : {wide}
          return %r : {wide} }}"""

    assert len({key(program(*dims)) for dims in ((2, 2), (2, 5), (3, 2), (4, 7))}) == 1


def mean(rows: int, columns: int, over: float, way: str) -> str:
    wide, long = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}xf32>"
    return f"""func.func @main(%x: {wide}) -> {long} {{
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %c = stablehlo.constant dense<{over:.9e}> : {long}
      %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
        : ({wide}, tensor<f32>) -> {long}
      %r = stablehlo.{way} %s, %c : {long}
      return %r : {long} }}"""


def test_means_have_one_key_and_other_quotients_another() -> None:
    sizes = [(2, 2), (2, 3), (5, 7), (4, 11)]
    means = {key(mean(rows, columns, columns, "divide")) for rows, columns in sizes}
    scaled_sums = {key(mean(rows, columns, 1 / columns, "multiply")) for rows, columns in sizes}
    halves = {key(mean(rows, columns, 2.0, "divide")) for rows, columns in sizes[2:]}
    assert len(means) == len(scaled_sums) == len(halves) == 1
    assert not means & halves


def test_a_product_that_keeps_its_size_has_factors_that_keep_theirs() -> None:
    text = """func.func @main(%x: tensor<2x3x3xf32>) -> tensor<3x6x3xf32> {
      %a = stablehlo.reshape %x : (tensor<2x3x3xf32>) -> tensor<6x3xf32>
      %b = stablehlo.broadcast_in_dim %a, dims = [1, 2] : (tensor<6x3xf32>) -> tensor<3x6x3xf32>
      %c = stablehlo.reshape %b : (tensor<3x6x3xf32>) -> tensor<18x3xf32>
      %d = stablehlo.abs %c : tensor<18x3xf32>
      %e = stablehlo.reshape %d : (tensor<18x3xf32>) -> tensor<3x6x3xf32>
      return %e : tensor<3x6x3xf32> }"""
    assert canonicalize(text.encode(), "stablehlo").results[0].dims == (3, 6, 3)


@pytest.mark.parametrize("number", [2, 4, 1 / 2, 1 / 4])
def test_a_number_that_stands_in_for_others_is_no_size(number: float) -> None:
    def program(size: int) -> str:
        type = f"tensor<{size}xf32>"
        return f"""func.func @main(%p: tensor<{size}xi1>, %x: {type}) -> {type} {{
          %c = stablehlo.constant dense<{number:.9e}> : {type}
          %r = stablehlo.select %p, %x, %c : tensor<{size}xi1>, {type}
          return %r : {type} }}"""

    assert len({key(program(size)) for size in (2, 4, 5)}) == 1


def test_a_size_is_one_behind_many_views() -> None:
    def program(rows: int, columns: int, views: int) -> str:
        wide, long = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}xf32>"
        turns = [f"%v{i + 1} = stablehlo.reshape %v{i} : (tensor<f32>) -> tensor<f32>" for i in range(views)]
        return f"""func.func @main(%x: {wide}) -> {long} {{
          %z = stablehlo.constant dense<0.0> : tensor<f32>
          %v0 = stablehlo.constant dense<{columns}.0> : tensor<f32>
          {" ".join(turns)}
          %c = stablehlo.broadcast_in_dim %v{views}, dims = [] : (tensor<f32>) -> {long}
          %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
            : ({wide}, tensor<f32>) -> {long}
          %r = stablehlo.divide %s, %c : {long}
          return %r : {long} }}"""

    assert len({key(program(5, 7, 0)), key(program(5, 7, 20)), key(program(3, 11, 20))}) == 1


def test_a_split_beside_pinned_sizes_takes_the_factors_in_order() -> None:
    def program(batch: int, there_and_back: str) -> str:
        turned = f"tensor<12x{batch}xf32>"
        return f"""func.func @f(%x: tensor<{batch}x3xf32>, %w: tensor<3x12xf32>, %y: tensor<{batch}x12xf32>)
            -> tensor<{batch}x3xf32> {{
          %a = stablehlo.dot_general %w, %x, contracting_dims = [0] x [1]
            : (tensor<3x12xf32>, tensor<{batch}x3xf32>) -> {turned}
          {there_and_back}
          %d = stablehlo.transpose %c, dims = [1, 0] : ({turned}) -> tensor<{batch}x12xf32>
          %e = stablehlo.add %d, %y : tensor<{batch}x12xf32>
          %r = stablehlo.slice %e [0:{batch}, 0:3] : (tensor<{batch}x12xf32>) -> tensor<{batch}x3xf32>
          return %r : tensor<{batch}x3xf32> }}"""

    merged = """%b = stablehlo.reshape %a : (tensor<12x2xf32>) -> tensor<24xf32>
      %c = stablehlo.reshape %b : (tensor<24xf32>) -> tensor<12x2xf32>"""
    plain = "%c = stablehlo.optimization_barrier %a : tensor<12x5xf32>"
    assert key(program(2, merged)) == key(program(5, plain))


def test_the_gradient_of_a_mean_divides_by_a_size() -> None:
    def program(rows: int, columns: int) -> str:
        wide, thin = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}x1xf32>"
        return f"""func.func @main(%x: {wide}, %g: {thin}) -> {wide} {{
          %z = stablehlo.constant dense<0.0> : tensor<f32>
          %n = stablehlo.constant dense<{columns}.0> : {thin}
          %q = stablehlo.divide %g, %n : {thin}
          %s = stablehlo.reduce(%q init: %z) applies stablehlo.add across dimensions = [1]
            : ({thin}, tensor<f32>) -> tensor<{rows}xf32>
          %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<{rows}xf32>) -> {wide}
          %r = stablehlo.add %b, %x : {wide}
          return %r : {wide} }}"""

    assert len({key(program(*sizes)) for sizes in ((2, 2), (3, 5), (7, 4))}) == 1


def test_a_broadcast_merged_and_split_again_is_a_broadcast() -> None:
    def program(batch: int, there_and_back: str) -> str:
        wide, x = f"tensor<{batch}x7x7xf32>", f"tensor<{batch}x3x7xf32>"
        return f"""func.func @f(%x: {x}, %w: tensor<7x7xf32>) -> {x} {{
          %a = stablehlo.broadcast_in_dim %w, dims = [1, 2] : (tensor<7x7xf32>) -> {wide}
          {there_and_back}
          %r = stablehlo.dot_general %x, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1]
            : ({x}, {wide}) -> {x}
          return %r : {x} }}"""

    merged = """%m = stablehlo.reshape %a : (tensor<2x7x7xf32>) -> tensor<98xf32>
      %b = stablehlo.reshape %m : (tensor<98xf32>) -> tensor<2x7x7xf32>"""
    plain = "%b = stablehlo.optimization_barrier %a : tensor<5x7x7xf32>"
    assert key(program(2, merged)) == key(program(5, plain))


@pytest.mark.parametrize(
    "views",
    [
        "%b = stablehlo.broadcast_in_dim %q, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x8xf32>",
        """%a = stablehlo.broadcast_in_dim %q, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x8xf32>
        %b = stablehlo.transpose %a, dims = [0, 1] : (tensor<4x8xf32>) -> tensor<4x8xf32>""",
        """%a = stablehlo.broadcast_in_dim %q, dims = [1, 0] : (tensor<4x1xf32>) -> tensor<8x4xf32>
        %b = stablehlo.transpose %a, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>""",
        """%a = stablehlo.broadcast_in_dim %q, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x8xf32>
        %m = stablehlo.reshape %a : (tensor<4x8xf32>) -> tensor<32xf32>
        %b = stablehlo.reshape %m : (tensor<32xf32>) -> tensor<4x8xf32>""",
        """%t = stablehlo.transpose %q, dims = [1, 0] : (tensor<4x1xf32>) -> tensor<1x4xf32>
        %u = stablehlo.reshape %t : (tensor<1x4xf32>) -> tensor<4xf32>
        %b = stablehlo.broadcast_in_dim %u, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>""",
    ],
)
def test_a_size_is_one_before_any_views_of_what_is_repeated(views: str) -> None:
    def program(views: str, divisor: float) -> str:
        return f"""func.func @main(%x: tensor<4x8xf32>, %g: tensor<4x1xf32>)
            -> (tensor<4x8xf32>, tensor<4xf32>) {{
          %n = stablehlo.constant dense<{divisor}> : tensor<4x1xf32>
          %z = stablehlo.constant dense<0.0> : tensor<f32>
          %q = stablehlo.divide %g, %n : tensor<4x1xf32>
          {views}
          %r = stablehlo.add %b, %x : tensor<4x8xf32>
          %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
            : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
          return %r, %s : tensor<4x8xf32>, tensor<4xf32> }}"""

    plain = "%b = stablehlo.broadcast_in_dim %q, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x8xf32>"
    form = canonicalize(program(views, 8.0).encode(), "stablehlo")
    assert form.spec_text == canonicalize(program(plain, 8.0).encode(), "stablehlo").spec_text
    assert "extent : f32[] | s1" in form.spec_text
    assert "extent" not in canonicalize(program(views, 7.0).encode(), "stablehlo").spec_text


def divided(batch: int, features: int, divisor: float) -> str:
    wide, long = f"tensor<{batch}x{features}xf32>", f"tensor<{features}xf32>"
    return f"""func.func @main(%x: {wide}, %b: {long}) -> {wide} {{
      %c = stablehlo.constant dense<{divisor}> : {long}
      %h = stablehlo.divide %b, %c : {long}
      %w = stablehlo.broadcast_in_dim %h, dims = [1] : ({long}) -> {wide}
      %r = stablehlo.add %x, %w : {wide}
      return %r : {wide} }}"""


def test_a_divisor_of_what_is_repeated_is_no_size_where_there_is_no_sum() -> None:
    assert len({key(divided(*sizes, 2.0)) for sizes in ((2, 5), (3, 5), (2, 2), (2, 7))}) == 1


def total(size: int, divisor: float) -> str:
    return f"""func.func @main(%x: tensor<{size}xf32>) -> tensor<f32> {{
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %c = stablehlo.constant dense<{divisor}> : tensor<f32>
      %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0]
        : (tensor<{size}xf32>, tensor<f32>) -> tensor<f32>
      %r = stablehlo.divide %s, %c : tensor<f32>
      return %r : tensor<f32> }}"""


def test_one_less_than_a_size_is_a_number_where_there_is_no_mean() -> None:
    assert len({key(total(size, 2.0)) for size in (3, 5, 7)}) == 1
    assert key(total(2, 2.0)) == key(total(7, 7.0)) != key(total(7, 2.0))


def test_a_sum_over_what_is_repeated_has_the_size_that_divides_it() -> None:
    """The gradient of a mean whose cotangent is the same along the axis, as JAX has it of normalized rows."""

    def program(rows: int, columns: int) -> str:
        wide, long = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}xf32>"
        return f"""func.func @main(%x: {wide}) -> {wide} {{
          %z = stablehlo.constant dense<0.0> : tensor<f32>
          %n = stablehlo.constant dense<{columns}.0> : {long}
          %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
            : ({wide}, tensor<f32>) -> {long}
          %e = stablehlo.exponential %s : {long}
          %w = stablehlo.broadcast_in_dim %e, dims = [0] : ({long}) -> {wide}
          %t = stablehlo.reduce(%w init: %z) applies stablehlo.add across dimensions = [1]
            : ({wide}, tensor<f32>) -> {long}
          %d = stablehlo.divide %t, %n : {long}
          %b = stablehlo.broadcast_in_dim %d, dims = [0] : ({long}) -> {wide}
          %r = stablehlo.add %b, %x : {wide}
          return %r : {wide} }}"""

    sizes = ((2, 2), (3, 5), (7, 4), (4, 7), (6, 6))
    assert len({key(program(*each)) for each in sizes}) == 1
    for each in sizes:
        form = canonicalize(program(*each).encode(), "stablehlo")
        kept = canonicalize(program(*each).encode(), "stablehlo", erasing=False)
        rendered = render(form.spec_text, form.arg_spec).encode()
        assert canonicalize(rendered, "stablehlo", erasing=False).spec_text == kept.spec_text


def batch_mean(batch: int, classes: int, factor: float | None = None) -> str:
    """A batch's mean of sums of squares, and its gradient, in which one over the batch is a factor."""
    wide, long = f"tensor<{batch}x{classes}xf32>", f"tensor<{batch}xf32>"
    quotient = "stablehlo.divide %one, %n : tensor<f32>"
    factor_text = quotient if factor is None else f"stablehlo.constant dense<{factor:.9e}> : tensor<f32>"
    return f"""func.func @main(%x: {wide}) -> (tensor<f32>, {wide}) {{
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %one = stablehlo.constant dense<1.0> : tensor<f32>
      %n = stablehlo.constant dense<{batch}.0> : tensor<f32>
      %y = stablehlo.multiply %x, %x : {wide}
      %s = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [1]
        : ({wide}, tensor<f32>) -> {long}
      %t = stablehlo.reduce(%s init: %z) applies stablehlo.add across dimensions = [0]
        : ({long}, tensor<f32>) -> tensor<f32>
      %m = stablehlo.divide %t, %n : tensor<f32>
      %q = {factor_text}
      %b = stablehlo.broadcast_in_dim %q, dims = [] : (tensor<f32>) -> {wide}
      %g = stablehlo.multiply %b, %x : {wide}
      return %m, %g : tensor<f32>, {wide} }}"""


def test_the_gradient_of_a_batch_mean_has_one_key_for_all_sizes() -> None:
    sizes = ((2, 2), (2, 5), (3, 5), (5, 3), (4, 4), (7, 2), (8, 16))
    assert len({key(batch_mean(*each)) for each in sizes}) == 1


def test_a_factor_that_no_division_made_is_a_number_beside_a_batch_mean() -> None:
    assert len({key(batch_mean(*each, factor=0.5)) for each in ((2, 5), (3, 5), (2, 3), (7, 4))}) == 1
