// RUN: cpu subkernels-in-place
// Operands of a concatenation along the last axis are computed in the parts of the result. A buffer that is still read
// after its part is written again keeps its own memory, and so do one whose part is touched before the copy and one
// that is written again while its part is still read. A part of a buffer that has itself become a part is not one.

#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%a: memref<4x8xf32>, %out: memref<4x16xf32>) {
  %left = memref.alloc() : memref<4x8xf32>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : memref<4x8xf32>) outs(%left : memref<4x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.negf %x : f32
    linalg.yield %0 : f32
  }
  %half = memref.subview %left[0, 4] [4, 4] [1, 1] : memref<4x8xf32> to memref<4x4xf32, strided<[8, 1], offset: 4>>
  %right = memref.alloc() : memref<4x4xf32>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%half : memref<4x4xf32, strided<[8, 1], offset: 4>>) outs(%right : memref<4x4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = math.absf %x : f32
    linalg.yield %0 : f32
  }
  %whole = memref.alloc() : memref<4x12xf32>
  %first = memref.subview %whole[0, 0] [4, 8] [1, 1] : memref<4x12xf32> to memref<4x8xf32, strided<[12, 1]>>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%left : memref<4x8xf32>) outs(%first : memref<4x8xf32, strided<[12, 1]>>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  %second = memref.subview %whole[0, 8] [4, 4] [1, 1] : memref<4x12xf32> to memref<4x4xf32, strided<[12, 1], offset: 8>>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%right : memref<4x4xf32>) outs(%second : memref<4x4xf32, strided<[12, 1], offset: 8>>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  %target = memref.subview %out[0, 0] [4, 12] [1, 1] : memref<4x16xf32> to memref<4x12xf32, strided<[16, 1]>>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%whole : memref<4x12xf32>) outs(%target : memref<4x12xf32, strided<[16, 1]>>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  return
}

// CHECK-LABEL: func.func @main
// CHECK: %[[WHOLE:.*]] = memref.alloc() : memref<4x12xf32>
// CHECK: %[[FIRST:.*]] = memref.subview %[[WHOLE]][0, 0] [4, 8] [1, 1]
// CHECK: linalg.generic {{.*}} ins(%arg0 : memref<4x8xf32>) outs(%[[FIRST]] : memref<4x8xf32, strided<[12, 1]>>)
// CHECK: %[[HALF:.*]] = memref.subview %[[FIRST]][0, 4] [4, 4] [1, 1]
// CHECK: %[[SECOND:.*]] = memref.subview %[[WHOLE]][0, 8] [4, 4] [1, 1]
// CHECK: linalg.generic {{.*}} ins(%[[HALF]] : memref<4x4xf32, strided<[12, 1], offset: 4>>) outs(%[[SECOND]]
// CHECK-NOT: memref.alloc
// CHECK: linalg.generic {{.*}} ins(%[[WHOLE]] : memref<4x12xf32>)
// CHECK: return

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%a: memref<4x8xf32>, %b: memref<4x8xf32>) {
  %whole = memref.alloc() : memref<4x12xf32>
  %part = memref.subview %whole[0, 0] [4, 8] [1, 1] : memref<4x12xf32> to memref<4x8xf32, strided<[12, 1]>>
  %kept = memref.alloc() : memref<4x8xf32>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : memref<4x8xf32>) outs(%kept : memref<4x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.negf %x : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%kept : memref<4x8xf32>) outs(%part : memref<4x8xf32, strided<[12, 1]>>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : memref<4x8xf32>) outs(%part : memref<4x8xf32, strided<[12, 1]>>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.addf %x, %x : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%kept : memref<4x8xf32>) outs(%b : memref<4x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.negf %x : f32
    linalg.yield %0 : f32
  }
  return
}

