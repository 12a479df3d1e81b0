from collections.abc import Sequence
from enum import IntEnum, IntFlag

from torch_mlir.ir import Attribute, Block, InsertionPoint, OpView, Type, Value, _OperationBase

class GEPNoWrapFlags(IntFlag):
    none = 0
    inboundsFlag = 1
    nusw = 2
    nuw = 4
    inbounds = 3

class ICmpPredicate(IntEnum):
    eq = 0
    ne = 1
    slt = 2
    sle = 3
    sgt = 4
    sge = 5
    ult = 6
    ule = 7
    ugt = 8
    uge = 9

class CallOp(OpView):
    def __init__(
        self,
        result: Type | None,
        callee_operands: Sequence[Value],
        op_bundle_operands: Sequence[Value],
        op_bundle_sizes: Sequence[int],
        *,
        callee: str | None = None,
    ) -> None: ...

class CallIntrinsicOp(OpView):
    def __init__(
        self,
        results_: Type | None,
        intrin: str,
        args: Sequence[Value],
        op_bundle_operands: Sequence[Value],
        op_bundle_sizes: Sequence[int],
    ) -> None: ...

class GlobalOp(OpView):
    def __init__(
        self,
        global_type: Type,
        sym_name: str,
        linkage: Attribute,
        *,
        constant: bool | None = None,
        value: Attribute | None = None,
        alignment: int | None = None,
        ip: InsertionPoint | None = None,
    ) -> None: ...

def translate_module_to_llvmir(module: _OperationBase) -> str: ...
def addrspacecast(res: Type, arg: Value) -> Value: ...
def alloca(res: Type, array_size: Value, elem_type: Type, *, alignment: int | None = None) -> Value: ...
def bitcast(res: Type, arg: Value) -> Value: ...
def cond_br(
    condition: Value,
    true_dest_operands: Sequence[Value],
    false_dest_operands: Sequence[Value],
    true_dest: Block,
    false_dest: Block,
    *,
    branch_weights: Sequence[int] | None = None,
) -> OpView: ...
def extractelement(vector: Value, position: Value) -> Value: ...
def extractvalue(res: Type, container: Value, position: Sequence[int]) -> Value: ...
def freeze(val: Value) -> Value: ...
def getelementptr(
    res: Type,
    base: Value,
    dynamic_indices: Sequence[Value],
    raw_constant_indices: Sequence[int],
    elem_type: Type,
    no_wrap_flags: GEPNoWrapFlags,
) -> Value: ...
def icmp(predicate: ICmpPredicate, lhs: Value, rhs: Value) -> Value: ...
def insertelement(vector: Value, value: Value, position: Value) -> Value: ...
def insertvalue(container: Value, value: Value, position: Sequence[int]) -> Value: ...
def intr_ctlz(in_: Value, is_zero_poison: bool) -> Value: ...
def intr_cttz(in_: Value, is_zero_poison: bool) -> Value: ...
def intr_prefetch(addr: Value, rw: int, hint: int, cache: int) -> OpView: ...
def inttoptr(res: Type, arg: Value) -> Value: ...
def load(
    res: Type,
    addr: Value,
    *,
    alignment: int | None = None,
    volatile_: bool | None = None,
    nontemporal: bool | None = None,
    invariant: bool | None = None,
) -> Value: ...
def mlir_addressof(res: Type, global_name: str) -> Value: ...
def mlir_constant(value: Attribute) -> Value: ...
def mlir_poison(res: Type) -> Value: ...
def mlir_zero(res: Type) -> Value: ...
def ptrtoint(res: Type, arg: Value) -> Value: ...
def return_(*, arg: Value | None = None) -> OpView: ...
def shufflevector(res: Type, v1: Value, v2: Value, mask: Sequence[int]) -> Value: ...
def store(
    value: Value,
    addr: Value,
    *,
    alignment: int | None = None,
    volatile_: bool | None = None,
    nontemporal: bool | None = None,
) -> OpView: ...
def inline_asm(res: Type | None, operands_: Sequence[Value], asm_string: str, constraints: str) -> Value: ...
