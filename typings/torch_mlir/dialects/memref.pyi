from collections.abc import Sequence

from torch_mlir.ir import AffineMap, Attribute, MemRefType, OpView, Type, Value

class ExtractStridedMetadataOp(OpView):
    def __init__(self, source: Value, *, results: Sequence[Type] | None = None) -> None: ...

def subview(
    source: Value,
    offsets: Sequence[Value | int],
    sizes: Sequence[Value | int],
    strides: Sequence[Value | int],
    *,
    result_type: MemRefType | None = None,
) -> Value: ...
def alloc(
    memref: Type,
    dynamic_sizes: Sequence[Value],
    symbol_operands: Sequence[Value],
    *,
    alignment: int | None = None,
) -> Value: ...
def cast(dest: Type, source: Value) -> Value: ...
def collapse_shape(result: Type, src: Value, reassociation: Attribute) -> Value: ...
def copy(source: Value, target: Value) -> OpView: ...
def dealloc(memref: Value) -> OpView: ...
def dim(source: Value, index: Value) -> Value: ...
def expand_shape(
    result: Type,
    src: Value,
    reassociation: Attribute,
    output_shape: Sequence[Value],
    static_output_shape: Sequence[int],
) -> Value: ...
def extract_aligned_pointer_as_index(source: Value) -> Value: ...
def get_global(result: Type, name: str) -> Value: ...
def load(
    memref: Value,
    indices: Sequence[Value],
    *,
    nontemporal: bool | None = None,
    alignment: int | None = None,
    invariant: bool | None = None,
) -> Value: ...
def reinterpret_cast(
    result: Type,
    source: Value,
    offsets: Sequence[Value],
    sizes: Sequence[Value],
    strides: Sequence[Value],
    static_offsets: Sequence[int],
    static_sizes: Sequence[int],
    static_strides: Sequence[int],
) -> Value: ...
def store(
    value: Value,
    memref: Value,
    indices: Sequence[Value],
    *,
    nontemporal: bool | None = None,
    alignment: int | None = None,
) -> OpView: ...
def transpose(result: Type, in_: Value, permutation: AffineMap) -> Value: ...
