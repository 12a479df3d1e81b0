"""Run the library's functions over arrays: MLIR to LLVM to machine code, and to assembly."""

from __future__ import annotations

import ctypes
import functools

import llvmlite.binding as binding
import ml_dtypes
import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import llvm as llvm_dialect
from torch_mlir.execution_engine import ExecutionEngine

from kcache_compiler.llvm.compatibility import downgrade
from kcache_compiler.llvm.emission import emit_assembly, optimize
from kcache_compiler.llvm.target import TARGETS, Target
from kcache_compiler.mlir import operations as mlir
from kcache_compiler.passes.inline_math_functions import inline_math_functions

DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "i1": np.dtype(np.int8),
    **{f"i{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
}
#: bf16 is rounded by integer operations, as in kernels: the instruction of some CPUs flushes subnormals.
PIPELINE = (
    "builtin.module(convert-vector-to-llvm,convert-scf-to-cf,arith-expand{include-bf16=true},"
    "convert-ub-to-llvm,convert-math-to-llvm,convert-arith-to-llvm,finalize-memref-to-llvm,"
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=1},convert-cf-to-llvm,reconcile-unrealized-casts)"
)


def loop_text(name: str, arguments: tuple[str, ...], result: str) -> str:
    """A loop that calls ``@kcm_<name>`` on elements of buffers; i1 results are stored as bytes."""
    stored = "i8" if result == "i1" else result
    ins = ", ".join(f"%p{i}: memref<1000000000x{t}> {{llvm.noalias}}" for i, t in enumerate(arguments))
    loads = "\n".join(
        f"    %x{i} = memref.load %p{i}[%i] : memref<1000000000x{t}>" for i, t in enumerate(arguments)
    )
    names = ", ".join(f"%x{i}" for i in range(len(arguments)))
    convert = "    %r = arith.extui %y : i1 to i8" if result == "i1" else ""
    value = "%r" if result == "i1" else "%y"
    return f"""
func.func private @kcm_{name}({", ".join(arguments)}) -> {result}
func.func @run({ins}, %out: memref<1000000000x{stored}> {{llvm.noalias}}, %n: index) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {{
{loads}
    %y = func.call @kcm_{name}({names}) : ({", ".join(arguments)}) -> {result}
{convert}
    memref.store {value}, %out[%i] : memref<1000000000x{stored}>
  }}
  return
}}
"""


def lowered(text: str, scales: bool = False) -> ir.Module:
    """``text`` with its math expanded, for a target that ``scales`` or not, in the LLVM dialect."""
    context = mlir.new_context()
    with context, ir.Location.unknown():
        module = mlir.parse(text)
        inline_math_functions(module, scales)
        assert module.operation.verify()
        mlir.run_passes(module, PIPELINE)
        return module


def llvm_text(name: str, arguments: tuple[str, ...], result: str, scales: bool = False) -> str:
    """LLVM IR of the loop, as the code generator's LLVM reads it."""
    module = lowered(loop_text(name, arguments, result), scales)
    return downgrade(llvm_dialect.translate_module_to_llvmir(module.operation))


def assembly(name: str, arguments: tuple[str, ...], result: str, target: str) -> str:
    goal = TARGETS[target]
    return emit_assembly(optimize(llvm_text(name, arguments, result, scales_by(goal)), goal, 3), goal, 3)


def scales_by(target: Target) -> bool:
    """As the pipeline asks of a target."""
    return "avx512vl" in target.features


class ForTarget:
    """A function over arrays, compiled for a target and level through the code generator's LLVM."""

    def __init__(
        self, name: str, arguments: tuple[str, ...], result: str, target: str, opt_level: int
    ) -> None:
        goal = TARGETS[target]
        bitcode = optimize(llvm_text(name, arguments, result, scales_by(goal)), goal, opt_level)
        machine = binding.Target.from_triple(goal.triple).create_target_machine(
            cpu=goal.cpu, features=goal.feature_string, opt=opt_level, jit=True
        )
        self._engine = binding.create_mcjit_compiler(binding.parse_bitcode(bitcode), machine)
        count = len(arguments) + 1
        address = self._engine.get_function_address("run")
        self._run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count, ctypes.c_int64)(address)
        self._arguments, self._result = arguments, result

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        ready = [np.ascontiguousarray(a, DTYPES[t]) for a, t in zip(arrays, self._arguments, strict=True)]
        out = np.empty(ready[0].shape, DTYPES[self._result])
        self._run(*(a.ctypes.data for a in ready), out.ctypes.data, out.size)
        return out


class Compiled:
    """A function over arrays of equal length, compiled for this machine."""

    def __init__(self, name: str, arguments: tuple[str, ...], result: str, opt_level: int = 3) -> None:
        module = lowered(loop_text(name, arguments, result))
        self._engine = ExecutionEngine(module, opt_level=opt_level)
        address = self._engine.raw_lookup("run")
        self._run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
        self._arguments, self._result = arguments, result

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        ready = [np.ascontiguousarray(a, DTYPES[t]) for a, t in zip(arrays, self._arguments, strict=True)]
        out = np.empty(ready[0].shape, DTYPES[self._result])
        # The engine's entry takes the addresses of its arguments.
        words = [ctypes.c_int64(a.ctypes.data) for a in (*ready, out)] + [ctypes.c_int64(out.size)]
        self._run((ctypes.c_void_p * len(words))(*(ctypes.addressof(word) for word in words)))
        return out


@functools.cache
def compiled(name: str, dtype: str, arity: int = 1, opt_level: int = 3) -> Compiled:
    return Compiled(f"{name}_{dtype}", (dtype,) * arity, dtype, opt_level)


def ordered(values: np.ndarray) -> np.ndarray:
    """Encodings as integers in the order of the values, -0 and +0 equal."""
    width = values.dtype.itemsize * 8
    raw = values.view(f"int{width}").astype(np.int64)
    low = -(1 << (width - 1))
    return np.where(raw < 0, np.int64(low) - raw, raw)


def ulp_distance(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance in units of the last place; 0 for two NaNs, a huge number for one."""
    with np.errstate(over="ignore"):
        distance = np.abs(ordered(got) - ordered(want))
    nan_got, nan_want = np.isnan(got), np.isnan(want)
    distance = np.where(nan_got & nan_want, 0, distance)
    return np.where(nan_got != nan_want, np.int64(1) << 62, distance)
