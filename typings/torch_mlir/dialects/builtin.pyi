from collections.abc import Sequence

from torch_mlir.ir import OpView, Type, Value

class UnrealizedConversionCastOp(OpView):
    def __init__(self, outputs: Sequence[Type], inputs: Sequence[Value]) -> None: ...
