"""Each shape rule by an example: which axes of the arguments it makes one symbol, and which it pins.

Every example also obeys the law of erasure: its spec at its own sizes is its static canonical graph.
"""

# ruff: noqa: E501  (MLIR reads best unbroken)
from __future__ import annotations

import pytest

from kcache_compiler.spec import canonicalize
from kcache_compiler.spec.erasure.rules import RULES
from kcache_compiler.spec.graph.operations import ELEMENTWISE, SIDE_EFFECTS
from kcache_compiler.spec.instantiate import instantiate
from kcache_compiler.spec.text import parse_spec, write_spec
from kcache_compiler.types import Canonical

#: name -> (operation whose rule it shows, arguments, body, result type, the arguments with their symbols)
CASES: dict[str, tuple[str, str, str, str, str]] = {
    "add": (
        "stablehlo.add",
        "%x: tensor<2x3xf32>, %y: tensor<2x3xf32>",
        "%r = stablehlo.add %x, %y : tensor<2x3xf32>",
        "tensor<2x3xf32>",
        "f32[s0,s1];f32[s0,s1]",
    ),
    "unrelated axes that agree": (
        "stablehlo.dot_general",
        "%x: tensor<4x4xf32>, %y: tensor<4x4xf32>",
        "%r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>",
        "tensor<4x4xf32>",
        "f32[s0,s1];f32[s1,s2]",
    ),
    "compare": (
        "stablehlo.compare",
        "%x: tensor<2x3xf32>, %y: tensor<2x3xf32>",
        "%r = stablehlo.compare LT, %x, %y : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>",
        "tensor<2x3xi1>",
        "f32[s0,s1];f32[s0,s1]",
    ),
    "reshape of no elements to one more axis": (
        "stablehlo.reshape",
        "%x: tensor<0x3xf32>",
        "%r = stablehlo.reshape %x : (tensor<0x3xf32>) -> tensor<0x3x1xf32>",
        "tensor<0x3x1xf32>",
        "f32[0,s0]",
    ),
    "reshape of no elements to other axes": (
        "stablehlo.reshape",
        "%x: tensor<0x3xf32>",
        "%r = stablehlo.reshape %x : (tensor<0x3xf32>) -> tensor<3x0xf32>",
        "tensor<3x0xf32>",
        "f32[0,3]",
    ),
    "select by a scalar": (
        "stablehlo.select",
        "%p: tensor<i1>, %x: tensor<3xf32>, %y: tensor<3xf32>",
        "%r = stablehlo.select %p, %x, %y : tensor<i1>, tensor<3xf32>",
        "tensor<3xf32>",
        "i1[];f32[s0];f32[s0]",
    ),
    "clamp": (
        "stablehlo.clamp",
        "%a: tensor<f32>, %x: tensor<3xf32>, %b: tensor<3xf32>",
        "%r = stablehlo.clamp %a, %x, %b : (tensor<f32>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>",
        "tensor<3xf32>",
        "f32[];f32[s0];f32[s0]",
    ),
    "splat constant": (
        "stablehlo.constant",
        "%x: tensor<2x3xf32>",
        "%c = stablehlo.constant dense<2.0> : tensor<2x3xf32>\n%r = stablehlo.multiply %x, %c : tensor<2x3xf32>",
        "tensor<2x3xf32>",
        "f32[s0,s1]",
    ),
    "constant of several elements": (
        "stablehlo.constant",
        "%x: tensor<2x3xf32>",
        "%c = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>\n%b = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>\n%r = stablehlo.multiply %x, %b : tensor<2x3xf32>",
        "tensor<2x3xf32>",
        "f32[s0,3]",
    ),
    "constant of another dialect": (
        "arith.constant",
        "%x: tensor<3xf32>",
        "%c = arith.constant dense<2.0> : tensor<3xf32>\n%r = stablehlo.multiply %x, %c : tensor<3xf32>",
        "tensor<3xf32>",
        "f32[s0]",
    ),
    "bitcast": (
        "stablehlo.bitcast_convert",
        "%x: tensor<2x3xf32>",
        "%r = stablehlo.bitcast_convert %x : (tensor<2x3xf32>) -> tensor<2x3xi32>",
        "tensor<2x3xi32>",
        "f32[s0,s1]",
    ),
    "bitcast of parts": (
        "stablehlo.bitcast_convert",
        "%x: tensor<5x2xf32>",
        "%r = stablehlo.bitcast_convert %x : (tensor<5x2xf32>) -> tensor<5xf64>",
        "tensor<5xf64>",
        "f32[s0,2]",
    ),
    "iota": (
        "stablehlo.iota",
        "%x: tensor<2x3xi32>",
        "%i = stablehlo.iota dim = 1 : tensor<2x3xi32>\n%r = stablehlo.add %x, %i : tensor<2x3xi32>",
        "tensor<2x3xi32>",
        "i32[s0,s1]",
    ),
    "iota of two uses": (
        "stablehlo.iota",
        "%x: tensor<4xi32>, %y: tensor<4xi32>",
        "%i = stablehlo.iota dim = 0 : tensor<4xi32>\n%a = stablehlo.add %x, %i : tensor<4xi32>\n%b = stablehlo.add %y, %i : tensor<4xi32>\n%s = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<4xi32>) -> tensor<4x4xi32>\n%t = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<4xi32>) -> tensor<4x4xi32>\n%r = stablehlo.multiply %s, %t : tensor<4x4xi32>",
        "tensor<4x4xi32>",
        "i32[s0];i32[s1]",
    ),
    "broadcast_in_dim": (
        "stablehlo.broadcast_in_dim",
        "%x: tensor<2x3xf32>, %b: tensor<3xf32>, %u: tensor<1x3xf32>",
        "%c = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>\n%d = stablehlo.broadcast_in_dim %u, dims = [0, 1] : (tensor<1x3xf32>) -> tensor<2x3xf32>\n%s = stablehlo.add %x, %c : tensor<2x3xf32>\n%r = stablehlo.add %s, %d : tensor<2x3xf32>",
        "tensor<2x3xf32>",
        "f32[s0,s1];f32[s1];f32[1,s1]",
    ),
    "a broadcast that two users share ties nothing": (
        "stablehlo.broadcast_in_dim",
        "%x: tensor<3x4xf32>, %y: tensor<3x4xf32>, %b: tensor<4xf32>",
        "%c = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<4xf32>) -> tensor<3x4xf32>\n%s = stablehlo.add %x, %c : tensor<3x4xf32>\n%t = stablehlo.add %y, %c : tensor<3x4xf32>\n%r = stablehlo.dot_general %s, %t, contracting_dims = [1] x [1] : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x3xf32>",
        "tensor<3x3xf32>",
        "f32[s0,s1];f32[s2,s1];f32[s1]",
    ),
    "broadcast": (
        "stablehlo.broadcast",
        "%x: tensor<3xf32>, %y: tensor<2x3xf32>",
        '%b = "stablehlo.broadcast"(%x) {broadcast_sizes = array<i64: 2>} : (tensor<3xf32>) -> tensor<2x3xf32>\n%r = stablehlo.add %b, %y : tensor<2x3xf32>',
        "tensor<2x3xf32>",
        "f32[s0];f32[s1,s0]",
    ),
    "transpose": (
        "stablehlo.transpose",
        "%x: tensor<2x3xf32>, %y: tensor<3x2xf32>",
        "%t = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>\n%r = stablehlo.add %t, %y : tensor<3x2xf32>",
        "tensor<3x2xf32>",
        "f32[s0,s1];f32[s1,s0]",
    ),
    "reshape merges": (
        "stablehlo.reshape",
        "%x: tensor<2x3x5xf32>",
        "%r = stablehlo.reshape %x : (tensor<2x3x5xf32>) -> tensor<6x5xf32>",
        "tensor<6x5xf32>",
        "f32[s0,s1,s2]",
    ),
    "reshape splits": (
        "stablehlo.reshape",
        "%x: tensor<2x12xf32>",
        "%r = stablehlo.reshape %x : (tensor<2x12xf32>) -> tensor<2x3x4xf32>",
        "tensor<2x3x4xf32>",
        "f32[s0,12]",
    ),
    "reshape merges and splits again": (
        "stablehlo.reshape",
        "%x: tensor<2x3x5xf32>, %w: tensor<5x7xf32>",
        "%f = stablehlo.reshape %x : (tensor<2x3x5xf32>) -> tensor<6x5xf32>\n%m = stablehlo.dot_general %f, %w, contracting_dims = [1] x [0] : (tensor<6x5xf32>, tensor<5x7xf32>) -> tensor<6x7xf32>\n%r = stablehlo.reshape %m : (tensor<6x7xf32>) -> tensor<2x3x7xf32>",
        "tensor<2x3x7xf32>",
        "f32[s0,s1,s2];f32[s2,s3]",
    ),
    "reshape of an argument that is a product": (
        "stablehlo.reshape",
        "%x: tensor<6x5xf32>, %y: tensor<2x3x5xf32>",
        "%f = stablehlo.reshape %y : (tensor<2x3x5xf32>) -> tensor<6x5xf32>\n%r = stablehlo.add %f, %x : tensor<6x5xf32>",
        "tensor<6x5xf32>",
        "f32[s1*s2,s0];f32[s1,s2,s0]",
    ),
    "reduce": (
        "stablehlo.reduce",
        "%x: tensor<2x3x5xf32>",
        "%z = stablehlo.constant dense<0.0> : tensor<f32>\n%r = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : (tensor<2x3x5xf32>, tensor<f32>) -> tensor<2x5xf32>",
        "tensor<2x5xf32>",
        "f32[s0,s1,s2]",
    ),
    "dot_general": (
        "stablehlo.dot_general",
        "%x: tensor<2x3x5xf32>, %y: tensor<2x5x7xf32>",
        "%r = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x3x5xf32>, tensor<2x5x7xf32>) -> tensor<2x3x7xf32>",
        "tensor<2x3x7xf32>",
        "f32[s0,s1,s2];f32[s0,s2,s3]",
    ),
    "dot": (
        "stablehlo.dot",
        "%x: tensor<2x3xf32>, %y: tensor<3x5xf32>",
        "%r = stablehlo.dot %x, %y : (tensor<2x3xf32>, tensor<3x5xf32>) -> tensor<2x5xf32>",
        "tensor<2x5xf32>",
        "f32[s0,s1];f32[s1,s2]",
    ),
    "concatenate": (
        "stablehlo.concatenate",
        "%x: tensor<2x3xf32>, %y: tensor<2x5xf32>",
        "%r = stablehlo.concatenate %x, %y, dim = 1 : (tensor<2x3xf32>, tensor<2x5xf32>) -> tensor<2x8xf32>",
        "tensor<2x8xf32>",
        "f32[s0,3];f32[s0,5]",
    ),
    "slice": (
        "stablehlo.slice",
        "%x: tensor<3x8xf32>",
        "%r = stablehlo.slice %x [0:3, 2:6] : (tensor<3x8xf32>) -> tensor<3x4xf32>",
        "tensor<3x4xf32>",
        "f32[s0,8]",
    ),
    "dynamic_slice": (
        "stablehlo.dynamic_slice",
        "%x: tensor<3x8xf32>, %i: tensor<i32>",
        "%r = stablehlo.dynamic_slice %x, %i, %i, sizes = [3, 2] : (tensor<3x8xf32>, tensor<i32>, tensor<i32>) -> tensor<3x2xf32>",
        "tensor<3x2xf32>",
        "f32[s0,s1];i32[]",
    ),
    "dynamic_update_slice": (
        "stablehlo.dynamic_update_slice",
        "%x: tensor<3x8xf32>, %u: tensor<3x2xf32>, %i: tensor<i32>",
        "%r = stablehlo.dynamic_update_slice %x, %u, %i, %i : (tensor<3x8xf32>, tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<3x8xf32>",
        "tensor<3x8xf32>",
        "f32[s0,s1];f32[s0,2];i32[]",
    ),
    "pad": (
        "stablehlo.pad",
        "%x: tensor<3x4xf32>, %v: tensor<f32>",
        "%r = stablehlo.pad %x, %v, low = [0, 1], high = [0, 0], interior = [0, 0] : (tensor<3x4xf32>, tensor<f32>) -> tensor<3x5xf32>",
        "tensor<3x5xf32>",
        "f32[s0,4];f32[]",
    ),
    "reverse": (
        "stablehlo.reverse",
        "%x: tensor<3x4xf32>, %y: tensor<3x4xf32>",
        "%v = stablehlo.reverse %x, dims = [1] : tensor<3x4xf32>\n%r = stablehlo.add %v, %y : tensor<3x4xf32>",
        "tensor<3x4xf32>",
        "f32[s0,s1];f32[s0,s1]",
    ),
    "gather": (
        "stablehlo.gather",
        "%x: tensor<9x4xf32>, %i: tensor<2x3x1xi32>",
        '%r = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1, 4>} : (tensor<9x4xf32>, tensor<2x3x1xi32>) -> tensor<2x3x4xf32>',
        "tensor<2x3x4xf32>",
        "f32[s0,s1];i32[s2,s3,1]",
    ),
    "scatter": (
        "stablehlo.scatter",
        "%x: tensor<9x4xf32>, %i: tensor<3x1xi32>, %u: tensor<3x4xf32>",
        '%r = "stablehlo.scatter"(%x, %i, %u) ({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%s = stablehlo.add %a, %b : tensor<f32>\nstablehlo.return %s : tensor<f32>\n}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : (tensor<9x4xf32>, tensor<3x1xi32>, tensor<3x4xf32>) -> tensor<9x4xf32>',
        "tensor<9x4xf32>",
        "f32[s0,s1];i32[s2,1];f32[s2,s1]",
    ),
    "convolution that keeps its spatial dims": (
        "stablehlo.convolution",
        "%x: tensor<2x8x8x3xf32>, %k: tensor<3x3x3x5xf32>",
        "%r = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x8x3xf32>, tensor<3x3x3x5xf32>) -> tensor<2x8x8x5xf32>",
        "tensor<2x8x8x5xf32>",
        "f32[s0,s1,s2,s3];f32[3,3,s3,s4]",
    ),
    "convolution with strides": (
        "stablehlo.convolution",
        "%x: tensor<2x8x8x3xf32>, %k: tensor<2x2x3x5xf32>",
        "%r = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x8x3xf32>, tensor<2x2x3x5xf32>) -> tensor<2x4x4x5xf32>",
        "tensor<2x4x4x5xf32>",
        "f32[s0,8,8,s1];f32[2,2,s1,s2]",
    ),
    "reduce_window": (
        "stablehlo.reduce_window",
        "%x: tensor<2x8xf32>, %z: tensor<f32>",
        '%r = "stablehlo.reduce_window"(%x, %z) ({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%s = stablehlo.maximum %a, %b : tensor<f32>\nstablehlo.return %s : tensor<f32>\n}) {window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>} : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x4xf32>',
        "tensor<2x4xf32>",
        "f32[s0,8];f32[]",
    ),
    "select_and_scatter": (
        "stablehlo.select_and_scatter",
        "%x: tensor<3x4xf32>, %s: tensor<3x2xf32>, %z: tensor<f32>",
        '%r = "stablehlo.select_and_scatter"(%x, %s, %z) ({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%p = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %p : tensor<i1>\n}, {\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%q = stablehlo.add %a, %b : tensor<f32>\nstablehlo.return %q : tensor<f32>\n}) {window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>, padding = dense<0> : tensor<2x2xi64>} : (tensor<3x4xf32>, tensor<3x2xf32>, tensor<f32>) -> tensor<3x4xf32>',
        "tensor<3x4xf32>",
        "f32[s0,4];f32[s0,2];f32[]",
    ),
    "sort": (
        "stablehlo.sort",
        "%x: tensor<3x4xf32>",
        '%r = "stablehlo.sort"(%x) ({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%p = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %p : tensor<i1>\n}) {dimension = 1 : i64} : (tensor<3x4xf32>) -> tensor<3x4xf32>',
        "tensor<3x4xf32>",
        "f32[s0,s1]",
    ),
    "map": (
        "stablehlo.map",
        "%x: tensor<3x4xf32>, %y: tensor<3x4xf32>",
        '%r = "stablehlo.map"(%x, %y) ({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%s = stablehlo.add %a, %b : tensor<f32>\nstablehlo.return %s : tensor<f32>\n}) {dimensions = array<i64: 0, 1>} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>',
        "tensor<3x4xf32>",
        "f32[s0,s1];f32[s0,s1]",
    ),
    "while": (
        "stablehlo.while",
        "%x: tensor<3xf32>, %n: tensor<i32>, %y: tensor<3xf32>",
        '%z = stablehlo.constant dense<0> : tensor<i32>\n%i, %r = "stablehlo.while"(%z, %x) ({\n^bb0(%a: tensor<i32>, %b: tensor<3xf32>):\n%p = stablehlo.compare LT, %a, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\nstablehlo.return %p : tensor<i1>\n}, {\n^bb0(%a: tensor<i32>, %b: tensor<3xf32>):\n%one = stablehlo.constant dense<1> : tensor<i32>\n%c = stablehlo.add %a, %one : tensor<i32>\n%d = stablehlo.add %b, %y : tensor<3xf32>\nstablehlo.return %c, %d : tensor<i32>, tensor<3xf32>\n}) : (tensor<i32>, tensor<3xf32>) -> (tensor<i32>, tensor<3xf32>)',
        "tensor<3xf32>",
        "f32[s0];i32[];f32[s0]",
    ),
    "if": (
        "stablehlo.if",
        "%p: tensor<i1>, %x: tensor<3xf32>, %y: tensor<3xf32>",
        '%r = "stablehlo.if"(%p) ({\nstablehlo.return %x : tensor<3xf32>\n}, {\nstablehlo.return %y : tensor<3xf32>\n}) : (tensor<i1>) -> tensor<3xf32>',
        "tensor<3xf32>",
        "i1[];f32[s0];f32[s0]",
    ),
    "case": (
        "stablehlo.case",
        "%p: tensor<i32>, %x: tensor<3xf32>, %y: tensor<3xf32>",
        '%r = "stablehlo.case"(%p) ({\nstablehlo.return %x : tensor<3xf32>\n}, {\nstablehlo.return %y : tensor<3xf32>\n}) : (tensor<i32>) -> tensor<3xf32>',
        "tensor<3xf32>",
        "i32[];f32[s0];f32[s0]",
    ),
    "letters": (
        "stablehlo.einsum",
        "%x: tensor<2x3x3xf32>, %y: tensor<3x4xf32>",
        '%r = "stablehlo.einsum"(%x, %y) <{einsum_config = "bij,jk->bk"}> : '
        "(tensor<2x3x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>",
        "tensor<2x4xf32>",
        "f32[s0,s1,s2];f32[s2,s3]",
    ),
    "a diagonal": (
        "stablehlo.unary_einsum",
        "%x: tensor<3x3xf32>",
        '%r = "stablehlo.unary_einsum"(%x) <{einsum_config = "ii->i"}> : (tensor<3x3xf32>) -> tensor<3xf32>',
        "tensor<3xf32>",
        "f32[s0,s0]",
    ),
    "cholesky": (
        "stablehlo.cholesky",
        "%x: tensor<2x4x4xf32>",
        "%r = stablehlo.cholesky %x, lower = true : tensor<2x4x4xf32>",
        "tensor<2x4x4xf32>",
        "f32[s0,s1,s1]",
    ),
    "triangular_solve": (
        "stablehlo.triangular_solve",
        "%a: tensor<2x4x4xf32>, %b: tensor<2x4x3xf32>",
        '%r = "stablehlo.triangular_solve"(%a, %b) {left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>} : (tensor<2x4x4xf32>, tensor<2x4x3xf32>) -> tensor<2x4x3xf32>',
        "tensor<2x4x3xf32>",
        "f32[s0,s1,s1];f32[s0,s1,s2]",
    ),
    "fft": (
        "stablehlo.fft",
        "%x: tensor<3x8xcomplex<f32>>",
        "%r = stablehlo.fft %x, type = FFT, length = [8] : (tensor<3x8xcomplex<f32>>) -> tensor<3x8xcomplex<f32>>",
        "tensor<3x8xcomplex<f32>>",
        "c64[s0,8]",
    ),
    "batch_norm_inference": (
        "stablehlo.batch_norm_inference",
        "%x: tensor<2x3x5xf32>, %s: tensor<5xf32>",
        '%r = "stablehlo.batch_norm_inference"(%x, %s, %s, %s, %s) {epsilon = 0.1 : f32, feature_index = 2 : i64} : (tensor<2x3x5xf32>, tensor<5xf32>, tensor<5xf32>, tensor<5xf32>, tensor<5xf32>) -> tensor<2x3x5xf32>',
        "tensor<2x3x5xf32>",
        "f32[s0,s1,s2];f32[s2]",
    ),
    "batch_norm_training": (
        "stablehlo.batch_norm_training",
        "%x: tensor<2x3xf32>, %s: tensor<3xf32>, %o: tensor<3xf32>",
        '%r, %m, %v = "stablehlo.batch_norm_training"(%x, %s, %o) {epsilon = 0.1 : f32, feature_index = 1 : i64} : (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>)',
        "tensor<2x3xf32>",
        "f32[s0,s1];f32[s1];f32[s1]",
    ),
    "batch_norm_grad": (
        "stablehlo.batch_norm_grad",
        "%x: tensor<2x3xf32>, %s: tensor<3xf32>, %g: tensor<2x3xf32>",
        '%r, %m, %v = "stablehlo.batch_norm_grad"(%x, %s, %s, %s, %g) {epsilon = 0.1 : f32, feature_index = 1 : i64} : (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>)',
        "tensor<2x3xf32>",
        "f32[s0,s1];f32[s1];f32[s0,s1]",
    ),
    "rng": (
        "stablehlo.rng",
        "%a: tensor<f32>, %b: tensor<f32>, %x: tensor<4xf32>",
        "%n = stablehlo.constant dense<4> : tensor<1xi64>\n%u = stablehlo.rng %a, %b, %n, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>\n%r = stablehlo.add %u, %x : tensor<4xf32>",
        "tensor<4xf32>",
        "f32[];f32[];f32[4]",
    ),
    "rng_bit_generator": (
        "stablehlo.rng_bit_generator",
        "%s: tensor<2xui64>, %x: tensor<4xui32>",
        "%t, %u = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)\n%r = stablehlo.add %u, %x : tensor<4xui32>",
        "tensor<4xui32>",
        "ui64[2];ui32[4]",
    ),
    "get_dimension_size": (
        "stablehlo.get_dimension_size",
        "%x: tensor<3x4xf32>",
        "%r = stablehlo.get_dimension_size %x, dim = 1 : (tensor<3x4xf32>) -> tensor<i32>",
        "tensor<i32>",
        "f32[s0,4]",
    ),
    "optimization_barrier": (
        "stablehlo.optimization_barrier",
        "%x: tensor<3xf32>, %y: tensor<3xf32>",
        "%a = stablehlo.optimization_barrier %x : tensor<3xf32>\n%r = stablehlo.add %a, %y : tensor<3xf32>",
        "tensor<3xf32>",
        "f32[s0];f32[s0]",
    ),
    "custom_call that is an operation": (
        "stablehlo.custom_call",
        "%x: tensor<3xf32>, %y: tensor<3xf32>",
        "%a = stablehlo.custom_call @mhlo.erf(%x) : (tensor<3xf32>) -> tensor<3xf32>\n%r = stablehlo.add %a, %y : tensor<3xf32>",
        "tensor<3xf32>",
        "f32[s0];f32[s0]",
    ),
    "custom_call of which nothing is known": (
        "stablehlo.custom_call",
        "%x: tensor<3xf32>",
        "%r = stablehlo.custom_call @mine(%x) : (tensor<3xf32>) -> tensor<3xf32>",
        "tensor<3xf32>",
        "f32[3]",
    ),
    "dead code ties nothing": (
        "stablehlo.add",
        "%x: tensor<3xf32>, %y: tensor<3xf32>",
        "%d = stablehlo.add %x, %y : tensor<3xf32>\n%r = stablehlo.tanh %x : tensor<3xf32>",
        "tensor<3xf32>",
        "f32[s0];f32[s1]",
    ),
    "sizes 1 and 0 are kept": (
        "stablehlo.add",
        "%x: tensor<1x0x2xf32>",
        "%r = stablehlo.add %x, %x : tensor<1x0x2xf32>",
        "tensor<1x0x2xf32>",
        "f32[1,0,s0]",
    ),
}

