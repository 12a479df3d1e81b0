from kcache_grpc._proto.kcache.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Graph(_message.Message):
    __slots__ = ("format", "inputs", "constants", "nodes", "outputs", "expected")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    format: str
    inputs: _containers.RepeatedCompositeFieldContainer[GraphValue]
    constants: _containers.RepeatedCompositeFieldContainer[GraphConstant]
    nodes: _containers.RepeatedCompositeFieldContainer[GraphNode]
    outputs: _containers.RepeatedScalarFieldContainer[str]
    expected: _containers.RepeatedCompositeFieldContainer[GraphValue]
    def __init__(self, format: _Optional[str] = ..., inputs: _Optional[_Iterable[_Union[GraphValue, _Mapping]]] = ..., constants: _Optional[_Iterable[_Union[GraphConstant, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[GraphNode, _Mapping]]] = ..., outputs: _Optional[_Iterable[str]] = ..., expected: _Optional[_Iterable[_Union[GraphValue, _Mapping]]] = ...) -> None: ...

class GraphValue(_message.Message):
    __slots__ = ("name", "dtype", "dims")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DIMS_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: _common_pb2.DataType
    dims: _containers.RepeatedCompositeFieldContainer[GraphDimension]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[_Union[_common_pb2.DataType, str]] = ..., dims: _Optional[_Iterable[_Union[GraphDimension, _Mapping]]] = ...) -> None: ...

class GraphDimension(_message.Message):
    __slots__ = ("size", "symbol")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    size: int
    symbol: str
    def __init__(self, size: _Optional[int] = ..., symbol: _Optional[str] = ...) -> None: ...

class GraphTensor(_message.Message):
    __slots__ = ("dtype", "dims", "content")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DIMS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    dtype: _common_pb2.DataType
    dims: _containers.RepeatedScalarFieldContainer[int]
    content: bytes
    def __init__(self, dtype: _Optional[_Union[_common_pb2.DataType, str]] = ..., dims: _Optional[_Iterable[int]] = ..., content: _Optional[bytes] = ...) -> None: ...

class GraphConstant(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: GraphTensor
    def __init__(self, name: _Optional[str] = ..., value: _Optional[_Union[GraphTensor, _Mapping]] = ...) -> None: ...

class GraphNode(_message.Message):
    __slots__ = ("op", "operands", "attributes", "results")
    OP_FIELD_NUMBER: _ClassVar[int]
    OPERANDS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    op: str
    operands: _containers.RepeatedScalarFieldContainer[str]
    attributes: _containers.RepeatedCompositeFieldContainer[GraphAttribute]
    results: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, op: _Optional[str] = ..., operands: _Optional[_Iterable[str]] = ..., attributes: _Optional[_Iterable[_Union[GraphAttribute, _Mapping]]] = ..., results: _Optional[_Iterable[str]] = ...) -> None: ...

class GraphAttribute(_message.Message):
    __slots__ = ("name", "int_value", "float_value", "bool_value", "string_value", "dtype_value", "ints_value", "shape_value", "tensor_value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INT_VALUE_FIELD_NUMBER: _ClassVar[int]
    FLOAT_VALUE_FIELD_NUMBER: _ClassVar[int]
    BOOL_VALUE_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_VALUE_FIELD_NUMBER: _ClassVar[int]
    INTS_VALUE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_VALUE_FIELD_NUMBER: _ClassVar[int]
    TENSOR_VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    int_value: int
    float_value: float
    bool_value: bool
    string_value: str
    dtype_value: _common_pb2.DataType
    ints_value: GraphIntegers
    shape_value: GraphShape
    tensor_value: GraphTensor
    def __init__(self, name: _Optional[str] = ..., int_value: _Optional[int] = ..., float_value: _Optional[float] = ..., bool_value: bool = ..., string_value: _Optional[str] = ..., dtype_value: _Optional[_Union[_common_pb2.DataType, str]] = ..., ints_value: _Optional[_Union[GraphIntegers, _Mapping]] = ..., shape_value: _Optional[_Union[GraphShape, _Mapping]] = ..., tensor_value: _Optional[_Union[GraphTensor, _Mapping]] = ...) -> None: ...

class GraphIntegers(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, values: _Optional[_Iterable[int]] = ...) -> None: ...

class GraphShape(_message.Message):
    __slots__ = ("dims",)
    DIMS_FIELD_NUMBER: _ClassVar[int]
    dims: _containers.RepeatedCompositeFieldContainer[GraphDimension]
    def __init__(self, dims: _Optional[_Iterable[_Union[GraphDimension, _Mapping]]] = ...) -> None: ...
