"""The assembler of NVIDIA takes the kernels for every architecture: registers, spills, wide loads."""

from __future__ import annotations

import re

import pytest

from kcache_compiler import canonicalize, compile_spec
from kcache_compiler.llvm.ptxas import assemble_ptx, find_ptxas
from kcache_compiler.lower.gpu.cubin import with_all_registers
from kcache_compiler.types import CompileOptions
from tests.gpu.harness.programs import TEMPLATES, Template, narrow_attention
from tests.gpu.test_templates import compiled
from tests.ops.harness.programs import all_programs

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
#: Sizes that all rules about alignment hold for.
_EVEN = {
    "pointwise": (256, 1024),
    "softmax": (256, 1024),
    "row sums": (256, 1024),
    "column sums": (256, 1024),
    "transpose": (256, 1024),
    "matmul": (256, 256, 256),
    "batched": (4, 128, 128, 64),
}
#: Registers of a thread: blocks of 256 fill a multiprocessor of 65,536 with up to 32, half of it with 64.
_REGISTERS = {"pointwise": 64, "softmax": 64, "row sums": 48, "column sums": 64, "transpose": 40}
_MOST = 255

needs_ptxas = pytest.mark.skipif(find_ptxas() is None, reason="no ptxas: pip install 'kcache-grpc[cubin]'")


def _ptx(template: Template, dtype: str, target: str) -> str:
    sizes = _EVEN[template.name]
    return (
        compiled(template.text(dtype, *sizes), len(template.shapes(*sizes)), target).artifacts["ptx"].decode()
    )


def _check(template: Template, dtype: str, target: str) -> None:
    _, resources = assemble_ptx(_ptx(template, dtype, target), target)
    for entry, usage in resources.items():
        assert usage.spill_bytes == 0, f"{entry} of {template.name} {dtype} spills {usage.spill_bytes} bytes"
        limit = _REGISTERS.get(template.name, _MOST)
        assert usage.registers <= limit, (
            f"{entry} of {template.name} {dtype} takes {usage.registers} registers"
        )
        assert usage.static_shared <= 48 << 10


@needs_ptxas
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_a_kernel_spills_nothing(template: Template) -> None:
    _check(template, "f32", "sm_90")


@needs_ptxas
@pytest.mark.long
@pytest.mark.parametrize("target", ARCHITECTURES)
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_no_kernel_spills_on_any_architecture(template: Template, target: str) -> None:
    for dtype in template.dtypes:
        _check(template, dtype, target)


@needs_ptxas
@pytest.mark.long
@pytest.mark.parametrize("target", ARCHITECTURES)
@pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("depth", [64, 128])
def test_attention_does_not_spill_on_any_architecture(depth: int, element: str, target: str) -> None:
    text = narrow_attention(1, 2, 256, 256, depth, element, causal=True)
    kernel = compiled(text, 3, target)
    _, resources = assemble_ptx(kernel.artifacts["ptx"].decode(), target)
    assert {*resources} == {launch.entry for launch in kernel.interface.gpu_launches}
    assert all(usage.spill_bytes == 0 for usage in resources.values())


@needs_ptxas
def test_no_register_is_spilled_for_a_second_block() -> None:
    (program,) = (program for program in all_programs() if program.id == "maximum-i8")
    canonical = canonicalize(program.text.encode(), "stablehlo", "strict")
    options = CompileOptions("strict")
    kernel = compile_spec(canonical.spec_text, canonical.arg_spec, "sm_90", options, lambda _: None)
    ptx = kernel.artifacts["ptx"].decode()
    usage = {launch.entry: launch.resources for launch in kernel.interface.gpu_launches}
    assert {each.spill_bytes for each in usage.values() if each is not None} == {0}
    entries = re.findall(r"\.entry (\w+)\([^)]*\)\n\.reqntid [^\n]*\n\.minnctapersm 1\n", ptx)
    assert entries, "ptxas spills none of these registers: choose another program"
    assert with_all_registers(ptx, entries) == ptx
    others = [name for name in usage if name not in entries]
    assert with_all_registers(ptx, others).count(".minnctapersm 1\n") == len(usage)
    assert assemble_ptx(ptx.replace(".minnctapersm 1\n", ""), "sm_90")[1][entries[0]].spill_bytes > 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["pointwise", "softmax", "row sums"])
def test_streaming_kernels_load_16_bytes(name: str, dtype: str) -> None:
    (template,) = (candidate for candidate in TEMPLATES if candidate.name == name)
    ptx = _ptx(template, dtype, "sm_90")
    assert re.search(r"ld\.global\.nc\.v4\.(b32|f32|u32)|ld\.global\.nc\.v2\.(b64|f64|u64)", ptx), ptx
