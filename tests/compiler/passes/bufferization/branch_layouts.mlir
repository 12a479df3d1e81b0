// RUN: cpu branch-layouts
// Bufferization casts the buffers of both branches to a dynamic layout. Where both are contiguous the casts are removed,
// and later accesses need no strides.

func.func @main(%condition: i1, %out: memref<4xf32>) {
  %a = memref.alloc() : memref<4xf32>
  %b = memref.alloc() : memref<4xf32>
  %0 = scf.if %condition -> (memref<4xf32, strided<[?], offset: ?>>) {
    %x = memref.cast %a : memref<4xf32> to memref<4xf32, strided<[?], offset: ?>>
    scf.yield %x : memref<4xf32, strided<[?], offset: ?>>
  } else {
    %y = memref.cast %b : memref<4xf32> to memref<4xf32, strided<[?], offset: ?>>
    scf.yield %y : memref<4xf32, strided<[?], offset: ?>>
  }
  memref.copy %0, %out : memref<4xf32, strided<[?], offset: ?>> to memref<4xf32>
  return
}

// CHECK-LABEL: func.func @main
// CHECK: scf.if %arg0 -> (memref<4xf32>)
// CHECK: scf.yield %alloc : memref<4xf32>
// CHECK: scf.yield %alloc_0 : memref<4xf32>
// CHECK: memref.copy %{{.*}}, %arg1 : memref<4xf32> to memref<4xf32>