// CHECK-LABEL: func.func @main
// CHECK: %[[PART:.*]] = memref.subview
// CHECK: %[[KEPT:.*]] = memref.alloc() : memref<4x8xf32>
// CHECK: outs(%[[KEPT]] : memref<4x8xf32>)
// CHECK: ins(%[[KEPT]] : memref<4x8xf32>) outs(%[[PART]]

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%a: memref<4x8xf32>, %b: memref<4x8xf32>) {
  %whole = memref.alloc() : memref<4x12xf32>
  %part = memref.subview %whole[0, 0] [4, 8] [1, 1] : memref<4x12xf32> to memref<4x8xf32, strided<[12, 1]>>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : memref<4x8xf32>) outs(%part : memref<4x8xf32, strided<[12, 1]>>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.addf %x, %x : f32
    linalg.yield %0 : f32
  }
  %kept = memref.alloc() : memref<4x8xf32>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : memref<4x8xf32>) outs(%kept : memref<4x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.negf %x : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%part : memref<4x8xf32, strided<[12, 1]>>) outs(%b : memref<4x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.addf %x, %x : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%kept : memref<4x8xf32>) outs(%part : memref<4x8xf32, strided<[12, 1]>>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  return
}

// CHECK-LABEL: func.func @main
// CHECK: %[[KEPT:.*]] = memref.alloc() : memref<4x8xf32>
// CHECK: outs(%[[KEPT]] : memref<4x8xf32>)
// CHECK: ins(%[[KEPT]] : memref<4x8xf32>)

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%a: memref<4x8xf32>, %b: memref<4x8xf32>, %c: memref<4x8xf32>) {
  %whole = memref.alloc() : memref<4x12xf32>
  %part = memref.subview %whole[0, 0] [4, 8] [1, 1] : memref<4x12xf32> to memref<4x8xf32, strided<[12, 1]>>
  %updated = memref.alloc() : memref<4x8xf32>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : memref<4x8xf32>) outs(%updated : memref<4x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.negf %x : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%updated : memref<4x8xf32>) outs(%part : memref<4x8xf32, strided<[12, 1]>>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : memref<4x8xf32>) outs(%updated : memref<4x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.addf %x, %y : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%part : memref<4x8xf32, strided<[12, 1]>>) outs(%b : memref<4x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.negf %x : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%updated : memref<4x8xf32>) outs(%c : memref<4x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.negf %x : f32
    linalg.yield %0 : f32
  }
  return
}

// CHECK-LABEL: func.func @main
// CHECK: %[[PART:.*]] = memref.subview
// CHECK: %[[UPDATED:.*]] = memref.alloc() : memref<4x8xf32>
// CHECK: ins(%[[UPDATED]] : memref<4x8xf32>) outs(%[[PART]]
// CHECK: ins(%[[PART]] : memref<4x8xf32, strided<[12, 1]>>) outs(%arg1

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%a: memref<4x12xf32>, %b: memref<4x8xf32>, %c: memref<4x16xf32>) {
  %whole = memref.alloc() : memref<4x16xf32>
  %outer = memref.subview %whole[0, 0] [4, 12] [1, 1] : memref<4x16xf32> to memref<4x12xf32, strided<[16, 1]>>
  %nested = memref.alloc() : memref<4x12xf32>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : memref<4x12xf32>) outs(%nested : memref<4x12xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.negf %x : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%nested : memref<4x12xf32>) outs(%outer : memref<4x12xf32, strided<[16, 1]>>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  %late = memref.alloc() : memref<4x8xf32>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%b : memref<4x8xf32>) outs(%late : memref<4x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.negf %x : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%whole : memref<4x16xf32>) outs(%c : memref<4x16xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.negf %x : f32
    linalg.yield %0 : f32
  }
  %inner = memref.subview %nested[0, 0] [4, 8] [1, 1] : memref<4x12xf32> to memref<4x8xf32, strided<[12, 1]>>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%late : memref<4x8xf32>) outs(%inner : memref<4x8xf32, strided<[12, 1]>>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }
  return
}

// CHECK-LABEL: func.func @main
// CHECK: %[[LATE:.*]] = memref.alloc() : memref<4x8xf32>
// CHECK: outs(%[[LATE]] : memref<4x8xf32>)
// CHECK: ins(%[[LATE]] : memref<4x8xf32>)
