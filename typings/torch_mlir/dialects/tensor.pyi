from collections.abc import Sequence

from torch_mlir.ir import Attribute, Type, Value

def cast(dest: Type, source: Value) -> Value: ...
def empty(
    sizes: Sequence[Value | int], element_type: Type, *, encoding: Attribute | None = None
) -> Value: ...
def collapse_shape(result: Type, src: Value, reassociation: Attribute) -> Value: ...
def dim(source: Value, index: Value) -> Value: ...
def expand_shape(
    result: Type,
    src: Value,
    reassociation: Attribute,
    output_shape: Sequence[Value],
    static_output_shape: Sequence[int],
) -> Value: ...
def extract(tensor: Value, indices: Sequence[Value]) -> Value: ...
def extract_slice(
    result: Type,
    source: Value,
    offsets: Sequence[Value],
    sizes: Sequence[Value],
    strides: Sequence[Value],
    static_offsets: Sequence[int],
    static_sizes: Sequence[int],
    static_strides: Sequence[int],
) -> Value: ...
def from_elements(result: Type, elements: Sequence[Value]) -> Value: ...
def insert(scalar: Value, dest: Value, indices: Sequence[Value]) -> Value: ...
def insert_slice(
    source: Value,
    dest: Value,
    offsets: Sequence[Value],
    sizes: Sequence[Value],
    strides: Sequence[Value],
    static_offsets: Sequence[int],
    static_sizes: Sequence[int],
    static_strides: Sequence[int],
) -> Value: ...
def pad(
    result: Type,
    source: Value,
    low: Sequence[Value],
    high: Sequence[Value],
    static_low: Sequence[int],
    static_high: Sequence[int],
    *,
    nofold: bool | None = None,
) -> Value: ...
