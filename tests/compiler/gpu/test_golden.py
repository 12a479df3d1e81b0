"""The declared code version of kernels for GPUs rises when their code changes.

PTX is compared, so that ptxas, an ingredient of its own, does not matter; programs that call the math library
are left out, as that has a version of its own.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from kcache_compiler.compile import lower_module
from kcache_compiler.fingerprint import gpu_toolchain
from kcache_compiler.types import CompileOptions
from kcache_compiler.versions import GPU_CODE_VERSION
from tests.compiler.gpu.programs import matmul
from tests.compiler.schedule.test_split_reductions import reduction
from tests.gpu.harness.programs import narrow_attention

GOLDEN = Path(__file__).with_name("golden.json")
TARGETS = ("sm_75", "sm_90")
POINTS = """func.func @main(%a: tensor<1000x256xf32>, %b: tensor<256xf32>) -> tensor<1000x256xf32> {
  %0 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<256xf32>) -> tensor<1000x256xf32>
  %1 = stablehlo.add %a, %0 : tensor<1000x256xf32>
  %2 = stablehlo.maximum %1, %a : tensor<1000x256xf32>
  return %2 : tensor<1000x256xf32> }"""
ROWS = """func.func @main(%a: tensor<128x2000xf32>) -> tensor<128x2000xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %q = stablehlo.multiply %a, %a : tensor<128x2000xf32>
  %s = stablehlo.reduce(%q init: %z) applies stablehlo.add across dimensions = [1]
    : (tensor<128x2000xf32>, tensor<f32>) -> tensor<128xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<128xf32>) -> tensor<128x2000xf32>
  %r = stablehlo.divide %a, %b : tensor<128x2000xf32>
  return %r : tensor<128x2000xf32> }"""
TURN = """func.func @main(%a: tensor<96x160xf32>) -> tensor<160x96xf32> {
  %r = stablehlo.transpose %a, dims = [1, 0] : (tensor<96x160xf32>) -> tensor<160x96xf32>
  return %r : tensor<160x96xf32> }"""
#: Text and number of inputs.
PROGRAMS = {
    "points": (POINTS, 2),
    "rows": (ROWS, 1),
    "transposition": (TURN, 1),
    "whole sum": (reduction((512, 2048), (0, 1)), 1),
    "column sums": (reduction((2048, 200), (0,)), 1),
    "bf16 product": (matmul(128, 96, 192, "bf16"), 3),
    "bf16 product split along K": (matmul(64, 96, 4096, "bf16"), 3),
    "f32 product": (matmul(65, 33, 96, "f32"), 3),
    "bf16 attention": (narrow_attention(1, 2, 128, 128, 64, "bf16", True), 3),
}
_ADVICE = "run: python -m tests.compiler.gpu.test_golden"


def current() -> dict[str, object]:
    """The keys that names of kernels have, and SHA-256 of the PTX of each program by name and target."""
    named = dict(gpu_toolchain())
    digests: dict[str, str] = {}
    for name, (text, inputs) in PROGRAMS.items():
        for target in TARGETS:
            if name == "bf16 attention" and target == "sm_75":
                continue  # its exponentials are those of the math library
            kernel = lower_module(text, inputs, target, CompileOptions(), lambda _: None)
            digests[f"{name} {target}"] = hashlib.sha256(kernel.artifacts["ptx"]).hexdigest()
    return {
        "code": GPU_CODE_VERSION,
        "toolchain": {name: named[name] for name in ("torch-mlir", "llvmlite", "llvm")},
        "digests": digests,
    }


def test_the_code_version_rises_with_the_code() -> None:
    stored, now = json.loads(GOLDEN.read_text()), current()
    if stored == now:
        return
    same = all(stored[key] == now[key] for key in ("code", "toolchain"))
    first = "raise GPU_CODE_VERSION in compiler/kcache_compiler/versions.py, then " if same else ""
    raise AssertionError(f"the PTX of some program changed; {first}{_ADVICE}")


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(current(), indent=2) + "\n")
