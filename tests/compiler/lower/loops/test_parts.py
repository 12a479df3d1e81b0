"""Parts of one buffer at known places are apart if they have no element in common."""

from __future__ import annotations

from kcache_compiler.lower.loops.memory import are_apart, known_not_to_alias
from kcache_compiler.mlir import operations as mlir

TEXT = """
func.func @main() {
  %whole = memref.alloc() : memref<4x12xf32>
  %left = memref.subview %whole[0, 0] [4, 8] [1, 1] : memref<4x12xf32> to memref<4x8xf32, strided<[12, 1]>>
  %right = memref.subview %whole[0, 8] [4, 4] [1, 1]
    : memref<4x12xf32> to memref<4x4xf32, strided<[12, 1], offset: 8>>
  %end = memref.subview %left[0, 4] [4, 4] [1, 1]
    : memref<4x8xf32, strided<[12, 1]>> to memref<4x4xf32, strided<[12, 1], offset: 4>>
  %steps = memref.subview %whole[0, 0] [4, 4] [1, 2]
    : memref<4x12xf32> to memref<4x4xf32, strided<[12, 2]>>
  return
}"""


def test_parts_are_compared_by_their_places_in_the_whole():
    with mlir.new_context(), mlir.unknown_location():
        module = mlir.parse(TEXT)
        whole, left, right, end, steps = (
            op.results[0] for op in mlir.operations(mlir.block_of(mlir.main_function(module)))[:-1]
        )
        assert all(are_apart(other, right) for other in (left, end))
        assert not any(are_apart(left, other) for other in (whole, end, steps, left))
        assert known_not_to_alias(left, [left, right], {right}, static=True)
        assert not known_not_to_alias(left, [left, right], {right})
        assert not known_not_to_alias(left, [left, end], {end}, static=True)