#: Rules that no StableHLO program of one function shows: the linalg family's, and those of operations that the frontend
#: legalizes, inlines or rejects before.
ELSEWHERE = {
    "linalg.generic",
    "tensor.empty",
    "chlo.constant",
    "chlo.constant_like",
    "stablehlo.composite",
    "stablehlo.set_dimension_size",
}


def form_of(case: str, erasing: bool = True) -> Canonical:
    _, arguments, body, result, _ = CASES[case]
    text = f"func.func @main({arguments}) -> {result} {{\n{body}\nreturn %r : {result}\n}}"
    return canonicalize(text.encode(), "stablehlo", "strict", erasing=erasing)


@pytest.mark.parametrize("case", CASES)
def test_rule(case: str) -> None:
    assert ";".join(map(str, form_of(case).symbolic_args)) == CASES[case][4]


@pytest.mark.parametrize("case", CASES)
def test_a_spec_at_the_sizes_of_the_program_is_its_static_graph(case: str) -> None:
    form, static = form_of(case), form_of(case, erasing=False)
    sizes = dict(enumerate(form.symbol_values))
    again = instantiate(parse_spec(form.spec_text), sizes, [c.digest for c in form.constants])
    assert write_spec(again) == static.spec_text


def test_every_rule_has_an_example() -> None:
    shown = {case[0] for case in CASES.values()}
    assert set(RULES) - set(ELEMENTWISE) - shown == ELSEWHERE


