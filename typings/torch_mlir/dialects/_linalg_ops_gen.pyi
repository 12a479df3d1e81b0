from collections.abc import Sequence

from torch_mlir.ir import Attribute, OpView, Type, Value

class GenericOp(OpView):
    def __init__(
        self,
        result_tensors: Sequence[Type],
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        indexing_maps: Attribute,
        iterator_types: Attribute,
    ) -> None: ...

class FillOp(OpView):
    def __init__(
        self, result_tensors: Sequence[Type], inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> None: ...

def yield_(values: Sequence[Value]) -> OpView: ...
def index(dim: int) -> Value: ...
