from collections.abc import Sequence

from torch_mlir.ir import OpView, Type, Value

class MaterializeInDestinationOp(OpView):
    def __init__(
        self,
        result: Type | None,
        source: Value,
        dest: Value,
        *,
        restrict: bool | None = None,
        writable: bool | None = None,
    ) -> None: ...

def alloc_tensor(result: Type, dynamic_sizes: Sequence[Value], *, copy: Value | None = None) -> Value: ...
def to_tensor(
    result: Type, buffer: Value, *, restrict: bool | None = None, writable: bool | None = None
) -> Value: ...
