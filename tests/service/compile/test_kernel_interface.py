"""A compiler's names for sizes against those of the arg spec."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kcache_compiler.types import GpuLaunch, KernelInterface, Launch, Symbol, TensorType
from kcache_grpc.errors import CompileFailed
from kcache_grpc.model.variants import parse_arg_spec
from kcache_grpc.service.kernel_interface import interface_of


def tensors(text: str) -> tuple[TensorType, ...]:
    return tuple(
        TensorType(t.dtype, tuple(int(d) if d.isdigit() else d for d in t.dims)) for t in parse_arg_spec(text)
    )


def interface(inputs: str, outputs: str, symbols: list[tuple[str, int, int]], **more: str) -> KernelInterface:
    return KernelInterface(
        inputs=tensors(inputs),
        constants=(),
        outputs=tensors(outputs),
        symbols=tuple(Symbol(*symbol) for symbol in symbols),
        workspace=more.get("workspace", "0"),
        launches=(Launch("one", ("add",), more.get("extent", "1"), "1"),),
        triple="x86_64-unknown-linux-gnu",
        required_isa=(),
        error_codes={},
    )


def test_names_that_are_the_arg_specs_stay() -> None:
    original = interface("f32[s0,8]", "f32[s0,8]", [("s0", 0, 0)], workspace="s0*4")
    assert interface_of(original, "f32[s0,8]") is original


def test_every_size_that_is_read_gets_the_name_of_its_axis() -> None:
    """The compiler numbers what it reads; s10 and s1 must not be taken for each other."""
    original = interface(
        "f32[s0,s1];f32[s2,s10]",
        "f32[s0,s10];f32[s1*s2+s10]",
        [("s0", 0, 0), ("s1", 0, 1), ("s2", 1, 0), ("s10", 1, 1)],
        workspace="roundup(s0*s10,64)",
        extent="ceildiv(s1,8)",
    )
    named = interface_of(original, "f32[s0,s1];f32[s1,3*s4]")
    assert [(s.name, s.arg, s.axis) for s in named.symbols] == [
        ("s0", 0, 0),
        ("s1", 0, 1),
        ("d2", 1, 0),
        ("d3", 1, 1),
    ]
    assert [t.dims for t in named.outputs] == [("s0", "d3"), ("s1*d2+d3",)]
    assert (named.workspace, named.launches[0].extent) == ("roundup(s0*d3,64)", "ceildiv(s1,8)")


def test_names_are_swapped_all_at_once() -> None:
    original = interface("f32[s0];f32[s1]", "f32[s0];f32[s1]", [("s0", 0, 0), ("s1", 1, 0)])
    named = interface_of(original, "f32[s1];f32[s0]")
    assert [t.dims for t in named.outputs] == [("s1",), ("s0",)]


def test_launches_of_a_gpu_and_checks_are_renamed_too() -> None:
    launch = GpuLaunch(
        "l",
        ("add",),
        "s0",
        "s0 % 4 == s1",
        ("ceildiv(s0,32)", "s1", "1"),
        (32, 1, 1),
        "min(s0,s1)",
        ("buffer:0", "workspace:s0*4", "i64:s1"),
    )
    original = interface("f32[s0];f32[s1]", "f32[s0]", [("s0", 0, 0), ("s1", 1, 0)])
    original = replace(original, launches=(), gpu_launches=(launch,), checks=("s0 <= s1",))
    named = interface_of(original, "f32[s1];f32[s0]")
    assert named.checks == ("s1 <= s0",)
    [renamed] = named.gpu_launches
    assert (renamed.entry, renamed.when, renamed.shared_bytes) == ("s0", "s1 % 4 == s0", "min(s1,s0)")
    assert renamed.grid == ("ceildiv(s1,32)", "s0", "1")
    assert renamed.params == ("buffer:0", "workspace:s1*4", "i64:s0")


def test_a_size_that_is_fixed_may_be_read() -> None:
    original = interface("f32[s0]", "f32[s0]", [("s0", 0, 0)])
    named = interface_of(original, "f32[5]")
    assert [s.name for s in named.symbols] == ["d0"]


@pytest.mark.parametrize(
    ("inputs", "symbols", "arg_spec"),
    [
        ("f32[4]", [], "f32[5]"),
        ("f32[4]", [], "f32[s0]"),
        ("f64[4]", [], "f32[4]"),
        ("f32[4,4]", [], "f32[4]"),
        ("f32[4]", [], "f32[4];f32[4]"),
        ("f32[s0];f32[7]", [("s0", 0, 0)], "f32[s0];f32[s0]"),
    ],
)
def test_a_kernel_for_something_else_is_not_published(
    inputs: str, symbols: list[tuple[str, int, int]], arg_spec: str
) -> None:
    with pytest.raises(CompileFailed, match="this is a bug in kcache"):
        interface_of(interface(inputs, inputs, symbols), arg_spec)