#: The operations of the StableHLO specification, version 1.
OPERATIONS = [
    "abs",
    "add",
    "after_all",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "and",
    "async_done",
    "async_start",
    "atan2",
    "batch_norm_grad",
    "batch_norm_inference",
    "batch_norm_training",
    "bitcast_convert",
    "broadcast_in_dim",
    "case",
    "cbrt",
    "ceil",
    "cholesky",
    "clamp",
    "collective_broadcast",
    "collective_permute",
    "compare",
    "complex",
    "composite",
    "concatenate",
    "constant",
    "convert",
    "convolution",
    "cosine",
    "count_leading_zeros",
    "custom_call",
    "divide",
    "dot_general",
    "dynamic_broadcast_in_dim",
    "dynamic_conv",
    "dynamic_gather",
    "dynamic_iota",
    "dynamic_pad",
    "dynamic_reshape",
    "dynamic_slice",
    "dynamic_update_slice",
    "exponential",
    "exponential_minus_one",
    "fft",
    "floor",
    "gather",
    "get_dimension_size",
    "get_tuple_element",
    "if",
    "imag",
    "infeed",
    "iota",
    "is_finite",
    "log",
    "log_plus_one",
    "logistic",
    "map",
    "maximum",
    "minimum",
    "multiply",
    "negate",
    "not",
    "optimization_barrier",
    "or",
    "outfeed",
    "pad",
    "partition_id",
    "popcnt",
    "power",
    "real",
    "recv",
    "reduce",
    "reduce_precision",
    "reduce_scatter",
    "reduce_window",
    "remainder",
    "replica_id",
    "reshape",
    "reverse",
    "rng",
    "rng_bit_generator",
    "round_nearest_afz",
    "round_nearest_even",
    "rsqrt",
    "scatter",
    "select",
    "select_and_scatter",
    "send",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sine",
    "slice",
    "sort",
    "sqrt",
    "subtract",
    "tan",
    "tanh",
    "transpose",
    "triangular_solve",
    "tuple",
    "uniform_dequantize",
    "uniform_quantize",
    "while",
    "xor",
]

#: Every size of theirs stays: shapes that are computed at run time, tuples, quantized elements.
KEPT = {"get_tuple_element", "tuple", "uniform_dequantize", "uniform_quantize"}


def test_every_operation_of_the_specification_has_a_rule_or_a_reason_to_have_none() -> None:
    known = {name.removeprefix("stablehlo.") for name in (*RULES, *SIDE_EFFECTS)}
    shapes_at_run_time = {name for name in OPERATIONS if name.startswith("dynamic_")} - known
    assert set(OPERATIONS) - known - shapes_at_run_time == KEPT
