from collections.abc import Sequence

from torch_mlir.ir import Block, FunctionType, InsertionPoint, Location, OpView, Type, Value

class FuncOp(OpView):
    def __init__(
        self,
        name: str,
        type: FunctionType,
        *,
        visibility: str | None = None,
        ip: InsertionPoint | None = None,
    ) -> None: ...
    def add_entry_block(self, arg_locs: Sequence[Location] | None = None) -> Block: ...

class CallOp(OpView):
    def __init__(
        self, calleeOrResults: list[Type], argumentsOrCallee: str, arguments: list[Value]
    ) -> None: ...

def return_(operands_: Sequence[Value]) -> OpView: ...
